//! What was lost and paid so far, what was had for it, and what the rest costs.

use crate::{outcome::Outcome, policy::Num, seal::generations::MAX_PARTS, sys::HUGE};

/// While nobody knows whether the seal will pay for itself, what was lost and paid is at most so many hundredths of
/// what plain forks alone would have cost. With parts as small as one likes no factor below 1.58 (Karp's e/(e-1)) would
/// ever buy all of it; a larger one pays a little more at once and loses less later.
const MOST_PAID: u64 = 170;
/// Nanoseconds that a fork waits for a part. The seal itself minds the time (`seal/mod.rs`): a part is no larger than
/// what can be had in it at the best.
const WAIT_NS: u64 = 17_000_000;
/// What sealing takes until some was sealed, in nanoseconds per MB (0.35 s per GB), and what the first part takes
/// besides, because it looks at everything.
const GUESS_NS_PER_MB: u64 = 350_000;
const FIRST_LOOK_NS: u64 = 1_000_000;
/// The first part is an eighth of the memory, within these bounds, or what can be had for the rent by then. No part is
/// smaller than the least.
const FIRST: (u64, u64) = (4 << 20, 8 << 20);
/// Each part takes a millisecond for itself, and is a mapping, which a fork copies in half a microsecond: no more than
/// so many but for the wait's sake, and for the wait's sake no more than so many ([`MAX_PARTS`]).
const PARTS: u64 = 4;
const MOST_PARTS: u64 = MAX_PARTS as u64 / 2;
/// How much more rent is due where only writes to ever the same pages would leave a gain, and after each regret.
const DOUBT: u64 = 4;

/// See the module.
pub struct Ledger {
	/// Nanoseconds lost in forks since there was last nothing bought; and what plain forks would have lost.
	pub rent: Num,
	/// See `rent`.
	pub plain_rent: Num,
	/// How often what was bought had to be given back, or could not be had.
	pub regrets: Num,
	/// Parts bought, and generations of them still to be sealed anew, one a fork.
	pub parts: Num,
	/// See `parts`.
	pub round: Num,
	/// 1 when there is no more to be had.
	complete: Num,
	/// What parts took since there was last nothing bought.
	spent: Num,
	/// What sealing took so far, in nanoseconds, for so many bytes; and nanoseconds per MB of the fastest part.
	paid: Num,
	paid_for: Num,
	fastest: Num,
	/// Bytes sealed, and of these, bytes that held no page before.
	pub sealed: Num,
	/// See `sealed`.
	pub filled: Num,
	/// The same of what a clone has of others, and all bytes of that.
	inherited_filled: Num,
	inherited: Num,
}

impl Ledger {
	pub const fn new() -> Ledger {
		Ledger {
			rent: Num::new(0),
			plain_rent: Num::new(0),
			regrets: Num::new(0),
			parts: Num::new(0),
			round: Num::new(0),
			complete: Num::new(0),
			spent: Num::new(0),
			paid: Num::new(0),
			paid_for: Num::new(0),
			fastest: Num::new(0),
			sealed: Num::new(0),
			filled: Num::new(0),
			inherited_filled: Num::new(0),
			inherited: Num::new(0),
		}
	}

	/// Nanoseconds that sealing a MB takes.
	fn rate(&self) -> u64 {
		self.paid.get().checked_div(self.paid_for.get() >> 20).unwrap_or(GUESS_NS_PER_MB).max(1)
	}

	/// What sealing so many bytes takes.
	pub fn price_of(&self, bytes: u64) -> u64 {
		((bytes >> 10) * self.rate()) >> 10
	}

	/// The rent due before the first part of so many bytes is bought; `doubtful`: where only a look at that part will
	/// tell whether it gains, so that it may have to be given back, which takes as long.
	pub fn due_at_first(&self, whole: u64, doubtful: bool) -> u64 {
		let first = self.price_of(self.least_first(whole));
		let given_back = if doubtful { first } else { 0 };
		let due = (first + given_back + FIRST_LOOK_NS) * 100 / (MOST_PAID - 100);
		match self.regrets.get().min(16) + u64::from(doubtful) {
			regrets if self.regrets.get() > 0 => {
				(self.price_of(whole) / DOUBT).saturating_mul(DOUBT.pow(regrets as u32)).max(due)
			}
			_ => due,
		}
	}

