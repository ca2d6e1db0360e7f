//! When refills are dropped ([`crate::seal::refills`]), whatever the engine.
//!
//! It is due when two things are equal, by the rule of docs/POLICY.md: what forks have taken longer than they need to
//! since refills were last dropped, and what dropping and reading again take. What forks need is what the first ones
//! have shown after the last time, written pages included.

use super::{Num, SEALED_FORK_NS, forecast::THERE_AND_BACK};
use crate::{seal::refills::Dropped, sys::PAGE};

/// What dropping and reading again are taken to cost until it was done, in nanoseconds.
const GUESS_NS: u64 = 5_000_000;
/// What a page costs that is read again: a fault brings back sixteen.
const READ_NS: u64 = 110;
/// What a page can have cost a fork: it may have been long for another reason.
const FORK_NS: u64 = 100;
const MOST_DOUBTS: u64 = 20;

/// See the module. Nanoseconds.
pub(super) struct Refills {
	/// The shortest fork since refills were last dropped.
	best: Num,
	/// What forks and clones' ends lost since then, and what they gained beside the last one before.
	lost: Num,
	gained: Num,
	/// The latest fork, and the last one before refills were dropped.
	latest: Num,
	before: Num,
	/// What a fork can gain by what was dropped.
	most: Num,
	/// What dropping and reading again take.
	price: Num,
	/// Where to go on with what time has cut short, and what it has come to so far.
	at: Num,
	bytes: Num,
	spent: Num,
	/// How often in a row that has not paid.
	doubts: Num,
}

impl Refills {
	pub const fn new() -> Refills {
		Refills {
			best: Num::new(SEALED_FORK_NS),
			lost: Num::new(0),
			gained: Num::new(0),
			latest: Num::new(0),
			before: Num::new(0),
			most: Num::new(0),
			price: Num::new(GUESS_NS),
			at: Num::new(0),
			bytes: Num::new(0),
			spent: Num::new(0),
			doubts: Num::new(0),
		}
	}

	/// From which address on refills are to be dropped now, if they are.
	pub fn are_due(&self) -> Option<u64> {
		let due = self.at.get() != 0 || self.lost.get() >= self.price.get() << self.doubts.get();
		due.then(|| self.at.get())
	}

	/// A fork of sealed memory took `ns`.
	pub fn note(&self, ns: u64) {
		self.latest.set(ns);
		self.best.set(self.best.get().min(ns));
		self.lost.add(THERE_AND_BACK * (ns - self.best.get().min(ns)));
		self.gained.add(THERE_AND_BACK * self.before.get().saturating_sub(ns).min(self.most.get()));
	}

	/// They were dropped, or some of them.
	pub fn dropped(&self, dropped: &Dropped) {
		self.bytes.add(dropped.bytes);
		self.spent.add(dropped.ns);
		self.at.set(dropped.next as u64);
		if dropped.next != 0 {
			return;
		}
		let paid = self.before.get() == 0 || self.gained.get() >= self.price.get();
		let pages = self.bytes.get() / PAGE as u64;
		self.price.set(self.spent.get() + pages * READ_NS);
		self.most.set(pages * FORK_NS);
		self.begin(paid);
	}

	/// They could not be.
	pub fn put_off(&self) {
		self.begin(false);
	}

	fn begin(&self, paid: bool) {
		self.doubts.set(if paid { 0 } else { (self.doubts.get() + 1).min(MOST_DOUBTS) });
		self.before.set(self.latest.get());
		self.best.set(u64::MAX);
		for number in [&self.lost, &self.gained, &self.at, &self.bytes, &self.spent] {
			number.set(0);
		}
	}

	/// In a clone, which begins with the page tables of its parent.
	pub fn forget(&self) {
		self.begin(true);
		self.doubts.set(0);
		self.best.set(SEALED_FORK_NS);
		self.before.set(0);
		self.price.set(GUESS_NS);
	}
}

#[cfg(test)]
mod tests;
