//! What a seal says about itself.

use crate::{
	arena::{Arena, VmaRecord},
	outcome::{Error, Outcome},
	sys,
};

/// The result of one seal with its report. Dropping it gives the scratch memory back and lets signals through that have
/// waited since the seal began: a handler that jumped away in between would leave the memory behind.
///
/// Not to be kept over a fork: a clone has no such memory.
pub struct Sealed {
	arena: Option<&'static mut Arena>,
	mask: Option<u64>,
	/// What was done.
	pub outcome: Result<Outcome, Error>,
}

impl Sealed {
	/// Done, or not, with this arena.
	pub(crate) fn new(arena: &'static mut Arena, outcome: Result<Outcome, Error>) -> Sealed {
		Sealed { arena: Some(arena), mask: None, outcome }
	}

	/// Not even begun.
	pub(crate) fn not(error: Error) -> Sealed {
		Sealed { arena: None, mask: None, outcome: Err(error) }
	}

	/// Restores these signals at the end.
	pub(crate) fn with_signals(self, mask: u64) -> Sealed {
		let mut sealed = self;
		sealed.mask = Some(mask);
		sealed
	}

	/// One record for every VMA looked at.
	pub fn records(&self) -> &[VmaRecord] {
		self.arena.as_ref().map_or(&[], |a| &a.records[..a.record_count])
	}
}

impl Drop for Sealed {
	fn drop(&mut self) {
		if let Some(arena) = self.arena.take() {
			arena.unmap();
		}
		if let Some(mask) = self.mask {
			sys::restore_signals(mask);
		}
	}
}
