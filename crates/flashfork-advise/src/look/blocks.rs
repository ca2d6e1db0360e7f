//! Changed bytes, counted as blocks of several sizes.

use std::collections::BTreeMap;

/// A page as `/proc` counts them here.
pub(super) const PAGE: u64 = 4096;
/// The sizes of blocks that changes are counted in: pages, what a compressed or remote checkpoint moves, huge pages.
pub const GRANULES: [u64; 3] = [4 << 10, 64 << 10, 2 << 20];

/// How much changed between two moments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
	/// Bytes on pages that were there at the second moment.
	pub bytes: u64,
	/// Of these, bytes that differ from the first moment; what wasn't there then counts as zero.
	pub changed_bytes: u64,
	/// For each of [`GRANULES`]: blocks with a page at the second moment, and of these, with a changed byte.
	pub blocks: [(u64, u64); 3],
}

impl Change {
	/// The share of bytes changed, 0 to 1.
	pub fn byte_share(&self) -> f64 {
		share(self.bytes, self.changed_bytes)
	}

	/// The share of blocks changed, for each of [`GRANULES`].
	pub fn block_shares(&self) -> [f64; 3] {
		self.blocks.map(|(all, changed)| share(all, changed))
	}
}

fn share(all: u64, part: u64) -> f64 {
	if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

/// Adds up pages.
#[derive(Debug, Default)]
pub(super) struct Counter {
	bytes: u64,
	changed_bytes: u64,
	/// By block number, whether one of its pages changed.
	blocks: [BTreeMap<u64, bool>; 3],
}

impl Counter {
	/// The page at `address` is there, and differs in so many bytes.
	pub(super) fn page(&mut self, address: u64, changed: u64) {
		self.bytes += PAGE;
		self.changed_bytes += changed;
		for (granule, blocks) in GRANULES.into_iter().zip(&mut self.blocks) {
			*blocks.entry(address / granule).or_default() |= changed > 0;
		}
	}

	/// All pages added.
	pub(super) fn change(&self) -> Change {
		let blocks =
			self.blocks.each_ref().map(|blocks| (blocks.len() as u64, blocks.values().filter(|&&b| b).count() as u64));
		Change { bytes: self.bytes, changed_bytes: self.changed_bytes, blocks }
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn blocks_are_counted_once_and_by_address() {
		let mut counter = Counter::default();
		// Two pages of one 64 KB block, one of the next, one far away.
		for (page, changed) in [(0, 0), (1, 5), (16, 0), (1 << 20, 1)] {
			counter.page(page * PAGE, changed);
		}
		let change = counter.change();
		assert_eq!((change.bytes, change.changed_bytes), (4 * PAGE, 6));
		assert_eq!(change.blocks, [(4, 2), (3, 2), (2, 2)]);
		assert_eq!(change.block_shares(), [0.5, 2.0 / 3.0, 1.0]);
	}

	#[test]
	fn nothing_has_not_changed() {
		assert_eq!(Counter::default().change().byte_share(), 0.0);
		assert_eq!(Counter::default().change().block_shares(), [0.0; 3]);
	}
}
