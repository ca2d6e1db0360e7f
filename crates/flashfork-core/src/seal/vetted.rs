//! Memory that has been judged before, and may be sealed: what a seal in parts asks nobody again.
//!
//! What the program has asked for a mapping is in smaps alone, which walks the page tables of all memory: some 20 ms a
//! GB where pages are small, for each part. What has been judged stays as it was until a call of the program's gives
//! memory a property, or puts another mapping there ([`Vetted::forget`]), and the engine sees these calls since the
//! first part (`calls/hooks.rs`). Where a mapping is, and whether it is anonymous, readable and private, the list of
//! mappings says each time.

use super::offset;
use crate::{
	apart::Apart,
	proc::vma::{Kind, Vma},
	range::Range,
	snapshot,
	state::STATE,
	sys::HUGE,
};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

/// Most mappings that are remembered. The others are judged when nothing is left of these.
const PLACES: usize = 64;

pub(crate) static VETTED: Apart<Vetted> = Apart::new(Vetted::new());

/// See the module. Clones inherit it with their memory.
pub(crate) struct Vetted {
	count: AtomicUsize,
	/// [`crate::state::State::properties`] when they were judged.
	properties: AtomicU32,
	/// Begin, end, and advice ([`offset::advice_of`]).
	places: [[AtomicUsize; 3]; PLACES],
}

impl Vetted {
	const fn new() -> Vetted {
		// SAFETY: all of it is atomics, of which zeros are a value.
		unsafe { core::mem::zeroed() }
	}

	/// Whether something is remembered and still holds.
	pub fn holds(&self) -> bool {
		self.count.load(SeqCst) > 0 && self.properties.load(SeqCst) == STATE.properties() && !may_be_restored()
	}

	/// All memory is about to be judged.
	pub fn begin(&self) {
		self.count.store(0, SeqCst);
		self.properties.store(STATE.properties(), SeqCst);
	}

	/// Remembers a mapping that may be sealed.
	pub fn add(&self, v: &Vma) {
		let count = self.count.load(SeqCst);
		if v.kind != Kind::Anonymous || v.range.len() < HUGE || may_be_restored() {
			return;
		}
		let Some([start, end, advice]) = self.places.get(count) else { return };
		start.store(v.range.start, SeqCst);
		end.store(v.range.end, SeqCst);
		advice.store(usize::from(offset::advice_of(v)), SeqCst);
		self.count.store(count + 1, SeqCst);
	}

	/// Another mapping is there now, with properties of its own, or the one that was has other advice.
	pub fn forget(&self, range: Range) {
		for [start, end, _] in self.places.iter().take(self.count.load(SeqCst)) {
			if !Range::new(start.load(SeqCst), end.load(SeqCst)).intersect(range).is_empty() {
				end.store(start.load(SeqCst), SeqCst);
			}
		}
	}

	/// The advice of a mapping of which only maps is known, if it is one that was judged, or part of one, or has grown
	/// since: a mapping has the same properties everywhere.
	pub fn advice_of(&self, v: &Vma) -> Option<u8> {
		let known = self.places.iter().take(self.count.load(SeqCst));
		let mut found = known
			.filter(|[start, end, _]| !Range::new(start.load(SeqCst), end.load(SeqCst)).intersect(v.range).is_empty());
		found.next().map(|[.., advice]| advice.load(SeqCst) as u8)
	}
}

/// Whether there is a snapshot: a restore gives memory the properties that it had, and no call tells of it.
fn may_be_restored() -> bool {
	snapshot::current::own().iter().any(|range| !range.is_empty())
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_was_judged_is_known_until_memory_gets_a_property() {
		let vetted = Vetted::new();
		let vma = |start: usize, end: usize| Vma::new(Range::new(start * HUGE, end * HUGE), 0, b"", false);
		vetted.begin();
		assert!(!vetted.holds(), "nothing was judged");
		(0..2 * PLACES).for_each(|i| vetted.add(&vma(2 * i + 1, 2 * i + 2)));
		vetted.add(&Vma::new(Range::new(HUGE, 9 * HUGE), 7, b"/file", false));
		assert!(vetted.advice_of(&vma(1, 2)).is_some() && vetted.advice_of(&vma(0, 4)).is_some());
		assert!(vetted.advice_of(&vma(2, 3)).is_none(), "between two of them");
		assert!(vetted.advice_of(&vma(2 * PLACES + 1, 2 * PLACES + 2)).is_none(), "there was no place left");
		vetted.forget(Range::new(2 * HUGE - 4096, 3 * HUGE + 4096));
		assert!(vetted.advice_of(&vma(1, 2)).is_none() && vetted.advice_of(&vma(3, 4)).is_none());
		assert!(vetted.advice_of(&vma(5, 6)).is_some());
		assert!(vetted.holds());
		STATE.properties_change();
		assert!(!vetted.holds());
	}
}