	/// Bytes of the first part when it is due; `doubtful` as above.
	pub fn first(&self, whole: u64, doubtful: bool) -> u64 {
		let least = self.least_first(whole);
		if doubtful || self.regrets.get() > 0 {
			return least;
		}
		let allowed = (self.rent.get() / 100 * (MOST_PAID - 100)).saturating_sub(FIRST_LOOK_NS);
		self.bytes_for(allowed).min(whole_blocks(whole / PARTS)).min(self.bearable(whole)).max(least)
	}

	fn least_first(&self, whole: u64) -> u64 {
		whole_blocks((whole / 8).clamp(FIRST.0, FIRST.1))
	}

	/// Bytes sealed for so many nanoseconds.
	fn bytes_for(&self, ns: u64) -> u64 {
		whole_blocks(((ns << 10) / self.rate()) << 10)
	}

	/// Bytes that a fork may wait for.
	fn bearable(&self, whole: u64) -> u64 {
		let rate = if self.fastest.get() == 0 { GUESS_NS_PER_MB } else { self.fastest.get() };
		whole_blocks((((WAIT_NS << 10) / rate) << 10).max(whole / MOST_PARTS).max(FIRST.0))
	}

	/// Bytes of the next part, if one is due.
	pub fn next(&self, whole: u64) -> Option<u64> {
		if self.is_complete() {
			return None;
		}
		let bearable = self.bearable(whole);
		if self.plain_rent.get() >= self.price_of(whole) {
			// It has paid for itself, had it been bought at once.
			return Some(bearable);
		}
		let paid = self.rent.get() + self.spent.get();
		let bytes = self.bytes_for((self.plain_rent.get() / 100 * MOST_PAID).saturating_sub(paid));
		let least = (whole / PARTS).max(FIRST.1).min(bearable);
		(bytes >= least).then(|| bytes.min(bearable))
	}

	/// Whether there is no more to be had.
	pub fn is_complete(&self) -> bool {
		self.complete.get() != 0
	}

	/// There is no more to be had.
	pub fn complete(&self) {
		self.complete.set(1);
	}

	/// Memory has come, and all of it is to be sealed, part by part; whether that can be.
	pub fn resume(&self) -> bool {
		self.complete.set(0);
		self.plain_rent.set(u64::MAX >> 8);
		self.parts.get() < MOST_PARTS
	}

	/// What seals took long ago counts less.
	pub fn forget_old_prices(&self, whole: u64) {
		if self.paid_for.get() > 4 * whole {
			self.paid.set(self.paid.get() / 2);
			self.paid_for.set(self.paid_for.get() / 2);
		}
	}

	/// A part was sealed, for the first time or anew.
	pub fn pay(&self, outcome: &Outcome) {
		// The first has looked at everything, which no other has to.
		let first = self.parts.get() == 0;
		let ns = if first { outcome.sealing_ns } else { outcome.elapsed_ns };
		self.paid.add(ns);
		self.paid_for.add(outcome.sealed);
		let rate = (ns / (outcome.sealed >> 20).max(1)).max(1);
		self.fastest.set(if self.fastest.get() == 0 { rate } else { rate.min(self.fastest.get()) });
		self.spent.add(outcome.elapsed_ns);
	}

	/// In a clone: what was bought is inherited.
	pub fn inherit(&self) {
		self.inherited.add(self.sealed.get());
		self.inherited_filled.add(self.filled.get());
	}

	/// Of so many bytes that were inherited, those that held no page before.
	pub fn filled_of(&self, bytes: u64) -> u64 {
		let (all, filled) = (self.inherited.get().max(1), self.inherited_filled.get());
		(u128::from(filled) * u128::from(bytes.min(all)) / u128::from(all)) as u64
	}

	/// So many bytes were inherited, and are this process's alone now.
	pub fn adopt(&self, bytes: u64) {
		let filled = self.filled_of(bytes);
		self.sealed.add(bytes);
		self.filled.add(filled);
		self.inherited.set(self.inherited.get().saturating_sub(bytes));
		self.inherited_filled.set(self.inherited_filled.get().saturating_sub(filled));
	}

	/// Nothing is bought, and no rent was paid.
	pub fn begin_anew(&self) {
		let numbers = [&self.rent, &self.plain_rent, &self.parts, &self.round, &self.complete, &self.spent];
		for number in numbers.into_iter().chain([&self.sealed, &self.filled]) {
			number.set(0);
		}
	}
}

fn whole_blocks(bytes: u64) -> u64 {
	bytes & !(HUGE as u64 - 1)
}
