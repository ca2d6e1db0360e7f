//! `connect(2)`: where the runtime client of a function connects to the place that leads nowhere else, it is ready
//! ([`crate::warm::runtime`]).

use crate::forks::{next, nothing_found};
use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicPtr;

type Connect = unsafe extern "C" fn(c_int, *const libc::sockaddr, libc::socklen_t) -> c_int;

/// libc's, where it was looked up.
pub(crate) static CONNECT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Whether it is 127.0.0.1:1.
///
/// # Safety
/// As `connect`.
unsafe fn leads_nowhere(address: *const libc::sockaddr, len: libc::socklen_t) -> bool {
	if address.is_null() || (len as usize) < size_of::<libc::sockaddr_in>() {
		return false;
	}
	// SAFETY: so long, as the caller says; of another family the rest is not looked at.
	unsafe {
		let address = address.cast::<libc::sockaddr_in>().read_unaligned();
		address.sin_family == libc::AF_INET as u16
			&& address.sin_port == 1u16.to_be()
			&& address.sin_addr.s_addr == u32::from_ne_bytes([127, 0, 0, 1])
	}
}

/// `connect(2)`.
///
/// # Safety
/// As `connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, address: *const libc::sockaddr, len: libc::socklen_t) -> c_int {
	// SAFETY: the program's own arguments.
	if unsafe { leads_nowhere(address, len) }
		&& let Some(done) = crate::warm::runtime::connect(fd)
	{
		return done;
	}
	let found = next(&CONNECT, c"connect");
	if found.is_null() {
		return nothing_found();
	}
	// SAFETY: libc's function of this name has this type; the program's own call.
	unsafe { core::mem::transmute::<*mut c_void, Connect>(found)(fd, address, len) }
}
