//! What is done in each clone of a template, before the program goes on there.

use crate::allocator::symbol;
use libc::{c_int, c_void};
use std::{ffi::CStr, io};

/// The shim's function behind `flashfork_on_clone`, by a name that is its alone.
const ON_CLONE: &CStr = c"flashfork_preload_on_clone";

/// What a clone has run first: 0 when all went well.
pub(crate) type Hook = unsafe extern "C" fn(*mut c_void) -> c_int;
type OnClone = unsafe extern "C" fn(Hook, *mut c_void) -> c_int;

/// Has `run` run in each clone that `flashfork clone` makes of this program, before anything else of the program runs
/// there: for what must not be the same in all of them, such as a random number generator's state. If it fails, the
/// clone is ended. Functions run in the order in which they were given, and are never taken back.
///
/// In a program with threads (`flashfork warm --threads`) they run in their own thread while all other threads wait
/// where they were stopped: a lock that one of these holds stays held, the allocator's too, perhaps. When the template
/// is made they run once in a clone that does nothing else; if they don't come to an end there, `flashfork warm` says
/// so. In a template with one thread they run in that.
///
/// Without `flashfork warm` there are no clones of that kind, and `run` is never called. [`fork`](crate::fork) doesn't
/// call it.
///
/// # Errors
/// When there are 64 already, or no thread can be started.
pub fn on_clone<F: Fn() -> io::Result<()> + Send + Sync + 'static>(run: F) -> io::Result<()> {
	unsafe extern "C" fn call<F: Fn() -> io::Result<()>>(run: *mut c_void) -> c_int {
		// SAFETY: the box of this type given below, which is never freed.
		let run = unsafe { &*run.cast::<F>() };
		c_int::from(run().is_err())
	}
	let run = Box::into_raw(Box::new(run));
	// SAFETY: `call` is for a box of this type, and `run` may be called from any thread.
	if unsafe { in_shim(call::<F>, run.cast()) } == 0 {
		return Ok(());
	}
	let failed = io::Error::last_os_error();
	// SAFETY: it was not taken.
	drop(unsafe { Box::from_raw(run) });
	Err(failed)
}

/// Tells the shim, if it is there. 0, or -1 with `errno`.
///
/// # Safety
/// `run` may be called with `with`, in any clone, from its own thread.
pub(crate) unsafe fn in_shim(run: Hook, with: *mut c_void) -> c_int {
	symbol(ON_CLONE).map_or(0, |on_clone| {
		// SAFETY: the shim defines this symbol with this type; the caller answers for the rest.
		unsafe { std::mem::transmute::<*mut c_void, OnClone>(on_clone)(run, with) }
	})
}

#[cfg(test)]
mod tests {
	#[test]
	fn without_a_shim_nothing_is_run() {
		super::on_clone(|| panic!("there are no clones")).unwrap();
	}
}
