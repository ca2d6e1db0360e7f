//! `connect(2)`: where the runtime client of a function connects to the place that leads nowhere else, it is ready
//! ([`crate::warm::runtime`]).

use crate::next::{known_when_loaded, nothing_found};
use core::ffi::{c_int, c_void};

type Connect = unsafe extern "C" fn(c_int, *const libc::sockaddr, libc::socklen_t) -> c_int;

known_when_loaded!(CONNECT: c"connect");

/// Whether it is 127.0.0.1:1, also as a socket of IPv6 has it (`::ffff:127.0.0.1`), which is what Java makes.
///
/// # Safety
/// As `connect`.
unsafe fn leads_nowhere(address: *const libc::sockaddr, len: libc::socklen_t) -> bool {
	const HERE: [u8; 4] = [127, 0, 0, 1];
	const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
	let is = |family: c_int, size: usize| {
		// SAFETY: not null; as long as the caller says, which is long enough for a family.
		!address.is_null() && len as usize >= size && unsafe { (*address).sa_family } == family as u16
	};
	// SAFETY: each is as long as its type, as was looked at.
	unsafe {
		if is(libc::AF_INET, size_of::<libc::sockaddr_in>()) {
			let address = address.cast::<libc::sockaddr_in>().read_unaligned();
			return address.sin_port == 1u16.to_be() && address.sin_addr.s_addr == u32::from_ne_bytes(HERE);
		}
		is(libc::AF_INET6, size_of::<libc::sockaddr_in6>()) && {
			let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
			address.sin6_port == 1u16.to_be()
				&& address.sin6_addr.s6_addr[..12] == MAPPED
				&& address.sin6_addr.s6_addr[12..] == HERE
		}
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
	let found = CONNECT.find();
	if found.is_null() {
		return nothing_found();
	}
	// SAFETY: libc's function of this name has this type; the program's own call.
	unsafe { core::mem::transmute::<*mut c_void, Connect>(found)(fd, address, len) }
}
