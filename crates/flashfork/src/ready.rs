//! The ready point of a template that `flashfork warm --ready call` makes of this program.

use crate::allocator::symbol;
use std::{
	ffi::{CStr, OsStr, OsString},
	os::unix::ffi::OsStrExt,
};

/// The shim's function behind `flashfork_ready`, by a name that is its alone.
const READY: &CStr = c"flashfork_preload_ready";

type Ready = unsafe extern "C" fn(*mut libc::c_int, *mut *mut *mut libc::c_char) -> libc::c_int;

/// The program is warm. Under `flashfork warm --ready call` this returns in each clone, once, with the arguments that
/// its caller gave to `flashfork clone`; environment, working directory and standard streams are the caller's then.
/// `None`, at once, wherever there is nothing to wait for: the program was started without `flashfork warm` or with
/// another ready point, or this is a clone already.
///
/// What this process has in buffers of Rust's standard output is flushed first: clones would each print it.
///
/// # Safety
/// As `fork(2)`, which this is for the clones. A process with other threads then is refused, and ends: `flashfork warm`
/// says why. No thread may hold on to strings of the environment, which is replaced.
#[must_use]
pub unsafe fn ready() -> Option<Vec<OsString>> {
	// A failure would be told by the program's next output.
	let _ = std::io::Write::flush(&mut std::io::stdout());
	let (mut count, mut none) = (0, std::ptr::null_mut());
	let mut arguments = &raw mut none;
	// SAFETY: a table of no strings, as main's are.
	if unsafe { in_shim(&raw mut count, &raw mut arguments) } != 1 {
		return None;
	}
	let count = usize::try_from(count).unwrap_or_default();
	// SAFETY: the shim's table, and strings in it that are never freed.
	let strings = (0..count).map(|i| unsafe { CStr::from_ptr(*arguments.add(i)) });
	Some(strings.map(|string| OsStr::from_bytes(string.to_bytes()).to_owned()).collect())
}

/// Asks the shim, if it is there; 0 where there is nothing to wait for.
///
/// # Safety
/// As [`ready`]; the pointers are null, or those of `main`.
pub(crate) unsafe fn in_shim(argc: *mut libc::c_int, argv: *mut *mut *mut libc::c_char) -> libc::c_int {
	symbol(READY).map_or(0, |ready| {
		// SAFETY: the shim defines this symbol with this type; the caller answers for the rest.
		unsafe { std::mem::transmute::<*mut libc::c_void, Ready>(ready)(argc, argv) }
	})
}

#[cfg(test)]
mod tests {
	#[test]
	fn without_a_shim_there_is_nothing_to_wait_for() {
		// SAFETY: nothing is forked.
		assert_eq!(unsafe { super::ready() }, None);
	}
}
