//! Runs something short in a process of its own in the same memory, with descriptors of its own: where the program's
//! table is full, or its limit low, `/proc` can still be read; and where other threads run, none of these descriptors
//! is inherited by a child that one of them forks, or takes the number that one of them is about to get.
//!
//! The process has all signals blocked, is waited for, and leaves nothing behind. It is a child that only `__WALL` and
//! `__WCLONE` wait for.

use crate::scratch;
use crate::state::STATE;
use crate::sys::{self, Errno, RLIMIT_NOFILE, Result};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use linux_raw_sys::general as k;

const STACK: usize = 256 * 1024;
/// Descriptors it may have at once.
const DESCRIPTORS: u64 = 16;

struct Job<F> {
    f: Option<F>,
    done: Result<()>,
}

/// Asks the kernel what is mapped: that way where threads run, or where it can't be done otherwise. A sandbox might end
/// a program that starts a process.
pub fn ask(mut f: impl FnMut() -> Result<()>) -> Result<()> {
    if STATE.is_sandboxed() {
        return f();
    }
    let alone = sys::unshare_memory() != Err(Errno::EINVAL);
    let here = if alone { f() } else { Err(Errno::EAGAIN) };
    if here.is_ok() {
        return here;
    }
    let mut asked = false;
    let there = run(|| {
        asked = true;
        f()
    });
    match (asked, alone) {
        (true, _) => there,
        (false, true) => here,
        // No process is to be had (`RLIMIT_NPROC`).
        (false, false) => f(),
    }
}

/// Runs `f` that way; gives what it says.
pub fn run<F: FnOnce() -> Result<()>>(f: F) -> Result<()> {
    const FLAGS: usize = (k::CLONE_VM | k::CLONE_FILES | k::CLONE_FS | k::CLONE_UNTRACED) as usize;
    const WCLONE: u32 = 0x8000_0000;
    let mask = sys::block_signals()?;
    let stack = scratch::map(STACK).inspect_err(|_| sys::restore_signals(mask))?;
    let (alive, mut job) = (AtomicU32::new(0), Job { f: Some(f), done: Err(Errno::ESRCH) });
    // SAFETY: the stack is its own; the job and the word outlive it, because it is waited for below, and nobody else
    // uses them.
    let child = unsafe { crate::stack::clone_on(stack + STACK, FLAGS, &alive, start::<F>, (&raw mut job).cast()) };
    if let Ok(child) = child {
        loop {
            match alive.load(SeqCst) {
                0 => break,
                other => sys::futex_wait(&alive, other),
            }
        }
        // Somebody else may have waited for it (`__WALL`).
        let _ = sys::wait(child, WCLONE);
    }
    // SAFETY: nobody uses it any more. A failure would leak the mapping, no more.
    let _ = unsafe { sys::munmap(stack, STACK) };
    sys::restore_signals(mask);
    // SAFETY: written by the process that has ended, behind the compiler's back.
    child.and_then(|_| unsafe { core::ptr::read_volatile(&raw const job.done) })
}

extern "C" fn start<F: FnOnce() -> Result<()>>(job: *mut u8) -> ! {
    // SAFETY: whoever made this process passes its own Job<F> and leaves it alone until the end of this process.
    let job = unsafe { &mut *job.cast::<Job<F>>() };
    job.done = sys::leave_descriptors().and_then(|()| {
        // Limits are each process's own. Where the hard one can't be lifted it is as it is.
        if let Ok([_, hard]) = sys::getrlimit(RLIMIT_NOFILE) {
            let most = hard.max(DESCRIPTORS);
            let _ =
                sys::setrlimit(RLIMIT_NOFILE, [most, most]).or_else(|_| sys::setrlimit(RLIMIT_NOFILE, [hard, hard]));
        }
        job.f.take().map_or(Err(Errno::ESRCH), |f| f())
    });
    sys::exit(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_descriptors_of_its_own_and_the_same_memory() {
        let kept = sys::open(c"/dev/null", sys::O_RDONLY).unwrap();
        let (mut opened, mut pid) = (-1, 0);
        let said = run(|| {
            opened = sys::open(c"/dev/null", sys::O_RDONLY)?;
            pid = sys::getpid();
            Err(Errno::ENOSPC)
        });
        assert_eq!(said, Err(Errno::ENOSPC));
        assert_eq!(opened, 0, "an empty table");
        assert!(pid != sys::getpid() && pid != 0);
        assert!(sys::identity(kept).is_ok(), "which is not the caller's");
        sys::close(kept);
    }
}
