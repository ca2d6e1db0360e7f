//! Three ways for blocks in sealed memory to grow, measured in turn: what a seal, a fork and the growth of a block
//! cost, how many VMAs there are, and what a clone that grows its blocks leaves behind.
//!
//! *followed* is the engine's: libc's calls lead to it. *guarded* keeps the last page of each block anonymous,
//! *windows* has a block grow into the hole behind its own part of the memfd; ARCHITECTURE.md has their faults. This
//! example knows where its blocks end; an engine would have to be told by every allocator.
//!
//! Each measurement is its own process. The two that are not the engine's exist here alone.
//!
//! `cargo run --release -p flashfork-core --example growth [ROUNDS [BLOCKS [MB]]]`

use flashfork_core::{Errno, MEMFD_PREFIX, Pages, code, seal, system_call};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use syscalls::Sysno;

const PAGE: usize = 4096;
const MB: usize = 1 << 20;
/// Forks timed in each process.
const FORKS: usize = 15;

#[derive(Clone, Copy, PartialEq)]
enum Design {
    Followed,
    Guarded,
    Windows,
}

const DESIGNS: [(Design, &str); 3] =
    [(Design::Followed, "followed"), (Design::Guarded, "guarded"), (Design::Windows, "windows")];

const FIGURES: [&str; 7] = [
    "seal, ms",
    "libc's calls rewritten, once, ms",
    "VMAs of the blocks",
    "fork, µs",
    "a block grows by half, µs",
    "fork after all have grown, µs",
    "left in the memfd by a clone that grew, MB",
];

#[derive(Clone, Copy)]
struct Shape {
    blocks: usize,
    len: usize,
}

fn main() {
    let mut args = std::env::args().skip(1).map(|n| n.parse::<usize>().expect("a number"));
    let rounds = args.next().unwrap_or(9);
    let shape = Shape { blocks: args.next().unwrap_or(64), len: args.next().unwrap_or(4) * MB };
    let mut all = [const { [const { Vec::new() }; FIGURES.len()] }; DESIGNS.len()];
    for round in 0..rounds {
        for i in 0..DESIGNS.len() {
            let i = (i + round) % DESIGNS.len();
            for (figures, figure) in all[i].iter_mut().zip(in_a_process(DESIGNS[i].0, shape)) {
                figures.push(figure);
            }
        }
    }
    println!("{} blocks of {} MB, {rounds} rounds: median (least to most)", shape.blocks, shape.len / MB);
    println!("{:<44}{:>28}{:>28}{:>28}", "", DESIGNS[0].1, DESIGNS[1].1, DESIGNS[2].1);
    for (row, name) in FIGURES.iter().enumerate() {
        let cells = all.each_mut().map(|figures| spread(&mut figures[row]));
        println!("{name:<44}{:>28}{:>28}{:>28}", cells[0], cells[1], cells[2]);
    }
}

fn spread(figures: &mut [f64]) -> String {
    figures.sort_by(f64::total_cmp);
    format!("{:.1} ({:.1} to {:.1})", figures[figures.len() / 2], figures[0], figures[figures.len() - 1])
}

/// Measures one design in a process that has sealed nothing before.
fn in_a_process(design: Design, shape: Shape) -> [f64; FIGURES.len()] {
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    // SAFETY: one thread; the child ends without returning.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "a fork");
    if pid == 0 {
        let figures = measure(design, shape);
        writer.write_all(&figures.map(f64::to_ne_bytes).concat()).expect("the figures are told");
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("what the child says");
    wait(pid);
    let mut figures = [0.0; FIGURES.len()];
    for (figure, bytes) in figures.iter_mut().zip(bytes.chunks_exact(8)) {
        *figure = f64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
    }
    figures
}

fn measure(design: Design, Shape { blocks, len }: Shape) -> [f64; FIGURES.len()] {
    // As allocators get them: side by side, one mapping to the kernel.
    let start = map(blocks * len);
    let mut at: Vec<usize> = (0..blocks).map(|i| start + i * len).collect();
    at.iter().for_each(|block| fill(*block, len));
    // A page that forks leave out is no part of a seal, and what differs in its advice has its own window.
    let advise = |at: usize, len: usize, advice: i32| {
        // SAFETY: nothing is discarded.
        unsafe { system_call(Sysno::madvise, [at, len, advice as usize, 0, 0, 0]) }.expect("advice");
    };
    let guards = at.iter().map(|block| block + len - PAGE).filter(|_| design == Design::Guarded);
    guards.clone().for_each(|guard| advise(guard, PAGE, libc::MADV_DONTFORK));
    let apart = at.iter().step_by(2).filter(|_| design == Design::Windows);
    apart.for_each(|block| advise(*block, len, libc::MADV_RANDOM));
    let rewriting = rewriting();
    let (sealing, sealed) = timed(|| seal(Pages::Small).outcome.expect("a seal"));
    assert!(sealed.sealed as usize >= blocks * (len - PAGE), "all is sealed");
    guards.for_each(|guard| advise(guard, PAGE, libc::MADV_DOFORK));
    let vmas = vmas_in(start, blocks * len);
    let fork = median_of_forks();
    let before = memfd_bytes();
    // SAFETY: one thread; the child ends without returning.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        for block in at {
            let grown = grow(design, block, len, len + len / 2);
            fill(grown + len, len / 2);
        }
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    wait(pid);
    let left = memfd_bytes() - before;
    let mut took = Duration::ZERO;
    for block in &mut at {
        let (time, grown) = timed(|| grow(design, *block, len, len + len / 2));
        took += time;
        *block = grown;
    }
    for block in &at {
        assert!(is_filled(*block, len), "the bytes that were sealed are there");
        // SAFETY: a block of this program.
        let new = unsafe { std::slice::from_raw_parts((block + len) as *const u64, len / 2 / 8) };
        assert!(new.iter().all(|word| *word == 0), "the new part reads zeros");
        fill(*block + len, len / 2);
    }
    let after = median_of_forks();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    [
        us(sealing) / 1e3,
        us(rewriting) / 1e3,
        vmas as f64,
        us(fork),
        us(took) / blocks as f64,
        us(after),
        left / MB as f64,
    ]
}

