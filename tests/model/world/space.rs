//! The addresses under test: one stretch of fixed addresses and the heap that `brk(2)` moves. Pages are numbered
//! through both, so that the same seed means the same calls in every process.

use crate::content::PAGE;
use std::{
	ops::Range,
	sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Far below what the kernel hands out, far above programs.
const ARENA: usize = 0x10_0000_0000;
/// Pages of the largest arena (256 MB), and of a small one (20 MB): emulated machines compare memory slowly.
const LARGE: usize = 64 << 10;
const SMALL: usize = 5 << 10;
/// Pages the heap may grow to (24 MB, 6 MB).
const LARGE_HEAP: usize = 6 << 10;
const SMALL_HEAP: usize = 3 << 9;
/// The most pages there are.
pub const MOST: usize = LARGE + 1 + LARGE_HEAP;

static IN_ARENA: AtomicUsize = AtomicUsize::new(LARGE);

/// Makes the arena a small one; before anything is mapped.
pub fn be_small() {
	IN_ARENA.store(SMALL, Relaxed);
}

pub fn is_small() -> bool {
	arena_pages() == SMALL
}

pub fn arena_pages() -> usize {
	IN_ARENA.load(Relaxed)
}

/// The first page of the heap; the one before is never mapped, so that no range runs across.
pub fn heap() -> usize {
	arena_pages() + 1
}

pub fn heap_pages() -> usize {
	if is_small() { SMALL_HEAP } else { LARGE_HEAP }
}

pub fn pages() -> usize {
	heap() + heap_pages()
}

/// From one arena to the next, where each thread has its own: 4 GB, far more than an arena and what lies behind it.
const APART: usize = 4 << 30;

/// Where an arena and the heap under test start in this process.
#[derive(Clone, Copy)]
pub struct Space {
	base: usize,
	heap: usize,
}

impl Space {
	pub fn new(heap: usize) -> Space {
		assert!(heap.is_multiple_of(PAGE) && !(ARENA..ARENA + arena_pages() * PAGE).contains(&heap));
		Space { base: ARENA, heap }
	}

	/// Its own arena for the thread of this number, from 1; its heap never holds anything.
	pub fn of_thread(number: usize) -> Space {
		let base = ARENA + number * APART;
		Space { base, heap: base + APART / 2 }
	}

	pub fn addr(&self, page: usize) -> usize {
		if page < heap() { self.base + page * PAGE } else { self.heap + (page - heap()) * PAGE }
	}

	pub fn page(&self, addr: usize) -> Option<usize> {
		self.overlap(addr, addr + 1).map(|pages| pages.start)
	}

	pub fn overlap(&self, start: usize, end: usize) -> Option<Range<usize>> {
		let within = |first: usize, pages: usize| {
			let (from, to) = (start.max(first), end.min(first + pages * PAGE));
			(from < to).then(|| (from - first) / PAGE..(to - first).div_ceil(PAGE))
		};
		let heap = within(self.heap, heap_pages()).map(|r| heap() + r.start..heap() + r.end);
		within(self.base, arena_pages()).or(heap)
	}
}
