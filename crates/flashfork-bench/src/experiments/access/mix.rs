//! How the memory is gone through after the fork.

use crate::prelude::*;

/// Bytes read or written at a time, as in the paper: through a buffer of this size.
pub const BLOCK: usize = 32 << 20;
/// The five mixes: percent of each block that is read, the rest is written.
pub const MIXES: [u32; 5] = [100, 75, 50, 25, 0];
/// The parts of the memory that are gone through, in percent.
pub const SHARES: [u32; 5] = [0, 25, 50, 75, 100];
/// Those of a quick run.
pub const QUICK_SHARES: [u32; 3] = [0, 50, 100];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walk {
	/// Percent of the memory, from its beginning.
	pub share: u32,
	/// Percent of each block that is read.
	pub read: u32,
}

/// Part of the memory copied from or to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Piece {
	pub begin: usize,
	pub end: usize,
	pub write: bool,
}

impl Walk {
	/// The pieces in their order: each block's part that is read, then the one that is written.
	pub fn pieces(self, bytes: usize) -> impl Iterator<Item = Piece> {
		let until = bytes / 100 * self.share as usize + bytes % 100 * self.share as usize / 100;
		(0..until.div_ceil(BLOCK)).flat_map(move |block| {
			let (begin, end) = (block * BLOCK, ((block + 1) * BLOCK).min(until));
			// Whole pages, so that no page is read and written.
			let between = begin + (end - begin) / 100 * self.read as usize / 4096 * 4096;
			let between = if self.read == 100 { end } else { between };
			let pieces = [Piece { begin, end: between, write: false }, Piece { begin: between, end, write: true }];
			pieces.into_iter().filter(|piece| piece.begin < piece.end)
		})
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	fn bytes(walk: Walk, bytes: usize, write: bool) -> usize {
		walk.pieces(bytes).filter(|piece| piece.write == write).map(|piece| piece.end - piece.begin).sum()
	}

	#[test]
	fn pieces_cover_their_share_without_gaps_in_the_right_mix() {
		let all = 96 << 20;
		for share in SHARES {
			for read in MIXES {
				let walk = Walk { share, read };
				let mut at = 0;
				for piece in walk.pieces(all) {
					assert_eq!(piece.begin, at);
					at = piece.end;
				}
				assert_eq!(at, all / 100 * share as usize + all % 100 * share as usize / 100);
				let expected = at as f64 * f64::from(read) / 100.0;
				let off = bytes(walk, all, false) as f64 - expected;
				assert!(off.abs() <= 3.0 * 8192.0, "{walk:?}: {off}");
			}
		}
	}

	#[test]
	fn nothing_and_everything() {
		assert_eq!(Walk { share: 0, read: 50 }.pieces(1 << 30).count(), 0);
		assert_eq!(bytes(Walk { share: 100, read: 0 }, 10_000_000, true), 10_000_000);
		assert_eq!(bytes(Walk { share: 100, read: 100 }, 10_000_000, true), 0);
	}
}