/// A block that grows, as `realloc` has it done.
fn grow(design: Design, block: usize, old: usize, new: usize) -> usize {
    match design {
        Design::Followed => {
            // SAFETY: a block of this program, to which nothing refers.
            let at = unsafe { libc::mremap(block as *mut _, old, new, libc::MREMAP_MAYMOVE) };
            assert_ne!(at, libc::MAP_FAILED);
            at as usize
        }
        Design::Windows => kernel_mremap(block, old, new).expect("the kernel grows it"),
        Design::Guarded => {
            assert_eq!(kernel_mremap(block, old, new), Err(Errno::EFAULT), "the guard is crossed by no call");
            let at = map(new);
            // SAFETY: a block of this program, to which nothing refers, and its new place.
            unsafe {
                std::ptr::copy_nonoverlapping(block as *const u8, at as *mut u8, old);
                libc::munmap(block as *mut _, old);
            }
            at
        }
    }
}

/// `mremap(2)` past the engine.
fn kernel_mremap(block: usize, old: usize, new: usize) -> Result<usize, Errno> {
    // SAFETY: a block of this program, to which nothing refers.
    unsafe { system_call(Sysno::mremap, [block, old, new, libc::MREMAP_MAYMOVE as usize, 0, 0]) }
}

/// What the first look at libc takes more than the next, which finds its calls rewritten.
fn rewriting() -> Duration {
    let without_code = || {
        let (whole, look) = timed(|| code::times::time().expect("nothing speaks against a seal"));
        whole.saturating_sub(Duration::from_nanos(look))
    };
    let first = without_code();
    first.saturating_sub(without_code())
}

fn median_of_forks() -> Duration {
    let mut times: Vec<_> = (0..FORKS)
        .map(|_| {
            // SAFETY: one thread; the child ends at once.
            let (time, pid) = timed(|| unsafe { libc::fork() });
            if pid == 0 {
                // SAFETY: as above.
                unsafe { libc::_exit(0) };
            }
            wait(pid);
            time
        })
        .collect();
    times.sort();
    times[FORKS / 2]
}

fn timed<T>(f: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let value = f();
    (start.elapsed(), value)
}

fn wait(pid: i32) {
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child has ended well");
}

fn map(len: usize) -> usize {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at as usize
}

fn words(at: usize, len: usize) -> impl Iterator<Item = *mut u64> {
    (at..at + len).step_by(64).map(|at| at as *mut u64)
}

fn fill(at: usize, len: usize) {
    // SAFETY: callers give memory of their own. By place in its page: blocks move.
    words(at, len).for_each(|word| unsafe { word.write(word.addr() as u64 % PAGE as u64 + 1) });
}

fn is_filled(at: usize, len: usize) -> bool {
    // SAFETY: as above.
    words(at, len).all(|word| unsafe { word.read() } == word.addr() as u64 % PAGE as u64 + 1)
}

/// Start, end and line of each mapping.
fn maps() -> Vec<(usize, usize, String)> {
    let text = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let number = |hex: &str| usize::from_str_radix(hex, 16).expect("an address");
    let mapping = |line: &str| {
        let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        (number(start), number(end), line.to_owned())
    };
    text.lines().map(mapping).collect()
}

fn vmas_in(at: usize, len: usize) -> usize {
    maps().iter().filter(|(start, end, _)| *start < at + len && *end > at).count()
}

/// Bytes that the memfds hold; not a number where the kernel doesn't let us look (map_files takes a capability).
fn memfd_bytes() -> f64 {
    let prefix = std::str::from_utf8(MEMFD_PREFIX).expect("a name");
    let files: Option<std::collections::BTreeMap<u64, u64>> = maps()
        .iter()
        .filter(|(.., line)| line.contains(prefix))
        .map(|(start, end, _)| std::fs::metadata(format!("/proc/self/map_files/{start:x}-{end:x}")).ok())
        .map(|file| file.map(|file| (file.ino(), file.blocks() * 512)))
        .collect();
    files.map_or(f64::NAN, |files| files.values().sum::<u64>() as f64)
}
