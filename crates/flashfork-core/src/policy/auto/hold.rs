//! A pause after what failed.

use crate::policy::Num;

/// What failed is not tried again before so many forks, twice as many each time.
pub struct Hold {
	failures: Num,
	left: Num,
}

impl Hold {
	const FIRST: u64 = 4;
	const MOST_DOUBLINGS: u64 = 10;

	pub const fn new() -> Hold {
		Hold { failures: Num::new(0), left: Num::new(0) }
	}

	/// It has failed.
	pub fn begin(&self) {
		self.left.set(Self::FIRST << self.failures.get().min(Self::MOST_DOUBLINGS));
		self.failures.add(1);
	}

	/// Whether this fork has to do without. Counts it.
	pub fn holds(&self) -> bool {
		self.left.take_one()
	}

	/// Whether it has failed and not worked since.
	pub fn is_begun(&self) -> bool {
		self.failures.get() > 0
	}

	/// It has worked, or is no longer asked for.
	pub fn end(&self) {
		self.failures.set(0);
		self.left.set(0);
	}
}
