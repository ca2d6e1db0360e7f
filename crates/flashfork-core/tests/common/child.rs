//! A child with a single thread for a test body: the engine refuses a process with more, as the test harness is.

use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::Once;

/// Forks, runs `body` in the child, and fails when it panics, exits with another status or dies.
pub fn in_child(body: impl FnOnce()) {
    tell_of_panics(std::process::id());
    // SAFETY: the child only runs the test body; glibc keeps its allocator usable across fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child without running the harness's exit handlers.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    assert_eq!(wait(pid), 0, "the child failed; its message is above");
}

/// Has children of the harness write what they panic with themselves: the harness would keep it in the child's own
/// memory, which ends with it. Set before there is any child, and past the lock of standard error: a child can't wait
/// for what another thread held while it was made.
fn tell_of_panics(harness: u32) {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::process::id() == harness {
                return usual(info);
            }
            // SAFETY: standard error is open, and stays so.
            let mut stderr = ManuallyDrop::new(unsafe { File::from_raw_fd(2) });
            let _ = writeln!(stderr, "{info}");
        }));
    });
}

/// Waits for a child; its exit status, or 128 plus the signal that ended it.
pub fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: plain waitpid on our own child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
}
