//! Runs test bodies in a child process with a single thread: the engine refuses a process with more, as the test harness is.

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

/// Anonymous memory filled with a pattern that depends on the address and the seed.
pub fn patterned(len: usize, seed: u64) -> &'static mut [u64] {
    // SAFETY: a fresh mapping, never unmapped by the tests that use it.
    let words = unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        std::slice::from_raw_parts_mut(at.cast::<u64>(), len / 8)
    };
    for (i, w) in words.iter_mut().enumerate() {
        *w = pattern(i, seed);
    }
    words
}

/// The word a place holds.
pub fn pattern(i: usize, seed: u64) -> u64 {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed | 1
}

/// Whether the whole slice holds its pattern.
pub fn intact(words: &[u64], seed: u64) -> bool {
    words.iter().enumerate().all(|(i, w)| *w == pattern(i, seed))
}

/// The maps line of the mapping that holds an address.
pub fn maps_line(at: *const u64) -> String {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .find(|l| {
            let (start, end) = l.split(' ').next().unwrap().split_once('-').unwrap();
            let parse = |s| usize::from_str_radix(s, 16).unwrap();
            (parse(start)..parse(end)).contains(&(at as usize))
        })
        .unwrap_or_default()
        .to_string()
}
