//! Dense: blocks of which the program writes much lie on anonymous huge pages again.
//!
//! Sealed anew such a block would be written again (docs/POLICY.md). So the engine `seal` makes these blocks anonymous,
//! neighbours together: an island among sealed memory costs a fork three times as much.
//!
//! A write to a huge page that a clone shares splits it (`do_huge_pmd_wp_page` in mm/huge_memory.c). Then the block is
//! memory like any other, which the next seal takes. Until then it stays as it is.
//!
//! `MADV_COLLAPSE` makes the huge pages: it asks for no advice, which the program would see, and works where the host
//! gives them on request alone (madvise(2)). Who has forbidden himself huge pages (`PR_SET_THP_DISABLE`) gets none.

use super::{offset, unseal};
use crate::{
	apart::Apart,
	arena::{Arena, Run},
	outcome::Error,
	proc::{
		lookup::{self, Wanted},
		pagemap::{Pagemap, Which},
		scan::{self, Ask, Region},
		vma::Kind,
	},
	range::Range,
	sys::{self, Errno, HUGE, Result},
};
use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Most groups of neighbours. What is beyond stays sealed.
pub const PLACES: usize = 64;

pub(crate) static DENSE: Apart<Dense> = Apart::new(Dense::new());

/// Where such blocks are. Clones inherit it with their memory.
pub(crate) struct Dense([[AtomicUsize; 2]; PLACES]);

impl Dense {
	const fn new() -> Dense {
		Dense([const { [const { AtomicUsize::new(0) }; 2] }; PLACES])
	}

	fn all(&self) -> impl Iterator<Item = (&[AtomicUsize; 2], Range)> {
		self.0.iter().map(|place| (place, Range::new(place[0].load(SeqCst), place[1].load(SeqCst))))
	}

	/// Whether a block is such a one.
	pub fn has(&self, block: Range) -> bool {
		self.all().any(|(_, known)| known.intersect(block) == block)
	}

	/// Forgets those that are no longer on huge pages of this process.
	pub fn look(&self, regions: &mut [Region]) -> Result<()> {
		if self.all().all(|(_, range)| range.is_empty()) {
			return Ok(());
		}
		let mut pagemap = Pagemap::open(regions)?;
		for (place, range) in self.all().filter(|(_, range)| !range.is_empty()) {
			if !are_huge(&mut pagemap, range) {
				place[1].store(range.start, SeqCst);
			}
		}
		Ok(())
	}

	/// A place for blocks: that of their neighbours, or an empty one.
	fn place(&self, range: Range) -> Option<(&[AtomicUsize; 2], Range)> {
		let joins = |known: &Range| !known.is_empty() && (known.end == range.start || known.start == range.end);
		self.all().find(|(_, known)| joins(known)).or_else(|| self.all().find(|(_, known)| known.is_empty()))
	}

	fn add(&self, range: Range) {
		let Some((place, known)) = self.place(range) else { return };
		let (start, end) = match known.is_empty() {
			true => (range.start, range.end),
			false => (known.start.min(range.start), known.end.max(range.end)),
		};
		place[0].store(start, SeqCst);
		place[1].store(end, SeqCst);
	}
}

fn are_huge(pagemap: &mut Pagemap, range: Range) -> bool {
	let ask = Ask { all: scan::HUGE_PAGE | scan::PRESENT, none: scan::FILE, told: scan::HUGE_PAGE, ..Ask::default() };
	let mut bytes = 0;
	let asked = pagemap.scan(range, ask, |found| {
		bytes += found.range().intersect(range).len();
		Ok(())
	});
	asked.is_ok() && bytes == range.len()
}

/// Whether so many bytes of a block, written since it was sealed, are so much that they will be written again.
pub fn is_dense(written: usize, block: Range) -> bool {
	written > block.len() / 4
}

/// Dense blocks, neighbours together.
struct Found {
	groups: [Range; PLACES],
	count: usize,
	/// The block that is being looked at, and how much of it was written.
	block: Range,
	written: usize,
}

impl Found {
	const fn new() -> Found {
		let none = Range { start: 0, end: 0 };
		Found { groups: [none; PLACES], count: 0, block: none, written: 0 }
	}

	/// Adds written pages, in order of their addresses.
	fn add(&mut self, pages: Range, holes: &[Range]) {
		let mut at = pages.start;
		while at < pages.end {
			if !self.block.contains(at) {
				self.close(holes);
				let start = at & !(HUGE - 1);
				self.block = Range::new(start, start + HUGE);
			}
			let end = pages.end.min(self.block.end);
			self.written += end - at;
			at = end;
		}
	}

