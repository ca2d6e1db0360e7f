//! The addresses under test: one stretch of fixed addresses and the heap that `brk(2)` moves. Pages are numbered through both, so
//! that the same seed means the same calls in every process.

use crate::content::PAGE;
use std::ops::Range;

/// Far below what the kernel hands out, far above programs.
const ARENA: usize = 0x10_0000_0000;
/// Pages of the arena (256 MB).
pub const ARENA_PAGES: usize = 64 << 10;
/// The first page of the heap; the one before is never mapped, so that no range runs across.
pub const HEAP: usize = ARENA_PAGES + 1;
/// Pages the heap may grow to (24 MB).
pub const HEAP_PAGES: usize = 6 << 10;
/// Pages in all.
pub const PAGES: usize = HEAP + HEAP_PAGES;

/// Where the heap under test starts in this process.
#[derive(Clone, Copy)]
pub struct Space {
    heap: usize,
}

impl Space {
    pub fn new(heap: usize) -> Space {
        assert!(heap.is_multiple_of(PAGE) && !(ARENA..ARENA + ARENA_PAGES * PAGE).contains(&heap));
        Space { heap }
    }

    pub fn addr(&self, page: usize) -> usize {
        if page < HEAP { ARENA + page * PAGE } else { self.heap + (page - HEAP) * PAGE }
    }

    /// The page at an address, if it is one of ours.
    pub fn page(&self, addr: usize) -> Option<usize> {
        self.overlap(addr, addr + 1).map(|pages| pages.start)
    }

    /// The pages of ours that a mapping covers.
    pub fn overlap(&self, start: usize, end: usize) -> Option<Range<usize>> {
        let within = |first: usize, pages: usize| {
            let (from, to) = (start.max(first), end.min(first + pages * PAGE));
            (from < to).then(|| (from - first) / PAGE..(to - first).div_ceil(PAGE))
        };
        let heap = within(self.heap, HEAP_PAGES).map(|r| HEAP + r.start..HEAP + r.end);
        within(ARENA, ARENA_PAGES).or(heap)
    }
}
