//! The cells of the experiment.

use crate::prelude::*;

/// Which sizes of memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Grid {
	/// The paper's: 0 to 316,228 bytes, half an order of magnitude apart.
	Paper,
	/// Today's: 1 MB to 256 MB.
	#[default]
	Modern,
}

/// The shares of the pages that the child writes.
pub const SHARES: [f64; 7] = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0];
/// Those of a quick run.
pub const QUICK_SHARES: [f64; 4] = [0.0, 0.1, 0.5, 0.9];
/// How many forks, for real against system time.
pub const FORKS: [u32; 7] = [1, 3, 10, 32, 100, 316, 1000];
/// The memory and share for that: the paper's largest heap, half of it written.
pub const FORKS_HEAP: (u64, f64) = (316_228, 0.5);
/// Bytes copied to find the copy rate: the paper's, which today lie in a cache, and what doesn't fit into one.
pub const COPIES: [u64; 2] = [316_228, 64 << 20];

impl Grid {
	/// Sizes in bytes, ascending.
	pub fn sizes(self, quick: bool) -> &'static [u64] {
		match (self, quick) {
			(Self::Paper, false) => &[0, 1000, 3162, 10_000, 31_622, 100_000, 316_228],
			(Self::Paper, true) => &[0, 10_000, 100_000, 316_228],
			(Self::Modern, false) => &[1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20],
			(Self::Modern, true) => &[1 << 20, 8 << 20, 64 << 20],
		}
	}

	/// How the memory is held; the paper's sizes are smaller than one huge page.
	pub fn methods(self) -> &'static [Method] {
		match self {
			Self::Paper => &[Method::Fork4k],
			Self::Modern => &[Method::Fork4k, Method::ForkThp, Method::Hugetlb],
		}
	}
}

/// Pages of 4 KB that `size` bytes lie on.
pub fn pages(size: u64) -> u64 {
	size.div_ceil(PAGE as u64)
}

/// How many pages a child writes that writes `share` of `size` bytes, one byte a page: as many as the paper's loop.
pub fn written(size: u64, share: f64) -> u64 {
	((size as f64 * share / PAGE as f64).ceil() as u64).min(pages(size))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn pages_are_counted_as_the_papers_loop_counts_them() {
		assert_eq!((pages(0), pages(1), pages(4096), pages(4097), pages(316_228)), (0, 1, 1, 2, 78));
		for (size, share, expected) in
			[(0, 1.0, 0), (316_228, 0.0, 0), (316_228, 0.5, 39), (316_228, 1.0, 78), (1000, 0.1, 1), (1 << 20, 0.1, 26)]
		{
			assert_eq!(written(size, share), expected, "{size} {share}");
		}
	}
}