	/// Nothing more comes of this block. One that holds something of `holes` is left out.
	fn close(&mut self, holes: &[Range]) {
		let (block, written) = (self.block, self.written);
		(self.block, self.written) = (Range::default(), 0);
		if !is_dense(written, block) || holes.iter().any(|hole| !hole.intersect(block).is_empty()) {
			return;
		}
		match self.groups[..self.count].last_mut() {
			Some(last) if last.end == block.start => last.end = block.end,
			_ => {
				if let Some(place) = self.groups.get_mut(self.count) {
					*place = block;
					self.count += 1;
				}
			}
		}
	}
}

/// Finds the dense blocks of sealed memory, without those that hold something of the arena's holes.
fn find(arena: &mut Arena) -> Result<Found> {
	let mut found = Found::new();
	arena.run_count = 0;
	lookup::for_each(Range::ALL, Wanted::Files, |v| {
		let whole = Range::new(v.range.start.next_multiple_of(HUGE), v.range.end & !(HUGE - 1));
		if v.kind != Kind::Sealed || whole.is_empty() || offset::advice_of_sealed(v) & offset::LIBRARY != 0 {
			return Ok(());
		}
		match arena.push_run(Run { range: whole, ..Run::default() }) {
			// What there is no room for stays sealed.
			Err(Errno::E2BIG) => Ok(()),
			pushed => pushed,
		}
	})?;
	let Arena { regions, runs, run_count, holes, hole_count, .. } = arena;
	let holes = &holes[..*hole_count];
	let mut pagemap = Pagemap::open(regions)?;
	// Without PAGEMAP_SCAN nobody could tell later whether they still are huge pages.
	if !pagemap.has_scan() {
		return Ok(found);
	}
	for run in &runs[..*run_count] {
		pagemap.for_each(run.range, Which::Written, |pages| found.add(pages.intersect(run.range), holes))?;
		found.close(holes);
	}
	Ok(found)
}

/// Bytes moved at a time.
const PART: usize = 8 << 20;

/// Has dense blocks lie on huge pages, for about `ns` nanoseconds; whether that was too short. What can't stays sealed,
/// and correct. No other thread runs, and the arena's holes are set.
pub fn sweep(arena: &mut Arena, ns: u64) -> Result<bool> {
	let until = sys::now_ns().saturating_add(ns);
	let found = find(arena)?;
	let parts = |group: &Range| {
		let (start, end) = (group.start, group.end);
		(start..end).step_by(PART).map(move |at| Range::new(at, end.min(at + PART)))
	};
	for part in found.groups[..found.count].iter().flat_map(parts) {
		if DENSE.place(part).is_none() {
			break;
		}
		if sys::now_ns() >= until {
			return Ok(true);
		}
		match unseal::to_huge(arena, part, |blocks| DENSE.add(blocks)) {
			// There will be none for the next.
			Ok(false) | Err(Error::Refused(_)) => break,
			Ok(true) | Err(_) => {}
		}
	}
	Ok(false)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn neighbours_come_together_and_what_was_written_here_and_there_is_none() {
		let mut found = Found::new();
		let at = |block: usize, page: usize| block * HUGE + page * 4096;
		let holes = [Range::new(at(8, 7), at(8, 8))];
		let mut add = |from, to| found.add(Range::new(from, to), &holes);
		add(at(1, 300), at(3, 129));
		add(at(5, 0), at(5, 128));
		add(at(5, 400), at(5, 401));
		add(at(6, 0), at(6, 128));
		add(at(7, 0), at(10, 0));
		found.close(&holes);
		let expected = [(1, 4), (5, 6), (7, 8), (9, 10)].map(|(from, to)| Range::new(at(from, 0), at(to, 0)));
		assert_eq!(found.groups[..found.count], expected, "one of a hole is left out, not its neighbours");
		(0..PLACES).for_each(|i| found.add(Range::new(at(20 + 2 * i, 0), at(21 + 2 * i, 0)), &[]));
		found.close(&[]);
		assert_eq!(found.count, PLACES, "no room for more");
	}

	#[test]
	fn what_is_known_is_whole_blocks_and_makes_room_for_others() {
		let dense = Dense::new();
		assert!(!dense.has(Range::new(HUGE, 2 * HUGE)));
		dense.add(Range::new(HUGE, 3 * HUGE));
		assert!(dense.has(Range::new(2 * HUGE, 3 * HUGE)) && !dense.has(Range::new(2 * HUGE, 4 * HUGE)));
		// Nothing is mapped there.
		dense.look(&mut [Region::default(); 8]).unwrap();
		assert!(!dense.has(Range::new(HUGE, 2 * HUGE)));
		(1..=PLACES).for_each(|i| dense.add(Range::new(2 * i * HUGE, (2 * i + 1) * HUGE)));
		dense.add(Range::new((2 * PLACES + 1) * HUGE, (2 * PLACES + 2) * HUGE));
		assert!(dense.place(Range::new(0, HUGE)).is_none() && dense.place(Range::new(HUGE, 2 * HUGE)).is_some());
		assert!(dense.has(Range::new(2 * PLACES * HUGE, (2 * PLACES + 2) * HUGE)), "neighbours take one place");
	}
}
