//! Whether anybody else uses this process's memory: threads, and processes that share it.

use super::status;
use crate::proc::directory::for_each_entry;
use crate::proc::text::{decimal, read_file, words};
use crate::sys::{self, Errno, Result};

/// Whether nobody but the calling thread uses this process's memory. `buf` is scratch.
pub fn alone(buf: &mut [u8]) -> Result<bool> {
    // `pthread_join` returns a moment before the kernel has taken the thread off the list (mm_release, release_task).
    const PATIENCE: usize = 5;
    for _ in 0..PATIENCE {
        if alone_now(buf)? {
            return Ok(true);
        }
        sys::pause_briefly();
    }
    Ok(false)
}

/// The same without waiting for threads that are just ending.
pub fn alone_now(buf: &mut [u8]) -> Result<bool> {
    // The kernel lets a process unshare its memory only when nobody else uses it, in whatever way they came to share
    // it.
    match sys::unshare_memory() {
        Ok(()) => Ok(true),
        // It counts a main thread that has ended, of which only the name is left: then everybody is asked.
        Err(Errno::EINVAL) => {
            let me = sys::gettid();
            Ok(status::main_has_ended() && tasks(buf)? == 2 && sys::same_memory(me, me) && !is_shared(buf, |_| true))
        }
        // Not allowed (a seccomp filter, as in containers): look around.
        Err(_) => Ok(tasks(buf)? == 1 && !shared_with_a_process(buf)),
    }
}

/// Whether another process runs in this address space (`clone(2)` with `CLONE_VM`, `vfork(2)`): parent and children are
/// asked. Where the kernel has no `kcmp(2)` or list of children we can't know, and such processes are rare.
fn shared_with_a_process(buf: &mut [u8]) -> bool {
    let children = read_file(c"/proc/thread-self/children", buf).unwrap_or(b"");
    let shares = |pid| sys::same_memory(sys::gettid(), pid);
    shares(sys::getppid()) || words(children).filter_map(decimal).any(|pid| shares(pid as i32))
}

/// Whether another process, of those that `counts` says matter, runs in the memory of the calling thread. Where
/// `kcmp(2)` doesn't know that a thread shares its memory with itself, this tells nothing.
pub fn is_shared(buf: &mut [u8], counts: impl Fn(i32) -> bool) -> bool {
    let (pid, me) = (sys::getpid(), sys::gettid());
    let found = for_each_entry(c"/proc", buf, |name| {
        let other = decimal(name).map(|other| other as i32).filter(|other| *other != pid && counts(*other))?;
        sys::same_memory(me, other).then_some(())
    });
    found != Ok(None)
}

fn tasks(buf: &mut [u8]) -> Result<usize> {
    let mut count = 0;
    for_each_entry(c"/proc/self/task", buf, |_| {
        count += 1;
        None::<()>
    })?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_harness_has_threads() {
        let done = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || done.1.recv());
        assert_eq!(alone(&mut [0; 4096]), Ok(false));
        drop(done.0);
        other.join().unwrap().unwrap_err();
    }
}
