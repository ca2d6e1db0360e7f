//! Runs test bodies in a child process with a single thread: the engine refuses a process with more, as the test harness is.
#![allow(dead_code)] // each test program uses a part

/// Forks, runs `body` in the child, and fails when it panics, exits with another status or dies.
pub fn in_child(body: impl FnOnce()) {
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

/// Waits for a child; its exit status, or 128 plus the signal that ended it.
pub fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: plain waitpid on our own child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
}

/// Anonymous memory of its own, each page written, with advice on its pages.
pub fn populated(len: usize, advice: libc::c_int) -> &'static mut [u8] {
    // SAFETY: a fresh mapping, never unmapped by the tests that use it.
    let bytes = unsafe {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        libc::madvise(at, len, advice);
        std::slice::from_raw_parts_mut(at.cast::<u8>(), len)
    };
    bytes.iter_mut().step_by(4096).for_each(|b| *b = 7);
    bytes
}
