//! Forks many children that write where nothing was before: holes inside and next to sealed memory, new heap, grown
//! mappings. The memfds must not grow by a page: what a clone writes has to go with it.
//!
//!     growth ROUTE FORKS
//!
//! Exit status 0: they didn't; 1: they did, or something else went wrong; 77: the size of a memfd can't be read here.

mod memfd;

use flashfork_tests::{
	Result,
	content::PAGE,
	route::{Route, Via},
};
use std::process::ExitCode;

const BLOCK: usize = 2 << 20;
/// Blocks of the main mapping that are written.
const WRITTEN: usize = 8;
/// Blocks behind them, never touched by the parent.
const UNTOUCHED: usize = 8;
/// Where the main mapping lies: at addresses of its own, so that it can grow.
const AT: usize = 0x20_0000_0000;
/// Where children move it to.
const AWAY: usize = 0x21_0000_0000;

fn main() -> ExitCode {
	let mut args = std::env::args().skip(1);
	let (route, forks) = (args.next().map(|r| r.parse()), args.next().map(|n| n.parse()));
	let (Some(Ok(route)), Some(Ok(forks))) = (route, forks) else {
		eprintln!("usage: growth ROUTE FORKS");
		return ExitCode::from(2);
	};
	if !memfd::can_look() {
		eprintln!("growth: skipped: reading /proc/self/map_files takes root");
		return ExitCode::from(77);
	}
	match run(route, forks) {
		Ok(text) => {
			println!("{text}");
			ExitCode::SUCCESS
		}
		Err(text) => {
			eprintln!("growth: {text}");
			ExitCode::FAILURE
		}
	}
}

fn run(route: Route, forks: usize) -> Result<String> {
	let heap = prepare()?;
	route.seal(false)?;
	let before = memfd::sizes()?;
	if before.is_empty() {
		return Err("nothing was sealed".into());
	}
	for i in 0..forks {
		// SAFETY: one thread; the child ends without returning.
		let pid = unsafe { libc::fork() };
		if pid == 0 {
			let result = live(route, heap, i);
			if let Err(e) = &result {
				eprintln!("growth: child {i}: {e}");
			}
			// SAFETY: ends the child without the parent's exit handlers.
			unsafe { libc::_exit(i32::from(result.is_err())) };
		}
		let mut status = 0;
		// SAFETY: waits for our own child.
		unsafe { libc::waitpid(pid, &raw mut status, 0) };
		if pid < 0 || status != 0 {
			return Err(format!("child {i} ended with status {status:#x}"));
		}
	}
	let after = memfd::sizes()?;
	let total = |sizes: &memfd::Sizes| sizes.values().sum::<u64>();
	let text = format!("{} bytes in memfds before, {} after {forks} forks", total(&before), total(&after));
	if before == after { Ok(text) } else { Err(text) }
}

/// Fills the main mapping and a heap; returns the end of the heap. Among the blocks: a full one, some with a few holes
/// (sealed whole), some with many (left anonymous), some with none of it written.
fn prepare() -> Result<usize> {
	let prot = libc::PROT_READ | libc::PROT_WRITE;
	let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
	let len = (WRITTEN + UNTOUCHED) * BLOCK;
	// SAFETY: replaces nothing.
	let at = unsafe { libc::mmap(AT as *mut _, len, prot, flags, -1, 0) };
	if at as usize != AT {
		return Err(format!("no memory at {AT:#x}: {}", std::io::Error::last_os_error()));
	}
	for page in (0..WRITTEN * BLOCK).step_by(PAGE) {
		let hole_every = [0, 8, 2, 5][page / BLOCK % 4];
		if hole_every == 0 || !(page / PAGE).is_multiple_of(hole_every) {
			write(AT + page);
		}
	}
	// SAFETY: libc copes with a break that others moved.
	let heap = unsafe { libc::sbrk(3 * BLOCK as isize) } as usize;
	for page in (heap..heap + 3 * BLOCK).step_by(PAGE) {
		write(page);
	}
	Ok(heap + 3 * BLOCK)
}

/// What a clone does: writes everywhere it may.
fn live(route: Route, heap: usize, i: usize) -> Result {
	let fail = |what: &str, e: i32| format!("{what}: {}", std::io::Error::from_raw_os_error(e));
	// The whole mapping at places that differ from child to child: sealed pages, holes among them, blocks next to them.
	for k in 0..24 {
		let page = (i * 7919 + k * 341) % ((WRITTEN + UNTOUCHED) * BLOCK / PAGE);
		write(AT + page * PAGE);
	}
	// SAFETY: the child's own heap.
	if unsafe { libc::sbrk(BLOCK as isize) } as usize != heap {
		return Err("the heap does not grow".into());
	}
	(0..8).for_each(|k| write(heap + k * 61 * PAGE));
	// Sealed memory given up and written again.
	let block = AT + (i % WRITTEN) * BLOCK;
	route.madvise(block, 64 * PAGE, libc::MADV_DONTNEED, Via::Function).map_err(|e| fail("madvise", e))?;
	(0..64).step_by(9).for_each(|k| write(block + k * PAGE));
	// The sealed front of the mapping cut off from the rest, shrunk, and grown over what it had before, in place or
	// elsewhere. SAFETY: the child's own memory.
	if unsafe { libc::munmap((AT + 2 * BLOCK) as *mut _, WRITTEN * BLOCK) } != 0 {
		return Err(fail("munmap", flashfork_tests::route::errno()));
	}
	route.mremap(AT, 2 * BLOCK, BLOCK / 2, 0, 0, Via::Function).map_err(|e| fail("shrink", e))?;
	let (flags, to) = if i.is_multiple_of(2) { (0, 0) } else { (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, AWAY) };
	let at = route.mremap(AT, BLOCK / 2, 2 * BLOCK, flags, to, Via::Function).map_err(|e| fail("grow", e))? as usize;
	for page in (at + BLOCK / 2..at + 2 * BLOCK).step_by(33 * PAGE) {
		// SAFETY: part of the mapping.
		if unsafe { *(page as *const u64) } != 0 {
			return Err(format!("new memory at {page:#x} is not zero"));
		}
		write(page);
	}
	Ok(())
}

fn write(addr: usize) {
	// SAFETY: callers give addresses within their mappings, and nothing of Rust's lies there.
	unsafe { (addr as *mut u64).write_volatile(addr as u64) };
}
