//! What a cycle of sealed memory is going to take.

use crate::sys::{HUGE, PAGE};

/// What a page fault takes between two forks, in nanoseconds: of a page that is this process's alone again; and how
/// much more of a sealed one, which is copied. What the fork after takes longer for a page table that came into being.
/// Constants: nothing may be calibrated in a program's fork.
pub(super) const FAULT_NS: u64 = 700;
pub(super) const COPY_NS: u64 = 1_100;
const TABLE_NS: u64 = 2_000;

/// Hosts differ in what a page in such a table costs a fork: its plain forks tell, within these bounds (under THP they
/// tell of larger pages).
const PAGE_NS: (u64, u64) = (25, 100);

/// A clone's end takes as long as its beginning: both go through the same page tables.
pub(super) const THERE_AND_BACK: u64 = 2;

/// At most one byte in so many may exist twice: then no more than 1.5 times what a plain process has is taken, also
/// while a part is sealed anew or made anonymous again and the old one is still there.
pub(super) const ONE_IN: u64 = 3;

/// Memory that is sealed, or is going to be.
pub(super) struct Memory {
	/// All of it, in bytes.
	pub bytes: u64,
	/// What sealing all of it takes, in nanoseconds.
	pub price: u64,
	/// What a fork takes that has no page to copy, in nanoseconds.
	pub fork_ns: u64,
	/// See [`page_ns`].
	pub page_ns: u64,
}

/// Nanoseconds a fork takes for a page written since the seal, where plain forks took so long for so many bytes.
pub(super) fn page_ns(plain_fork: u64, bytes: u64) -> u64 {
	(plain_fork / (bytes / PAGE as u64).max(1)).clamp(PAGE_NS.0, PAGE_NS.1)
}

impl Memory {
	/// Average nanoseconds of a cycle that writes `again` pages written before, and `fresh` ones, sealing anew
	/// included.
	///
	/// What is written afresh makes each fork longer than the one before, by `g`. Sealed anew every n cycles a cycle
	/// takes g·n/2 + price/n more on average, at best √(2·g·price). Page tables, though, don't get more than there are;
	/// and sealing anew may come earlier, because too much exists twice.
	pub fn cycle(&self, again: u64, fresh: u64) -> u64 {
		let (pages, tables) = (self.bytes / PAGE as u64, self.bytes / HUGE as u64);
		let renewed = |growth: u64| (2 * u128::from(growth) * u128::from(self.price)).isqrt() as u64;
		let sparse = renewed(THERE_AND_BACK * fresh * (TABLE_NS + self.page_ns));
		let dense = THERE_AND_BACK * TABLE_NS * tables + renewed(THERE_AND_BACK * fresh * self.page_ns);
		let crowded = u128::from(self.price) * u128::from(fresh) / u128::from((pages / ONE_IN).max(1));
		let fork = self.fork_ns + TABLE_NS * again.min(tables) + self.page_ns * again;
		let faults = FAULT_NS * (again + fresh) + COPY_NS * fresh;
		THERE_AND_BACK * fork + faults + sparse.min(dense).max(crowded as u64)
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_is_written_again_costs_less_than_what_is_written_afresh() {
		let memory = Memory { bytes: 1 << 30, price: 450_000_000, fork_ns: 50_000, page_ns: 86 };
		assert_eq!(memory.cycle(0, 0), 100_000);
		let plain = 45_000_000;
		assert!(memory.cycle(0, 2_600) < plain, "1 % of 1 GB");
		assert!(memory.cycle(0, 26_000) > 3 * plain, "10 %: sealed anew every three cycles");
		assert!(memory.cycle(26_000, 0) < plain, "10 %, always the same");
		let huge = 700_000;
		assert!(memory.cycle(0, 26) > huge, "0.01 % is more than huge pages take");
	}

	#[test]
	fn a_page_costs_what_plain_forks_say() {
		assert_eq!(page_ns(22_500_000, 1 << 30), 85);
		assert_eq!(page_ns(360_000, 1 << 30), 25, "huge pages");
		assert_eq!(page_ns(u64::MAX, 0), 100);
	}
}
