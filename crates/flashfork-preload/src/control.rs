//! Calls for programs that know of the shim: tests, and the library when both are in one process.

use crate::warm::Hook;
use core::ffi::{c_char, c_int, c_void};
use flashfork_core::{Pages, Range, stats};

/// Seals now. Returns 0, or -1 when the process was refused or a system call failed.
#[unsafe(no_mangle)]
pub extern "C" fn flashfork_preload_seal() -> c_int {
	let sealed = flashfork_core::seal(Pages::Auto);
	stats::current().seal(&sealed);
	if sealed.outcome.is_ok() { 0 } else { -1 }
}

/// Makes all sealed memory anonymous again. Returns 0, or -1 when it could not, wholly or in part.
#[unsafe(no_mangle)]
pub extern "C" fn flashfork_preload_unseal() -> c_int {
	if flashfork_core::unseal(Range::ALL).is_ok() { 0 } else { -1 }
}

/// Drops what reads have put into the page tables that a fork copies. Returns 0, or -1 when it could not.
#[unsafe(no_mangle)]
pub extern "C" fn flashfork_preload_drop_refills() -> c_int {
	if flashfork_core::drop_refills().is_ok() { 0 } else { -1 }
}

/// The library in the same process has sealed memory: from now on its discards must be looked at.
#[unsafe(no_mangle)]
pub extern "C" fn flashfork_preload_note_sealed() {
	flashfork_core::note_another();
}

/// Keeps a range out of every seal the shim makes. Returns 0, or -1 when there are too many or it could not be
/// unsealed.
#[unsafe(no_mangle)]
pub extern "C" fn flashfork_preload_exclude(addr: *const u8, len: usize) -> c_int {
	if flashfork_core::exclude(addr as usize, len).is_ok() { 0 } else { -1 }
}

/// The program is warm. Under `flashfork warm --ready call` this returns once in each clone, with 1 and the caller's
/// arguments behind those of `*argc` and `*argv`; anywhere else at once, with 0. The library has the function, too, for
/// programs that run without the shim.
///
/// # Safety
/// Both are null, or `argc` and `argv` are those of `main`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_ready(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
	// SAFETY: the caller answers for its pointers.
	unsafe { crate::warm::ready_call(argc, argv) }
}

/// The same, by a name that is the shim's alone: the library's own function finds it by that.
///
/// # Safety
/// As [`flashfork_ready`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_preload_ready(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
	// SAFETY: the caller answers for its pointers.
	unsafe { crate::warm::ready_call(argc, argv) }
}

/// Has a function run in each clone of this program, before anything else of it does. Returns 0, or -1 with `errno`.
/// The library has the function, too, for programs that run without the shim.
///
/// # Safety
/// `run` may be called with `with`, in any clone, from its own thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_on_clone(run: Option<Hook>, with: *mut c_void) -> c_int {
	let run = run.ok_or(flashfork_core::Errno::EINVAL);
	crate::answer(run.and_then(|run| crate::warm::on_clone(run, with)), |()| 0) as c_int
}

/// The same, by a name that is the shim's alone: the library's own function finds it by that.
///
/// # Safety
/// As [`flashfork_on_clone`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_preload_on_clone(run: Option<Hook>, with: *mut c_void) -> c_int {
	// SAFETY: as the caller says.
	unsafe { flashfork_on_clone(run, with) }
}
