//! Where the next call goes.

use super::{
	World,
	space::{arena_pages, heap, is_small},
	table::attr,
};
use std::ops::Range;

/// Pages in 2 MB.
pub const BLOCK: usize = 512;

impl World {
	/// A stretch made by one call.
	pub fn segment(&mut self) -> Option<Range<usize>> {
		let all = self.table.segments();
		(!all.is_empty()).then(|| all[self.rng.below(all.len())].clone())
	}

	/// Part of a stretch: often all of it, often an end, sometimes 2 MB blocks.
	pub fn part(&mut self, of: Range<usize>) -> Range<usize> {
		let len = of.len();
		match self.rng.below(10) {
			0..3 => of,
			3 => of.start..of.start + self.rng.between(1, len),
			4 => of.end - self.rng.between(1, len)..of.end,
			5..7 => {
				// 2 MB blocks, as near as there are.
				let first = (of.start + self.rng.below(len)) / BLOCK * BLOCK;
				let start = first.max(of.start);
				start..(first + BLOCK * self.rng.between(1, 3)).min(of.end).max(start + 1)
			}
			7..9 => {
				let start = of.start + self.rng.below(len);
				start..start + self.rng.between(1, (of.end - start).min(40))
			}
			_ => {
				let start = of.start + self.rng.below(len);
				start..start + self.rng.between(1, of.end - start)
			}
		}
	}

	/// A range to act on: mostly within one mapping, sometimes over its end.
	pub fn range(&mut self) -> Option<Range<usize>> {
		let segment = self.segment()?;
		let part = self.part(segment);
		if part.start >= heap() || !self.rng.chance(12) {
			return Some(part);
		}
		let more = self.rng.between(1, 3 * BLOCK);
		Some(part.start..(part.end + more).min(arena_pages()))
	}

	/// Part of one mapping all over which the same holds: the kernel has one VMA for it as far as a program can know.
	pub fn uniform(&mut self) -> Option<Range<usize>> {
		let segment = self.segment()?;
		let part = self.part(segment);
		let of_vma = |page: usize| self.table.attr(page) & !attr::OF_PAGE;
		let first = of_vma(part.start);
		let end = part.clone().find(|p| of_vma(*p) != first).unwrap_or(part.end);
		Some(part.start..end)
	}

	/// Unmapped pages of the arena, or none as large. Often right behind a mapping.
	pub fn gap(&mut self, len: usize) -> Option<Range<usize>> {
		let fits: Vec<_> = self.table.gaps().into_iter().filter(|g| g.len() >= len).collect();
		if fits.is_empty() {
			return None;
		}
		let gap = fits[self.rng.below(fits.len())].clone();
		let slack = gap.len() - len;
		let start = match self.rng.below(4) {
			0 | 1 => gap.start,
			2 => gap.start.next_multiple_of(BLOCK).min(gap.start + slack),
			_ => gap.start + self.rng.below(slack + 1),
		};
		Some(start..start + len)
	}

	/// Pages for a new mapping.
	pub fn size(&mut self) -> usize {
		let large: &[(usize, usize)] = &[(20, 0), (25, 1), (40, 2), (12, 3), (3, 4)];
		let small = &[(20, 0), (25, 1), (55, 2)];
		let kind = self.rng.weighted(if is_small() { small } else { large });
		match kind {
			0 => self.rng.between(1, 64),
			1 => self.rng.between(64, BLOCK),
			2 => self.rng.between(BLOCK, 4 * BLOCK),
			3 => self.rng.between(4 * BLOCK, 12 * BLOCK),
			_ => self.rng.between(12 * BLOCK, 32 * BLOCK),
		}
	}
}
