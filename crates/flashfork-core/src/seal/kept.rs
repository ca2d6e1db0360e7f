//! Old pages that stay until they have been compared once more ([`super::aside`]).

use super::remap::ATTEMPTS;
use crate::{
	range::Range,
	sys::{self, Errno, HUGE, PAGE, PROT_READ, PROT_WRITE, Result},
};
use core::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// Bytes that an unseal replaces at a time: a 2 MB page of anonymous memory moves in one piece or in 512.
pub const BLOCK: usize = HUGE;

/// A step whose old pages are kept.
#[derive(Clone, Copy)]
pub struct Kept {
	pub range: Range,
	pub prot: u32,
	/// Where the old pages are.
	pub old: usize,
	/// Where the bytes are that were compared with them last, writable.
	pub known: usize,
	pub pages: Pages,
}

/// Pages of a step: a bit for each.
#[derive(Clone, Copy, Default)]
pub struct Pages([u64; BLOCK / PAGE / 64]);

impl Pages {
	/// The pages of the first `len` bytes.
	pub fn first(len: usize) -> Pages {
		let mut pages = Pages::default();
		(0..len / PAGE).for_each(|page| pages.add(page));
		pages
	}

	/// Adds one, by its number.
	pub fn add(&mut self, page: usize) {
		if let Some(word) = self.0.get_mut(page / 64) {
			*word |= 1 << (page % 64);
		}
	}

	/// Calls `each` with where each of them begins in the step.
	pub fn for_each(&self, mut each: impl FnMut(usize)) {
		for (i, word) in self.0.iter().enumerate() {
			let mut left = *word;
			while left != 0 {
				each((64 * i + left.trailing_zeros() as usize) * PAGE);
				left &= left - 1;
			}
		}
	}
}

impl Kept {
	/// Takes over the bytes of a page that differ. What was written to the new page meanwhile is younger, and stays.
	pub fn follow(&self, at: usize) {
		let page = Range::new(self.range.start + at, self.range.start + at + PAGE);
		let writable = self.prot & PROT_WRITE != 0;
		if !writable && protect(page, PROT_READ | PROT_WRITE).is_err() {
			return;
		}
		for i in at..at + PAGE {
			// SAFETY: within the step, whose pages are mapped at all three places; others write here only through the
			// kernel.
			let [old, known, new] = [self.old, self.known, self.range.start]
				.map(|base| unsafe { AtomicU8::from_ptr((base + i) as *mut u8) });
			let (value, before) = (old.load(SeqCst), known.load(SeqCst));
			if value != before {
				// Where the new page is still the copy itself it has the byte now.
				known.store(value, SeqCst);
				if new.load(SeqCst) == before {
					let _ = new.compare_exchange(before, value, SeqCst, SeqCst);
				}
			}
		}
		if !writable {
			// Where memory is so short that this fails for a second, the page stays writable; its bytes are right.
			let _ = protect(page, self.prot);
		}
	}
}

fn protect(page: Range, prot: u32) -> Result<()> {
	for _ in 0..ATTEMPTS {
		// SAFETY: a page of the program's, which does not run.
		match unsafe { sys::mprotect(page.start, page.len(), prot) } {
			Ok(()) => return Ok(()),
			Err(_) => sys::pause_briefly(),
		}
	}
	Err(Errno::ENOMEM)
}
