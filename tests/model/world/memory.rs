//! Reads and writes of the memory under test, each with its note in the model.

use super::{World, table::attr};
use crate::content::{PAGE, Tag, WORDS, fill};
use flashfork_tests::{
	Result,
	route::{Outcome, errno},
};
use std::{fs::File, ops::Range, os::unix::fs::FileExt};

impl World {
	pub fn writable(&self, page: usize) -> bool {
		let a = self.table.attr(page);
		// Shared memory belongs to the first process alone, and shared files to nobody: other models would not know.
		let own = a & attr::SHARED == 0 || a & attr::FILE == 0 && self.depth == 0;
		a & attr::WRITE != 0 && a & attr::GUARD == 0 && own
	}

	/// Whether any access the processor makes would succeed: on x86 what can be written or executed can be read.
	pub fn readable(&self, page: usize) -> bool {
		let a = self.table.attr(page);
		a & attr::PROT != 0 && a & attr::GUARD == 0
	}

	pub fn write_pages(&mut self, range: impl Iterator<Item = usize>) -> usize {
		let mut written = 0;
		for page in range {
			if self.writable(page) {
				let tag = self.tag();
				self.store(page, 0..WORDS, tag);
				written += 1;
			}
		}
		written
	}

	pub fn write_part(&mut self, page: usize, words: Range<usize>) {
		let tag = self.tag();
		// Of a page that may be dropped any moment the rest is not known: then all of it is written.
		if self.table.has(page, attr::LAZY) || !self.table.content_mut(page).write(words.start, words.end, tag) {
			return self.store(page, 0..WORDS, tag);
		}
		self.put(page, words, tag);
	}

	fn store(&mut self, page: usize, words: Range<usize>, tag: Tag) {
		self.put(page, words, tag);
		self.note_overwritten(page, tag);
	}

	pub fn note_overwritten(&mut self, page: usize, tag: Tag) {
		self.table.content_mut(page).overwrite(tag);
		self.table.clear(page, attr::LAZY | attr::FREED);
	}

	fn put(&mut self, page: usize, words: Range<usize>, tag: Tag) {
		let at = self.space.addr(page) as *mut u64;
		// SAFETY: the page is mapped writable under test, and nothing of Rust's lies there.
		let part = unsafe { std::slice::from_raw_parts_mut(at.add(words.start), words.len()) };
		fill(part, words.start, tag);
	}

	/// Writes pages as a debugger does: through `/proc/thread-self/mem`, which minds no protection of private memory.
	pub fn poke(&mut self, page: usize) -> Result {
		let tag = self.tag();
		let mut words = [0; WORDS];
		fill(&mut words, 0, tag);
		let mem = File::options()
			.write(true)
			.open("/proc/thread-self/mem")
			.map_err(|e| format!("/proc/thread-self/mem: {e}"))?;
		mem.write_all_at(bytes(&words), self.space.addr(page) as u64)
			.map_err(|e| format!("poke at page {page}: {e}"))?;
		self.note_overwritten(page, tag);
		Ok(())
	}

	/// Whether the kernel may read a byte there for the program: `write(2)` says EFAULT where not.
	pub fn probe_read(&self, page: usize) -> Outcome {
		let pipe = Pipe::new();
		// SAFETY: the kernel checks the address.
		let n = unsafe { libc::write(pipe.0[1], self.space.addr(page) as *const libc::c_void, 1) };
		if n < 0 { Err(errno()) } else { Ok(n as u64) }
	}

	/// Whether the kernel may write there for the program; it writes what is there already.
	pub fn probe_write(&self, page: usize) -> Outcome {
		let word = self.table.content(page).word(0);
		let pipe = Pipe::new();
		// SAFETY: our own word goes in; the kernel checks the address it comes out at.
		let n = unsafe {
			libc::write(pipe.0[1], (&raw const word).cast(), 8);
			libc::read(pipe.0[0], self.space.addr(page) as *mut libc::c_void, 8)
		};
		if n < 0 { Err(errno()) } else { Ok(n as u64) }
	}
}

/// A pipe of this process: where it is read, where it is written.
pub struct Pipe(pub [i32; 2]);

impl Pipe {
	pub fn new() -> Pipe {
		let mut ends = [0; 2];
		// SAFETY: the kernel writes two descriptors.
		assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0, "no pipe");
		Pipe(ends)
	}
}

impl Drop for Pipe {
	fn drop(&mut self) {
		for end in self.0 {
			// SAFETY: both ends are ours.
			unsafe { libc::close(end) };
		}
	}
}

pub fn bytes(words: &[u64; WORDS]) -> &[u8; PAGE] {
	// SAFETY: the same memory, every byte of it initialised.
	unsafe { &*(&raw const *words).cast() }
}
