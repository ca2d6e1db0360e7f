//! Which pages are copies of the process's own, as far as that was found out; and when it is time to look which of them
//! are still written.

use crate::{
	range::Range,
	scratch,
	sys::{self, PAGE, Result},
};

/// As many pages may be copied in vain without a thought.
const FEW: usize = 192;
/// As many pages are copied in the time of one fault.
const FAULT: usize = 10;
/// Pages kept by who writes few at a time, and for each that is written: more are not worth their memory.
const KEPT: usize = 4096;
const KEPT_EACH: usize = 16;
/// Pages to a word of a map of bits.
const WORD: usize = usize::BITS as usize;

/// A bit for each page: whether a copy of it was found, which may be gone by now.
#[derive(Debug)]
pub(crate) struct Copies {
	bits: Range,
	/// How many were.
	kept: usize,
}

impl Copies {
	/// For so many pages, of which none is known to be a copy.
	pub fn none(pages: usize) -> Result<Copies> {
		let len = pages.div_ceil(8).next_multiple_of(PAGE);
		let at = scratch::far(len)?;
		Ok(Copies { bits: Range::new(at, at + len), kept: 0 })
	}

	/// Its own memory.
	pub fn own(&self) -> Range {
		self.bits
	}

	/// The word with a page's bit, and the bit.
	fn bit(&self, index: usize) -> (*mut usize, usize) {
		let word = self.bits.start + index / WORD * size_of::<usize>();
		assert!(word < self.bits.end);
		(word as *mut usize, 1 << (index % WORD))
	}

	pub fn has(&self, index: usize) -> bool {
		let (word, bit) = self.bit(index);
		// SAFETY: inside the mapping of our own that `none` has made.
		unsafe { word.read() & bit != 0 }
	}

	pub fn note(&mut self, index: usize) {
		if !self.has(index) {
			let (word, bit) = self.bit(index);
			// SAFETY: as above.
			unsafe { word.write(word.read() | bit) };
			self.kept += 1;
		}
	}

	/// They have been dropped.
	pub fn forget(&mut self, first: usize, end: usize) {
		for index in first..end {
			if self.has(index) {
				let (word, bit) = self.bit(index);
				// SAFETY: as above.
				unsafe { word.write(word.read() & !bit) };
				self.kept -= 1;
			}
		}
	}

	/// Where pages end, from the first of these on, that are alike in this.
	pub fn end_of_like(&self, first: usize, end: usize) -> usize {
		let known = self.has(first);
		(first..end).find(|index| self.has(*index) != known).unwrap_or(end)
	}
}

impl Drop for Copies {
	fn drop(&mut self) {
		// SAFETY: our own mapping. A failure would leak it, no more.
		let _ = unsafe { sys::munmap(self.bits.start, self.bits.len()) };
	}
}

/// What copying back pages costs that are not written any more.
#[derive(Debug, Default)]
pub(crate) struct Vain {
	/// Pages found the last time, and when all had been protected anew the last time.
	found: usize,
	least: Option<usize>,
	/// Pages copied in vain since.
	vain: usize,
}

impl Vain {
	/// Whether protecting all pages anew, and a fault for each that is written again, has become cheaper.
	pub fn is_dearer(&self) -> bool {
		self.found > FEW && self.vain > FAULT * self.found
	}

	/// So many pages were found, `anew` or not.
	pub fn found(&mut self, found: usize, anew: bool) {
		let least = *self.least.get_or_insert(found);
		self.vain += found.saturating_sub(least);
		if anew {
			(self.least, self.vain) = (Some(found), 0);
		}
		self.found = found;
	}

	/// Whether so many copies are more than they are worth.
	pub fn is_too_much(&self, copies: &Copies) -> bool {
		copies.kept > KEPT + KEPT_EACH * self.least.unwrap_or(0)
	}
}
