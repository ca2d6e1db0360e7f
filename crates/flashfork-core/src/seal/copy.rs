//! Copy: brings a run's bytes into the memfd, on 2 MB pages where possible.
//!
//! The memfd's pages are made before the bytes arrive: one small page in each 2 MB, then `MADV_COLLAPSE` (Linux 6.1)
//! over a whole chunk, because each call waits for the other CPUs. Where nothing is known of the host's memory, one
//! block comes first and is timed: a hypervisor takes ten times as long for 2 MB that the guest has never used, or has
//! given back, as for 2 MB that it has just used. Small pages are those that the seal frees as it goes on.

use super::aside::STEP;
use crate::{
	range::Range,
	sys::{
		self, Errno, HUGE, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PAGE, PROT_NONE,
		PROT_READ, PROT_WRITE, Result,
	},
};
use linux_raw_sys::general as k;

/// Bytes prepared at a time: the extra memory a seal needs at its peak.
pub const CHUNK: usize = 64 << 20;

/// Where a fork waits. Each call that makes 2 MB pages waits for the other processors, but many pages at a time may all
/// turn out to be cold.
pub const SHORT_CHUNK: usize = 8 << 20;

/// The processor time, in nanoseconds, above which 2 MB are taken for cold: some 0.15 ms are usual, 5 ms if they are.
pub const DEAR: u64 = 1_000_000;

/// What came of [`Window::make_huge_timed`].
pub struct Made {
	/// Whether it took so long that small pages come cheaper.
	pub slow: bool,
	/// Bytes on 2 MB pages.
	pub len: usize,
}

/// A place in the address space through which pages of files are made and seen: shared, so it is closed before they are
/// sealed.
pub struct Window {
	mapping: Range,
	aligned: usize,
	/// The part of which file it shows.
	shown: (i32, u64, usize),
}

impl Window {
	/// Reserves addresses for one chunk; or, where there are too few (`RLIMIT_AS`), for one step, which gives no 2 MB
	/// pages.
	pub fn reserve() -> Result<Window> {
		let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
		// SAFETY: a fresh mapping that nothing may access.
		let map = |len| unsafe { sys::mmap(0, len, PROT_NONE, flags, -1, 0) }.map(|at| Range::new(at, at + len));
		let (mapping, align) = match map(CHUNK + HUGE) {
			Ok(mapping) => (mapping, HUGE),
			Err(_) => (map(STEP)?, PAGE),
		};
		Ok(Window { mapping, aligned: mapping.start.next_multiple_of(align), shown: (0, 0, 0) })
	}

	/// Whether a chunk fits, as 2 MB pages need.
	pub fn holds_chunk(&self) -> bool {
		self.mapping.end - self.aligned >= CHUNK
	}

	/// Where part of a file is shown, all of it; none when another part is, or another file.
	pub fn address(&self, fd: i32, offset: u64, len: usize) -> Option<usize> {
		let (shown, from, shown_len) = self.shown;
		let into = offset.checked_sub(from)? as usize;
		(shown == fd && into.checked_add(len)? <= shown_len).then(|| self.aligned + into)
	}

	/// Shows `len` bytes of a file at `offset`, or as much of that as fits.
	pub fn open(&mut self, fd: i32, offset: u64, len: usize) -> Result<()> {
		let len = len.min(self.mapping.end - self.aligned);
		// SAFETY: the window's addresses are ours.
		unsafe { self.show(fd, offset, len) }
	}

	/// Its addresses.
	pub fn range(&self) -> Range {
		self.mapping
	}

	/// Puts pages of whatever size into `len` bytes of the memfd at `offset`, at most a chunk.
	pub fn populate(&mut self, fd: i32, offset: u64, len: usize) -> Result<()> {
		if !self.holds_chunk() {
			return Err(Errno::ENOMEM);
		}
		// SAFETY: the window's addresses are ours.
		unsafe {
			self.show(fd, offset, len)?;
			sys::madvise(self.aligned, len, k::MADV_POPULATE_WRITE)
		}
	}

	/// Maps part of a file; not into clones, whose shared mappings would keep it from being sealed against writes.
	unsafe fn show(&mut self, fd: i32, offset: u64, len: usize) -> Result<()> {
		self.shown = (0, 0, 0);
		// SAFETY: the window's addresses are ours, and whatever was shown there before is done with.
		unsafe {
			sys::mmap(self.aligned, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset)?;
			sys::madvise(self.aligned, len, k::MADV_DONTFORK)?;
		}
		self.shown = (fd, offset, len);
		Ok(())
	}

	/// Puts 2 MB pages into `len` bytes of the memfd at `offset`, both multiples of 2 MB and `len` at most a chunk.
	pub fn make_huge(&mut self, fd: i32, offset: u64, len: usize) -> Result<()> {
		debug_assert!(len <= CHUNK && len.is_multiple_of(HUGE) && offset.is_multiple_of(HUGE as u64));
		// SAFETY: the window's addresses are ours.
		unsafe {
			self.show(fd, offset, len)?;
			collapse(self.aligned, len)
		}
	}

	/// The same, and whether it took long; with `try_one` only the first 2 MB if it does.
	pub fn make_huge_timed(&mut self, fd: i32, offset: u64, len: usize, try_one: bool) -> Result<Made> {
		debug_assert!(len <= CHUNK && len.is_multiple_of(HUGE) && offset.is_multiple_of(HUGE as u64));
		// SAFETY: the window's addresses are ours.
		unsafe { self.show(fd, offset, len)? };
		let first = if try_one { HUGE } else { len };
		let begin = sys::thread_cpu_ns();
		// SAFETY: the window's addresses are ours, and show the file.
		unsafe { collapse(self.aligned, first) }?;
		let slow = sys::thread_cpu_ns() - begin > DEAR * (first / HUGE) as u64;
		if !slow && first < len {
			// SAFETY: as above.
			unsafe { collapse(self.aligned + first, len - first) }?;
		}
		Ok(Made { slow, len: if slow { first } else { len } })
	}
}

/// Puts 2 MB pages under `len` bytes at `at`, both multiples of 2 MB.
///
/// # Safety
/// The addresses are the engine's own, and nobody else writes there meanwhile.
pub unsafe fn collapse(at: usize, len: usize) -> Result<()> {
	// SAFETY: the caller's: nobody reads or writes there but these two calls.
	unsafe {
		for page in (0..len).step_by(HUGE) {
			sys::madvise(at + page, PAGE, k::MADV_POPULATE_WRITE)?;
		}
		match sys::madvise(at, len, k::MADV_COLLAPSE) {
			// Transient: another CPU held a page (madvise(2)).
			Err(Errno::EAGAIN) => sys::madvise(at, len, k::MADV_COLLAPSE),
			other => other,
		}
	}
}

impl Drop for Window {
	fn drop(&mut self) {
		// SAFETY: the window's addresses are ours. A window that stays would keep the memfd from being sealed, which
		// the seal itself reports.
		let _ = unsafe { sys::munmap(self.mapping.start, self.mapping.len()) };
	}
}

/// Copies `range` to `offset` of a file.
pub fn copy(fd: i32, range: Range, offset: u64) -> Result<()> {
	sys::pwrite_all(fd, range.start, range.len(), offset)
}
