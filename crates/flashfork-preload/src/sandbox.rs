//! Programs that put themselves under seccomp: from then on the system calls of a seal might end them, so there are no more seals.
//!
//! Memory sealed before stays sealed: a clone that goes into a sandbox keeps what it was cloned for.

use core::ffi::{c_int, c_ulong};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use syscalls::Sysno;

static ENTERED: AtomicBool = AtomicBool::new(false);

/// Whether the program, or one it was forked from, has set up seccomp since it was started.
pub fn entered() -> bool {
    ENTERED.load(Relaxed)
}

fn enter() {
    ENTERED.store(true, Relaxed);
    flashfork_core::fork::enter_sandbox();
}

const PR_SET_SECCOMP: c_int = 22;

/// `prctl(2)`; takes part only when it sets up seccomp.
///
/// # Safety
/// As `prctl`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    let args = [option as usize, a as usize, b as usize, c as usize, d as usize, 0];
    // SAFETY: the program's own call.
    let result = unsafe { flashfork_core::system_call(Sysno::prctl, args) };
    if option == PR_SET_SECCOMP && result.is_ok() {
        enter();
    }
    crate::answer(result, |n| n as isize) as c_int
}

/// `seccomp(2)`, which libc has no function for.
///
/// # Safety
/// As `seccomp`.
pub unsafe fn seccomp(operation: usize, flags: usize, args: usize) -> isize {
    // SAFETY: the program's own call.
    let result = unsafe { flashfork_core::system_call(Sysno::seccomp, [operation, flags, args, 0, 0, 0]) };
    if result.is_ok() {
        enter();
    }
    crate::answer(result, |n| n as isize)
}
