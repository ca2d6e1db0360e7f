//! Reads and writes, dense and sparse, by the program, by the kernel for it, and by a debugger.

use crate::{
	content::{PAGE, WORDS},
	journal::Expect,
	template::{TEMPLATE_PAGES, Template, tag},
	world::{World, check::Depth, choose::BLOCK, table::attr},
};
use flashfork_tests::{Result, route::errno};

/// Pages a child may write densely at once: every clone pays for its own.
const CHILD_DENSE: usize = 2 * BLOCK;

impl World {
	pub fn step_write(&mut self) -> Result {
		let Some(range) = self.range() else { return Ok(()) };
		match self.rng.below(10) {
			0..4 => {
				let most = if self.depth > 0 { CHILD_DENSE } else { usize::MAX };
				let end = range.end.min(range.start.saturating_add(most));
				self.journal.note(&format!("fill {range:?} to {end}"))?;
				self.write_pages(range.start..end);
			}
			4 => {
				// Around three quarters of each block: what the engine's plan decides by.
				let share = self.rng.pick(&[50, 70, 74, 76, 80, 95]);
				self.journal.note(&format!("fill {share}% of {range:?}"))?;
				let end = if self.depth > 0 { range.end.min(range.start + CHILD_DENSE) } else { range.end };
				for page in range.start..end {
					if self.rng.chance(share) {
						self.write_pages(page..page + 1);
					}
				}
			}
			5..7 => {
				self.journal.note(&format!("write pages of {range:?}"))?;
				for _ in 0..self.rng.between(1, 20) {
					let page = range.start + self.rng.below(range.len());
					self.write_pages(page..page + 1);
				}
			}
			7 => return self.read_from_file(range),
			8 => {
				let page = range.start + self.rng.below(range.len());
				let a = self.table.attr(page);
				if a & attr::MAPPED != 0 && a & (attr::SHARED | attr::GUARD) == 0 {
					self.journal.note(&format!("poke {page}"))?;
					self.poke(page)?;
				}
			}
			_ => {
				self.journal.note(&format!("write words of {range:?}"))?;
				for _ in 0..self.rng.between(1, 30) {
					let page = range.start + self.rng.below(range.len());
					let start = self.rng.below(WORDS);
					let end = self.rng.between(start + 1, WORDS);
					if self.writable(page) {
						self.write_part(page, start..end);
					}
				}
			}
		}
		Ok(())
	}

	/// The kernel writes for the program: `pread(2)`.
	fn read_from_file(&mut self, range: std::ops::Range<usize>) -> Result {
		let end = range.end.min(range.start + 64);
		let mut pages = range.start..end;
		let end = pages.find(|p| !self.writable(*p)).unwrap_or(end);
		let pages = range.start..end;
		if pages.is_empty() {
			return Ok(());
		}
		let file_page = self.rng.below(TEMPLATE_PAGES - pages.len());
		let len = pages.len() * PAGE;
		let (space, fd) = (self.space, self.template.fd());
		let text = format!("pread into {pages:?} from {file_page}");
		self.journal.call(&text, Expect::Exactly(Ok(len as u64)), || {
			// SAFETY: the pages are writable and under test.
			let n = unsafe { libc::pread(fd, space.addr(pages.start) as *mut _, len, Template::offset(file_page)) };
			if n < 0 { Err(errno()) } else { Ok(n as u64) }
		})?;
		for (i, page) in pages.enumerate() {
			self.note_overwritten(page, tag(file_page + i));
		}
		Ok(())
	}

	pub fn step_read(&mut self) -> Result {
		if self.rng.chance(20) {
			self.journal.note("compare everything")?;
			return self.check_all(Depth::Written);
		}
		let Some(range) = self.range() else { return Ok(()) };
		self.journal.note(&format!("compare {range:?}"))?;
		self.check(range, Depth::All)
	}

	pub fn step_probe(&mut self) -> Result {
		let Some(range) = self.range() else { return Ok(()) };
		let page = range.start + self.rng.below(range.len());
		if self.rng.chance(50) {
			let expected = if self.readable(page) { Ok(1) } else { Err(libc::EFAULT) };
			let outcome = self.probe_read(page);
			return self.journal.call(&format!("probe {page}"), Expect::Exactly(expected), || outcome).map(drop);
		}
		if self.table.has(page, attr::SHARED) {
			return Ok(());
		}
		let expected = if self.writable(page) { Ok(8) } else { Err(libc::EFAULT) };
		// What is in a page that may be dropped at any moment nobody knows, so it can't be written again.
		let outcome = if self.table.has(page, attr::LAZY) { expected } else { self.probe_write(page) };
		self.journal.call(&format!("probe write {page}"), Expect::Exactly(expected), || outcome).map(drop)
	}
}
