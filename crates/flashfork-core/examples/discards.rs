//! What a discard of one page (`MADV_DONTNEED`) costs in a process with many VMAs: in plain memory and in sealed
//! memory, each in turn, with one thread and with two.
//!
//! `cargo run --release -p flashfork-core --example discards [VMAS]`

use flashfork_core::answers::advise;
use flashfork_core::{Pages, seal};
use std::time::Instant;

const PAGE: usize = 4096;
const BLOCK: usize = 2 << 20;
/// Blocks of 2 MB: one page is discarded in each, a second one later.
const BLOCKS: usize = 200;

fn map(len: usize, prot: i32) -> usize {
    // SAFETY: a fresh mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at as usize
}

fn written(len: usize) -> usize {
    let at = map(len + BLOCK, libc::PROT_READ | libc::PROT_WRITE).next_multiple_of(BLOCK);
    for page in (at..at + len).step_by(PAGE) {
        // SAFETY: in the mapping just made.
        unsafe { (page as *mut u64).write(page as u64) };
    }
    at
}

/// Splits a mapping into so many.
fn split(count: usize) {
    let at = map(count * PAGE, libc::PROT_NONE);
    for page in (0..count).step_by(2) {
        // SAFETY: in the mapping just made.
        assert_eq!(unsafe { libc::mprotect((at + page * PAGE) as *mut _, PAGE, libc::PROT_READ) }, 0);
    }
}

/// Microseconds, the median: of a page in each block of `plain` and of `sealed`.
fn discards(plain: usize, sealed: usize, page: usize) -> [f64; 2] {
    let mut us = [const { Vec::new() }; 2];
    for block in 0..BLOCKS {
        for (at, us) in [plain, sealed].into_iter().zip(&mut us) {
            let at = at + block * BLOCK + page * PAGE;
            let start = Instant::now();
            // SAFETY: memory of this program.
            unsafe { advise::madvise(at, PAGE, libc::MADV_DONTNEED as u32) }.expect("a discard");
            us.push(start.elapsed().as_secs_f64() * 1e6);
            // SAFETY: as above.
            assert_eq!(unsafe { (at as *const u64).read() }, 0);
        }
    }
    us.map(|mut us| {
        us.sort_by(f64::total_cmp);
        us[us.len() / 2]
    })
}

fn main() {
    let vmas = std::env::args().nth(1).map_or(50_000, |n| n.parse().expect("a number of VMAs"));
    let (one, two) = (written(BLOCKS * BLOCK), written(BLOCKS * BLOCK));
    seal(Pages::Small).outcome.expect("a seal");
    let plain = written(BLOCKS * BLOCK);
    split(vmas);
    let report = |what: &str, [plain, sealed]: [f64; 2]| println!("{what}: plain {plain:.1} µs, sealed {sealed:.1} µs");
    println!("one page discarded, {vmas} VMAs, median of {BLOCKS}");
    report("the first in a block of 2 MB, one thread", discards(plain, one, 100));
    report("the second", discards(plain, one, 300));
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || wait.recv());
    report("the first, two threads", discards(plain, two, 100));
    report("the second", discards(plain, two, 300));
    report("the second again", discards(plain, two, 300));
    drop(end);
    other.join().expect("the other thread").expect_err("nothing is sent");
}
