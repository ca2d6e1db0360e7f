//! The end of a clone is told before its memory is taken apart.

use super::CLONE;
use super::prepare::threads;
use core::ffi::{c_int, c_void};

/// The signal by which a clone tells its template with what exit status it ends.
pub fn signal() -> c_int {
    libc::SIGRTMIN()
}

/// Tells it, when all that is left of this clone is memory: to take that apart may last longer than all that the program did. Descriptors
/// are closed first, so that nobody finds a lock or a pipe still held. To be called last. Where it can't be told, the end itself tells.
pub fn tell(status: c_int) {
    // SAFETY: plain calls on this process, which only ends after this; it has no other thread that would miss a descriptor.
    unsafe {
        let Some(given) = CLONE.get() else { return };
        // Not in a process that the clone has forked.
        if given.pid != libc::getpid() || given.template != libc::getppid() || threads() != 1 {
            return;
        }
        // Nor should a directory be in use any more.
        libc::chdir(c"/".as_ptr());
        if libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32) == 0 {
            let value = libc::sigval { sival_ptr: ((status << 8) as usize) as *mut c_void };
            libc::sigqueue(given.template, signal(), value);
        }
    }
}

/// Which process has told, and its status as of `wait(2)`; none for a signal of another kind.
pub fn told(info: &libc::signalfd_siginfo) -> Option<(i32, c_int)> {
    let ours = info.ssi_signo == signal() as u32 && info.ssi_code == libc::SI_QUEUE;
    ours.then_some((info.ssi_pid as i32, info.ssi_int))
}
