//! Goes back to a snapshot many times in a program that uses malloc, stdio and SQLite, and does something else after
//! each restore. First, each time, it does the same: what comes out, and the addresses malloc gives, must be what they
//! were the first time.
//!
//!     restores TIMES
//!
//! Exit status 0: no difference; 1: one, which standard error tells.

mod work;

use flashfork::{SnapshotOptions, restore, snapshot};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use work::Work;

fn main() -> ExitCode {
    let Some(times) = std::env::args().nth(1).and_then(|n| n.parse().ok()) else {
        eprintln!("usage: restores TIMES");
        return ExitCode::from(2);
    };
    match flashfork_tests::own_code::trust().and_then(|()| run(times)) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("restores: {text}");
            ExitCode::FAILURE
        }
    }
}

/// What stays over restores.
struct Outside {
    turns: AtomicU64,
    digest: AtomicU64,
}

fn outside() -> Result<&'static Outside, String> {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping, never unmapped, of zeros, which are valid atomics.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), size_of::<Outside>(), prot, flags, -1, 0);
        if at == libc::MAP_FAILED { Err("no shared memory".into()) } else { Ok(&*at.cast()) }
    }
}

fn run(times: u64) -> Result<String, String> {
    let outside = outside()?;
    let mut work = Work::prepare()?;
    let descriptors = [work.descriptor()];
    let options = SnapshotOptions { descriptors: &descriptors, ..SnapshotOptions::default() };
    let turn = snapshot(&options).map_err(|e| e.to_string())?;
    if turn != outside.turns.load(SeqCst) {
        return Err(format!("turn {turn} came after {}", outside.turns.load(SeqCst)));
    }
    let digest = work.same_again()?;
    let first = match turn {
        0 => digest,
        _ => outside.digest.load(SeqCst),
    };
    if digest != first {
        return Err(format!("turn {turn} gave {digest:x}, the first one {first:x}"));
    }
    if turn == times {
        return Ok(format!("{times} restores, no difference ({digest:x})"));
    }
    work.something_else(turn)?;
    outside.digest.store(digest, SeqCst);
    outside.turns.store(turn + 1, SeqCst);
    // SAFETY: the work's file is named, and nothing else outside of memory is used.
    Err(unsafe { restore(turn + 1) }.to_string())
}
