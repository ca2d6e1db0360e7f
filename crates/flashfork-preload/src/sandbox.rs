//! Programs that put themselves under seccomp: from then on the system calls of a seal might end them, so there are no
//! more seals.
//!
//! Memory sealed before stays sealed where the filter lets the engine work on it
//! ([`flashfork_core::answers::sandbox`]): a clone that goes into a sandbox keeps what it was cloned for.

use core::ffi::{c_int, c_ulong};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use flashfork_core::answers::sandbox;

static ENTERED: AtomicBool = AtomicBool::new(false);

/// Whether the program, or one it was forked from, has set up seccomp since it was started.
pub fn entered() -> bool {
    ENTERED.load(Relaxed)
}

/// Notes it where a call has put the program into a sandbox.
fn entered_by(result: Result<usize, flashfork_core::Errno>) -> isize {
    if result.is_ok() {
        ENTERED.store(true, Relaxed);
    }
    crate::answer(result, |n| n as isize)
}

const PR_SET_SECCOMP: c_int = 22;

/// `prctl(2)`; takes part only when it sets up seccomp, or has system calls be signals.
///
/// # Safety
/// As `prctl`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    let args = [option as usize, a as usize, b as usize, c as usize, d as usize, 0];
    // SAFETY: the program's own call.
    let result = unsafe { sandbox::prctl(args) };
    (if option == PR_SET_SECCOMP { entered_by(result) } else { crate::answer(result, |n| n as isize) }) as c_int
}

/// `seccomp(2)`, which libc has no function for.
///
/// # Safety
/// As `seccomp`.
pub unsafe fn seccomp(operation: usize, flags: usize, args: usize) -> isize {
    const GET_ACTION_AVAIL: usize = 2;
    // SAFETY: the program's own call.
    let result = unsafe { sandbox::seccomp([operation, flags, args, 0, 0, 0]) };
    if operation < GET_ACTION_AVAIL { entered_by(result) } else { crate::answer(result, |n| n as isize) }
}
