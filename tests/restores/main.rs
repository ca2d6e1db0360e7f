//! Goes back to a snapshot many times in a program that uses malloc, stdio and SQLite, and does something else after
//! each restore. First, each time, it does the same: what comes out, and the addresses malloc gives, must be what they
//! were the first time.
//!
//!     restores TIMES [drop|copy]
//!
//! What was written is dropped or copied back; without a word whatever turns out cheaper.
//!
//! Exit status 0: no difference; 1: one, which standard error tells.

mod work;

use flashfork::{SnapshotOptions, restore, snapshot};
use flashfork_core::snapshot::{Way, go_back_by};
use flashfork_tests::Result;
use std::{
	process::ExitCode,
	sync::atomic::{AtomicU64, Ordering::SeqCst},
};
use work::Work;

fn main() -> ExitCode {
	let mut args = std::env::args().skip(1);
	let times = args.next().and_then(|n| n.parse().ok());
	let way = match args.next().as_deref() {
		None => Some(None),
		Some("drop") => Some(Some(Way::Drop)),
		Some("copy") => Some(Some(Way::Copy)),
		_ => None,
	};
	let (Some(times), Some(way)) = (times, way) else {
		eprintln!("usage: restores TIMES [drop|copy]");
		return ExitCode::from(2);
	};
	go_back_by(way);
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

fn outside() -> Result<&'static Outside> {
	let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
	// SAFETY: a fresh mapping, never unmapped, of zeros, which are valid atomics.
	unsafe {
		let at = libc::mmap(std::ptr::null_mut(), size_of::<Outside>(), prot, flags, -1, 0);
		if at == libc::MAP_FAILED { Err("no shared memory".into()) } else { Ok(&*at.cast()) }
	}
}

fn run(times: u64) -> Result<String> {
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
	// SAFETY: the work's file is named, and nothing else outside memory is used.
	Err(unsafe { restore(turn + 1) }.to_string())
}
