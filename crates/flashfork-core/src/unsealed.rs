//! Where no memory is sealed, as the kernel has said: asking takes longer than a small discard.
//!
//! A seal, a region's, a restore or a move, which the engine makes or sees, brings sealed memory there, and has all
//! this forgotten when it is done. Seals keep out who asks (`State::inside`).

use crate::{
	range::Range,
	sys::{PAGE, Result},
};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst, fence};

const MOST: usize = 256;
/// The lower bits of a word, the length in pages; the first page's number lies above.
const LENGTH: u32 = 28;

/// See the module. Each range is one word, so that whoever reads it, or is forked meanwhile, has a whole one.
pub struct Unsealed {
	ranges: [AtomicU64; MOST],
	asked: AtomicU64,
	kept: AtomicU64,
}

impl Unsealed {
	#[cfg(test)]
	pub const fn new() -> Unsealed {
		Unsealed { ranges: [const { AtomicU64::new(0) }; MOST], asked: AtomicU64::new(0), kept: AtomicU64::new(0) }
	}

	/// Whether nothing in `range`, which is not empty, is sealed; no where that isn't known.
	pub fn covers(&self, range: Range) -> bool {
		self.ranges.iter().any(|word| {
			let word = word.load(SeqCst);
			let (start, pages) = ((word >> LENGTH) as usize * PAGE, word as usize & ((1 << LENGTH) - 1));
			start <= range.start && range.end <= start + pages * PAGE
		})
	}

	/// Has `ask` find where nothing is sealed, which is known from then on, unless it was to be forgotten meanwhile: a
	/// word of no length keeps its place.
	pub fn learn(&self, ask: impl FnOnce() -> Result<Range>) -> Result<()> {
		let place = &self.ranges[self.kept.load(SeqCst) as usize % MOST];
		let token = (self.asked.fetch_add(1, SeqCst) + 1) << LENGTH;
		let was = place.swap(token, SeqCst);
		let asked = ask();
		let (start, pages) = asked.map_or((0, 0), |range| (range.start / PAGE, range.len() / PAGE));
		let known = (start as u64) << LENGTH | pages.min((1 << LENGTH) - 1) as u64;
		let kept = place.compare_exchange(token, if pages > 0 { known } else { was }, SeqCst, SeqCst);
		if kept.is_ok() && pages > 0 {
			self.kept.fetch_add(1, SeqCst);
		}
		asked.map(drop)
	}

	/// Sealed memory may lie anywhere.
	pub fn forget(&self) {
		fence(SeqCst);
		// In a clone a write would copy the page.
		for word in self.ranges.iter().filter(|word| word.load(SeqCst) != 0) {
			word.store(0, SeqCst);
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_is_asked_while_sealed_memory_comes_is_not_kept() {
		let (unsealed, range) = (Unsealed::new(), Range::new(10 * PAGE, 20 * PAGE));
		unsealed.learn(|| Ok(range)).unwrap();
		assert!(unsealed.covers(range) && !unsealed.covers(Range::new(19 * PAGE, 21 * PAGE)));
		let asked = unsealed.learn(|| {
			unsealed.forget();
			Ok(range)
		});
		assert!(asked.is_ok() && !unsealed.covers(range));
	}
}
