//! Which way a region goes back: by dropping what was written, or by copying it back.
//!
//! Whoever copies faults less, whoever drops has less to look through. So whole cycles of either way, from the end of
//! one rollback to the end of the next, are timed for a while, by the thread's CPU time, and the cheaper way is stayed
//! with for longer and longer. A look at a way that turns out dearer ends when it has lost [`MOST_LOST`] cycles' time.

/// How a region goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
	/// The written pages are dropped, and all others with them (`MADV_DONTNEED`).
	Drop,
	/// The written pages are found and copied back.
	Copy,
}

impl Way {
	fn other(self) -> Way {
		match self {
			Way::Drop => Way::Copy,
			Way::Copy => Way::Drop,
		}
	}
}

/// Cycles whose median counts.
const KEPT: usize = 16;
/// Cycles of a look before it may end as too dear.
const LEAST: u32 = 5;
/// Cycles of a look before its first answer.
const LOOK: u32 = 24;
/// Cycles of a look at most: pages written now and then are all there only after a while.
const LONGEST_LOOK: u32 = 96;
/// What a look may lose, in cycles of the other way.
const MOST_LOST: u64 = 16;
/// For how many cycles a way is stayed with, at first and at most.
const STAY: u32 = 512;
const LONGEST_STAY: u32 = 8192;

/// See the module.
#[derive(Debug)]
pub struct Choice {
	way: Way,
	/// The last cycles, in nanoseconds, and how many there have been of this way.
	cycles: [u32; KEPT],
	count: u32,
	/// What a cycle of the other way cost when it was last looked at.
	other: Option<u32>,
	/// Cycles to stay with the way; 0 in a look.
	left: u32,
	/// For how long next time.
	stay: u32,
	/// What a cycle cost when it was decided to stay.
	decided: u32,
}

impl Choice {
	/// Begins with a look at dropping.
	pub const fn new() -> Choice {
		Choice { way: Way::Drop, cycles: [0; KEPT], count: 0, other: None, left: 0, stay: STAY, decided: 0 }
	}

	/// The way to go back now.
	pub fn way(&self) -> Way {
		self.way
	}

	/// Whether the next cycle is to be timed.
	pub fn times(&self) -> bool {
		self.left == 0 || self.way == Way::Copy || self.left <= KEPT as u32 + 1
	}

	/// A cycle has taken so many nanoseconds; none where that wasn't timed.
	pub fn cycle(&mut self, ns: Option<u64>) {
		if let Some(ns) = ns {
			self.cycles[self.count as usize % KEPT] = u32::try_from(ns).unwrap_or(u32::MAX);
			self.count += 1;
		}
		if self.left > 0 {
			self.left -= 1;
			// Of dropping it is not looked at: the cycles are not timed.
			let whole = self.way == Way::Copy && self.count > 0 && self.count.is_multiple_of(KEPT as u32);
			if self.left == 0 || whole && self.usual() / 2 > self.decided {
				self.look_at_the_other();
			}
			return;
		}
		if ns.is_some() {
			self.judge();
		}
	}

	/// In a look: whether it has shown enough.
	fn judge(&mut self) {
		let Some(other) = self.other else {
			if self.count >= LOOK {
				self.look_at_the_other();
			}
			return;
		};
		let usual = self.usual();
		// By what is usual: a cycle in which something else came up says nothing.
		let lost = u64::from(self.count) * u64::from(usual.saturating_sub(other));
		if self.count >= LOOK && usual < other {
			self.stay = STAY;
			self.stay_with(self.way, usual, other);
		} else if self.count >= LEAST && lost > MOST_LOST * u64::from(other) || self.count >= LONGEST_LOOK {
			self.stay_with(self.way.other(), other, usual);
			self.stay = (self.stay * 2).min(LONGEST_STAY);
		}
	}

	fn stay_with(&mut self, way: Way, cost: u32, other: u32) {
		if way != self.way {
			self.count = 0;
		}
		(self.way, self.decided, self.other, self.left) = (way, cost, Some(other), self.stay);
	}

	/// What this way costs now is known by the last cycles, if there were any.
	fn look_at_the_other(&mut self) {
		self.other = Some(if self.count as usize >= KEPT { self.usual() } else { self.decided });
		(self.way, self.count, self.left) = (self.way.other(), 0, 0);
	}

	/// Copying can't be had now, or would not be worth it for a while whatever it costs: after a fork, which copies the
	/// page tables of what is kept.
	pub fn drop_for_now(&mut self) {
		if self.way == Way::Copy {
			self.count = 0;
		}
		(self.way, self.left) = (Way::Drop, STAY);
	}

	fn usual(&self) -> u32 {
		let mut sorted = self.cycles;
		let sorted = &mut sorted[..KEPT.min(self.count as usize)];
		sorted.sort_unstable();
		sorted.get(sorted.len() / 2).copied().unwrap_or(0)
	}
}

#[cfg(test)]
mod tests;
