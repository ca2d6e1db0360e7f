//! Address ranges.

use crate::sys::PAGE;

/// A half-open range of addresses `start..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
	/// First address.
	pub start: usize,
	/// One past the last address.
	pub end: usize,
}

impl Range {
	/// Every address.
	pub const ALL: Range = Range { start: 0, end: usize::MAX };

	/// The range `start..end`; empty when `end <= start`.
	pub const fn new(start: usize, end: usize) -> Range {
		Range { start, end }
	}

	/// The pages that `len` bytes at `addr` touch.
	pub const fn pages_of(addr: usize, len: usize) -> Range {
		let end = addr.saturating_add(len).saturating_add(PAGE - 1);
		Range { start: addr & !(PAGE - 1), end: end & !(PAGE - 1) }
	}

	/// Length in bytes.
	pub const fn len(&self) -> usize {
		self.end.saturating_sub(self.start)
	}

	/// Whether an address lies in it.
	pub const fn contains(&self, at: usize) -> bool {
		self.start <= at && at < self.end
	}

	/// Whether nothing is in it.
	pub const fn is_empty(&self) -> bool {
		self.end <= self.start
	}

	/// The part in both ranges; empty when there is none.
	pub fn intersect(&self, other: Range) -> Range {
		Range::new(self.start.max(other.start), self.end.min(other.end))
	}
}

/// The parts of `whole` that no range of `holes` covers, in order of address. `holes` may overlap and be in any order.
pub fn subtract(whole: Range, holes: &[Range], mut each: impl FnMut(Range)) {
	let mut at = whole.start;
	while at < whole.end {
		// The hole that covers `at`, or the nearest one behind it, ends this part.
		let mut next = Range::new(whole.end, whole.end);
		for h in holes.iter().filter(|h| h.end > at && h.start < whole.end) {
			if h.start <= at {
				next = Range::new(at, h.end);
				break;
			}
			if h.start < next.start {
				next = *h;
			}
		}
		if next.start > at {
			each(Range::new(at, next.start));
		}
		at = next.end.max(next.start);
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	fn parts(whole: (usize, usize), holes: &[(usize, usize)]) -> Vec<(usize, usize)> {
		let holes: Vec<Range> = holes.iter().map(|h| Range::new(h.0, h.1)).collect();
		let mut out = Vec::new();
		subtract(Range::new(whole.0, whole.1), &holes, |r| out.push((r.start, r.end)));
		out
	}

	#[test]
	fn subtract_leaves_what_no_hole_covers() {
		assert_eq!(parts((10, 20), &[]), [(10, 20)]);
		assert_eq!(parts((10, 20), &[(12, 14)]), [(10, 12), (14, 20)]);
		assert_eq!(parts((10, 20), &[(0, 12), (18, 30)]), [(12, 18)]);
		assert_eq!(parts((10, 20), &[(15, 16), (11, 12)]), [(10, 11), (12, 15), (16, 20)]);
		assert_eq!(parts((10, 20), &[(11, 15), (13, 18)]), [(10, 11), (18, 20)]);
		assert_eq!(parts((10, 20), &[(5, 25)]), []);
		assert_eq!(parts((10, 20), &[(20, 25), (0, 10)]), [(10, 20)]);
	}

	#[test]
	fn pages_of_rounds_outwards_and_never_wraps() {
		assert_eq!(Range::pages_of(4097, 1), Range::new(4096, 8192));
		assert_eq!(Range::pages_of(4096, 0).len(), 0);
		assert!(Range::pages_of(usize::MAX - 5, 100).end > usize::MAX - PAGE);
	}
}
