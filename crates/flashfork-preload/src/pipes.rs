//! `vmsplice`: what it puts into a pipe must be seen before the first seal, too.

use crate::forks::next;
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::AtomicPtr;

static VMSPLICE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// `vmsplice(2)`: the process is not sealed afterwards.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmsplice(fd: c_int, vectors: *const libc::iovec, count: usize, flags: c_uint) -> isize {
	let found = next(&VMSPLICE, c"vmsplice");
	if found.is_null() {
		return crate::answer::<()>(Err(flashfork_core::Errno::ENOSYS), |()| 0);
	}
	if let Err(e) = flashfork_core::answers::pipes::before_splice() {
		return crate::answer::<()>(Err(e), |()| 0);
	}
	// SAFETY: libc's function of this name has this type.
	let real = unsafe {
		core::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, *const libc::iovec, usize, c_uint) -> isize>(
			found,
		)
	};
	// SAFETY: the program's own call.
	unsafe { real(fd, vectors, count, flags) }
}
