//! `vmsplice`: what it puts into a pipe must be seen before the first seal, too.

use crate::next::{Next, nothing_found};
use core::ffi::{c_int, c_uint, c_void};

static VMSPLICE: Next = Next::new(c"vmsplice");

/// `vmsplice(2)`: the process is not sealed afterwards.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmsplice(fd: c_int, vectors: *const libc::iovec, count: usize, flags: c_uint) -> isize {
	let found = VMSPLICE.find();
	if found.is_null() {
		return nothing_found() as isize;
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
