//! Compares memory with the model, byte for byte.

use super::{World, space::pages, table::attr};
use crate::content::{PAGE, WORDS, holds};
use flashfork_tests::Result;
use std::{fs::File, ops::Range, os::unix::fs::FileExt};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Depth {
	/// Every page that holds something, and one in eight of those that hold zeros: reading a page that was never
	/// touched maps the zero page, and memory that nobody touched must be tested as well.
	Written,
	All,
}

impl World {
	pub fn check_all(&mut self, depth: Depth) -> Result {
		self.check(0..pages(), depth)
	}

	pub fn check(&mut self, range: Range<usize>, depth: Depth) -> Result {
		let mut mem = None;
		for page in range {
			let a = self.table.attr(page);
			// What other processes may write, the model of a child can't know.
			if a & attr::MAPPED == 0 || a & attr::GUARD != 0 || a & attr::SHARED != 0 && self.depth > 0 {
				continue;
			}
			if depth == Depth::Written && self.table.content(page).is_zero() && self.look.below(8) != 0 {
				continue;
			}
			if self.readable(page) {
				let at = self.space.addr(page) as *const [u64; WORDS];
				// SAFETY: the page is mapped readable, and nobody writes to it during the comparison.
				self.check_page(page, unsafe { &*at })?;
			} else {
				let mut words = [0; WORDS];
				self.read_through_file(&mut mem, page, &mut words)?;
				self.check_page(page, &words)?;
			}
		}
		Ok(())
	}

	/// Compares what is shared with other processes: possible while they stand still.
	pub fn check_shared(&mut self) -> Result {
		for page in 0..pages() {
			if self.table.has(page, attr::SHARED) && self.readable(page) {
				let at = self.space.addr(page) as *const [u64; WORDS];
				// SAFETY: as above.
				self.check_page(page, unsafe { &*at })?;
			}
		}
		Ok(())
	}

	fn check_page(&mut self, page: usize, words: &[u64; WORDS]) -> Result {
		// On an emulated machine comparing is what takes the time. A wrong page shows in any word of it: seven pages in
		// eight are judged by three.
		if self.company && self.look.below(8) != 0 {
			let content = self.table.content(page);
			if [0, self.look.below(WORDS), WORDS - 1].iter().all(|i| words[*i] == content.word(*i)) {
				return Ok(());
			}
		}
		let Some((i, is, should)) = self.table.content(page).difference(words) else { return Ok(()) };
		if self.table.has(page, attr::LAZY) && holds(words, 0) {
			// MADV_FREE: the kernel has taken it.
			*self.table.content_mut(page) = self.table.content(page).discarded();
			self.table.clear(page, attr::LAZY);
			return Ok(());
		}
		Err(format!(
			"page {page} at {:#x}: word {i} is {is:#x}, should be {should:#x}{} ({:?}, attributes {:#x})",
			self.space.addr(page),
			if holds(words, 0) { "; all of the page is zero" } else { "" },
			self.table.content(page),
			self.table.attr(page),
		))
	}

	/// Reads a page that the program itself may not.
	fn read_through_file(&self, mem: &mut Option<File>, page: usize, words: &mut [u64; WORDS]) -> Result {
		let open = || File::open("/proc/thread-self/mem").map_err(|e| format!("/proc/thread-self/mem: {e}"));
		let mem = match mem {
			Some(file) => file,
			none => none.insert(open()?),
		};
		let mut bytes = [0; PAGE];
		mem.read_exact_at(&mut bytes, self.space.addr(page) as u64).map_err(|e| format!("page {page}: {e}"))?;
		for (word, eight) in words.iter_mut().zip(bytes.as_chunks().0) {
			*word = u64::from_ne_bytes(*eight);
		}
		Ok(())
	}
}
