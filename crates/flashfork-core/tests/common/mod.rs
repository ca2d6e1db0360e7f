//! What the tests of the core share.

use std::cell::Cell;

mod child;
#[allow(unused_imports)] // each test program uses a part
pub use child::{in_child, wait};

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
#[allow(dead_code)] // as above
pub fn intact(words: &[u64], seed: u64) -> bool {
    words.iter().enumerate().all(|(i, w)| *w == pattern(i, seed))
}

/// The maps line of the mapping that holds an address.
#[allow(dead_code)] // as above
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

/// Forks; the clone checks the memory, all of it or one word of each page. The parent is told that it took so long.
#[allow(dead_code)] // as above
pub fn forked(words: &[u64], seed: u64, ns: u64, all: bool) {
    let now = Cell::new(0);
    // SAFETY: one thread; the clone only reads, and ends.
    let real = || unsafe { libc::fork() };
    let pid = flashfork_core::fork::fork(real, || now.replace(now.get() + ns));
    if pid == 0 {
        let right =
            if all { intact(words, seed) } else { (0..words.len()).step_by(512).all(|i| words[i] == pattern(i, seed)) };
        // SAFETY: ends the clone.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    assert_eq!(wait(pid), 0, "the clone saw other bytes");
}

/// Does something again and again until it says that it is done.
#[allow(dead_code)] // as above
#[track_caller]
pub fn until(most: usize, mut done: impl FnMut() -> bool) {
    assert!((0..most).any(|_| done()), "not within {most} forks");
}
