//! What the tests of the core share.

use flashfork_core::snapshot::{Way, go_back_by};
use std::cell::Cell;

#[macro_use]
mod child;
#[allow(unused_imports)] // each test program uses a part
pub use child::{Child, in_child, wait};
mod memory;
#[allow(unused_imports)] // as above
pub use memory::{anonymous, counter, map};

/// Children that do a test, one for each way to go back to a snapshot.
#[allow(dead_code)] // as above
pub fn by_each_way() -> Option<Child> {
    let mut ways = [Way::Drop, Way::Copy].into_iter();
    ways.find_map(|way| Child::fork().inspect(|_| go_back_by(Some(way))))
}

/// Has each of them do this.
#[allow(dead_code)] // as above
pub fn in_children(body: impl FnOnce()) {
    in_child!(by_each_way());
    body();
}

/// Goes back to the snapshot, which returns this there: that is no return here.
#[allow(dead_code)] // as above
pub fn back(value: u64) -> ! {
    panic!("{:?}", flashfork_core::snapshot::restore(value))
}

/// Anonymous memory filled with a pattern that depends on the address and the seed.
pub fn patterned(len: usize, seed: u64) -> &'static mut [u64] {
    // SAFETY: a fresh mapping, never unmapped by the tests that use it.
    let words = unsafe { std::slice::from_raw_parts_mut(anonymous(len).cast::<u64>(), len / 8) };
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
