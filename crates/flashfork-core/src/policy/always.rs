//! The engine `seal`, and fork servers: sealed before the first fork, and anew when that would have paid. What is
//! written all over is looked for sooner ([`crate::seal::dense`]), and moved while forks have lost.

use super::{Act, Num, SEALED_FORK_NS};
use crate::outcome::Outcome;

/// What a seal is taken to cost until one was made, in nanoseconds.
const GUESS_NS: u64 = 50_000_000;

/// The same of the first look for what is written all over.
const SWEEP_NS: u64 = 20_000_000;

pub(super) struct Always {
	attempts: Num,
	/// Nanoseconds that forks took beyond the shortest, since the last seal.
	lost: Num,
	/// The same for looks for what is written all over.
	sweeps: Num,
	lost_since_sweep: Num,
	sweep_price: Num,
	/// The shortest fork of sealed memory.
	best: Num,
	/// Nanoseconds of the longest seal.
	price: Num,
}

impl Always {
	pub const fn new() -> Always {
		Always {
			attempts: Num::new(0),
			lost: Num::new(0),
			sweeps: Num::new(0),
			lost_since_sweep: Num::new(0),
			sweep_price: Num::new(SWEEP_NS),
			best: Num::new(SEALED_FORK_NS),
			price: Num::new(0),
		}
	}

	pub fn next(&self) -> Act {
		let (attempts, lost) = (self.attempts.get(), self.lost.get());
		let price = if self.price.get() == 0 { GUESS_NS } else { self.price.get() };
		let due = price.saturating_mul(1 << attempts.min(20));
		let sweep_due = self.sweep_price.get().saturating_mul(1 << self.sweeps.get().min(20));
		if attempts == 0 || lost >= due {
			Act::Seal
		} else if self.lost_since_sweep.get() >= sweep_due {
			Act::Dense(self.lost_since_sweep.get())
		} else {
			Act::Fork
		}
	}

	pub fn lost(&self) -> u64 {
		self.lost.get()
	}

	/// What is written all over was looked for. The next look comes later, unless there was more than time for it.
	pub fn swept(&self, outcome: Option<&Outcome>) {
		self.lost_since_sweep.set(0);
		if outcome.is_some_and(|outcome| outcome.late) {
			return;
		}
		self.sweeps.add(1);
		if let Some(outcome) = outcome {
			self.sweep_price.set(self.sweep_price.get().max(outcome.elapsed_ns));
		}
	}

	pub fn sealed(&self, outcome: Option<&Outcome>) {
		self.attempts.add(1);
		self.lost.set(0);
		// A seal looks, too.
		self.lost_since_sweep.set(0);
		if let Some(outcome) = outcome {
			self.price.set(self.price.get().max(outcome.elapsed_ns));
		}
	}

	pub fn note(&self, sealed: bool, ns: u64) {
		let best = if sealed { self.best.get().min(ns) } else { SEALED_FORK_NS };
		if sealed {
			self.best.set(best);
		}
		self.lost.add(ns.saturating_sub(best));
		self.lost_since_sweep.add(ns.saturating_sub(best));
	}

	pub fn forget(&self) {
		self.lost.set(0);
		self.lost_since_sweep.set(0);
	}
}

#[cfg(test)]
mod tests;
