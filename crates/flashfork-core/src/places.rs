//! A few address ranges that cover all that were ever added: what is kept in mind about memory that moves without our
//! knowing can only be too much.

use crate::range::Range;
use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const MOST: usize = 128;

/// See the module. Ranges are added by one thread at a time, or in a way in which a lost one does no harm.
pub struct Places {
	ranges: [[AtomicUsize; 2]; MOST],
}

impl Places {
	#[cfg(test)]
	pub const fn new() -> Places {
		Places { ranges: [const { [const { AtomicUsize::new(0) }; 2] }; MOST] }
	}

	fn get(&self, i: usize) -> Range {
		Range::new(self.ranges[i][0].load(SeqCst), self.ranges[i][1].load(SeqCst))
	}

	/// The end first and the start last, or the other way round: whoever looks meanwhile sees too much and never too
	/// little.
	fn set(&self, i: usize, to: Range) {
		let was = self.get(i);
		if was.is_empty() {
			self.ranges[i][0].store(to.start, SeqCst);
			self.ranges[i][1].store(to.end, SeqCst);
		} else {
			self.ranges[i][0].store(to.start.min(was.start), SeqCst);
			self.ranges[i][1].store(to.end.max(was.end), SeqCst);
		}
	}

	/// Adds a range: to one that it touches, else as a new one, else to the nearest.
	pub fn add(&self, range: Range) {
		if range.is_empty() {
			return;
		}
		let gap = |i| {
			let there = self.get(i);
			there.start.saturating_sub(range.end).max(range.start.saturating_sub(there.end))
		};
		let used = (0..MOST).filter(|i| !self.get(*i).is_empty()).min_by_key(|i| gap(*i));
		match (used, (0..MOST).find(|i| self.get(*i).is_empty())) {
			(Some(near), None) => self.set(near, range),
			(Some(near), Some(_)) if gap(near) == 0 => self.set(near, range),
			(_, Some(free)) => self.set(free, range),
			(None, None) => {}
		}
	}

	/// Forgets everything.
	pub fn clear(&self) {
		for [start, end] in &self.ranges {
			end.store(0, SeqCst);
			start.store(0, SeqCst);
		}
	}

	/// The first part of `range` that is covered.
	pub fn first_in(&self, range: Range) -> Option<Range> {
		(0..MOST).map(|i| self.get(i).intersect(range)).filter(|part| !part.is_empty()).min_by_key(|part| part.start)
	}

	/// Whether any of `range` is covered.
	pub fn touch(&self, range: Range) -> bool {
		self.first_in(range).is_some()
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn whatever_was_added_is_covered() {
		let places = Places::new();
		let page = |n: usize| Range::new(n * 4096, (n + 1) * 4096);
		assert!(!places.touch(Range::ALL));
		for n in (1..2000).step_by(7) {
			places.add(page(n));
		}
		assert!((1..2000).step_by(7).all(|n| places.touch(page(n)) && places.first_in(page(n)) == Some(page(n))));
		assert!(!places.touch(page(3000)));
		places.clear();
		assert!(!places.touch(Range::ALL));
	}

	#[test]
	fn neighbours_take_one_place() {
		let places = Places::new();
		for n in 0..1000 {
			places.add(Range::new(n * 4096, (n + 1) * 4096));
		}
		places.add(Range::new(1 << 40, 1 << 41));
		assert_eq!(places.first_in(Range::new(0, 1 << 39)), Some(Range::new(0, 1000 * 4096)));
		assert!(!places.touch(Range::new(1001 * 4096, 1 << 40)));
	}
}
