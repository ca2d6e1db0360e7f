//! Which pages of a range are populated: resident or swapped out, the zero page not among them.
//!
//! `PAGEMAP_SCAN` ([`super::scan`]) where there is one: it skips what is not mapped, so that a
//! sparse VMA of terabytes costs milliseconds. Older kernels: `/proc/self/pagemap`, 8 bytes for every page
//! (Documentation/admin-guide/mm/pagemap.rst).

use super::{
	scan::{self, Ask, Region},
	text,
};
use crate::{
	range::Range,
	sys::{self, Errno, PAGE, Result},
};

/// Which pages are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
	/// Every populated page of anonymous memory.
	Populated,
	/// In sealed memory: pages the process has written since, thus no longer the memfd's.
	Written,
}

/// A guard region (Linux 6.14); nothing sets it before.
const PM_GUARD: u64 = 1 << 58;
/// Mapped once, in this process, and nowhere else.
const PM_MMAP_EXCLUSIVE: u64 = 1 << 56;
const PM_PRESENT: u64 = 1 << 63;
const PM_SWAP: u64 = 1 << 62;
const PM_FILE: u64 = 1 << 61;

/// The largest VMA that is read page by page on kernels without `PAGEMAP_SCAN`: 2 GB of pagemap would take seconds.
pub const LARGEST_WITHOUT_SCAN: usize = 256 << 30;

/// An open `/proc/self/pagemap` and a buffer to read it through.
pub struct Pagemap<'a> {
	fd: i32,
	/// Whether the file is to be closed.
	own: bool,
	buf: &'a mut [Region],
	scan: bool,
}

impl<'a> Pagemap<'a> {
	/// Opens the page map of the calling process. It must not outlive a fork: the file stays the parent's.
	pub fn open(buf: &'a mut [Region]) -> Result<Pagemap<'a>> {
		let fd = text::open(c"/proc/thread-self/pagemap", sys::O_RDONLY)?;
		let mut map = Pagemap { fd, own: true, buf, scan: true };
		let first = Range::new(PAGE, 2 * PAGE);
		map.scan = match scan::for_each(fd, first, wanted(Which::Populated), &mut [Region::default()], |_| Ok(())) {
			Ok(()) => true,
			Err(Errno::ENOTTY | Errno::EINVAL) => false,
			Err(e) => {
				sys::close(fd);
				// Not ours to close again.
				core::mem::forget(map);
				return Err(e);
			}
		};
		Ok(map)
	}

	/// By the open page map of a process with `PAGEMAP_SCAN`, which stays open.
	pub fn of(fd: i32, buf: &'a mut [Region]) -> Pagemap<'a> {
		Pagemap { fd, own: false, buf, scan: true }
	}

	/// Closes the file in the end, if it was to stay open. Whether it was.
	pub fn keep(&mut self) -> bool {
		!core::mem::replace(&mut self.own, true)
	}

	/// Opens its own file, if it has none.
	pub fn reopen(&mut self) -> Result<()> {
		if !self.own {
			(self.fd, self.own) = (text::open(c"/proc/thread-self/pagemap", sys::O_RDONLY)?, true);
		}
		Ok(())
	}

	/// Whether the kernel has `PAGEMAP_SCAN`. Without it the zero page counts as populated.
	pub fn has_scan(&self) -> bool {
		self.scan
	}

	/// Calls `each` with the runs of pages asked for, in order, where the kernel has `PAGEMAP_SCAN`.
	pub fn scan(&mut self, range: Range, ask: Ask, each: impl FnMut(Region) -> Result<()>) -> Result<()> {
		scan::for_each(self.fd, range, ask, self.buf, each)
	}

	/// The same where few are expected: the kernel has no large buffer to make then.
	pub fn scan_for_few(&mut self, range: Range, ask: Ask, each: impl FnMut(Region) -> Result<()>) -> Result<()> {
		const FEW: usize = 32;
		let few = FEW.min(self.buf.len());
		scan::for_each(self.fd, range, ask, &mut self.buf[..few], each)
	}

	/// Whether there is one of the pages looked for, where the kernel has `PAGEMAP_SCAN`.
	pub fn has_any(&mut self, range: Range, which: Which) -> Result<bool> {
		// With room for one run the kernel looks no further than to the second.
		match scan::for_each(self.fd, range, wanted(which), &mut [Region::default()], |_| Err(Errno::ECANCELED)) {
			Err(Errno::ECANCELED) => Ok(true),
			looked => looked.map(|()| false),
		}
	}

	/// Calls `each` with the runs of pages looked for, in order. Runs that touch may come apart.
	pub fn for_each(&mut self, range: Range, which: Which, mut each: impl FnMut(Range)) -> Result<()> {
		self.for_each_told(range, which, |run, _| each(run))
	}

	/// The same, and whether the pages of a run are out of memory: swapped out, or guards, which the kernel counts
	/// among these. Without `PAGEMAP_SCAN`, which is older than guards, that is not told.
	pub fn for_each_told(&mut self, range: Range, which: Which, mut each: impl FnMut(Range, bool)) -> Result<()> {
		if !self.scan {
			return self.read(range, which, |run| each(run, false));
		}
		scan::for_each(self.fd, range, wanted(which), self.buf, |run| {
			each(run.range(), run.has(scan::SWAPPED));
			Ok(())
		})
	}

	fn read(&mut self, range: Range, which: Which, mut each: impl FnMut(Range)) -> Result<()> {
		// SAFETY: the regions are plain words, seen here as the bytes the file gives.
		let bytes =
			unsafe { core::slice::from_raw_parts_mut(self.buf.as_mut_ptr().cast::<u8>(), size_of_val(self.buf) & !7) };
		let mut at = range.start;
		while at < range.end {
			let wanted = ((range.end - at) / PAGE * 8).min(bytes.len());
			let n = sys::pread(self.fd, &mut bytes[..wanted], (at / PAGE * 8) as u64)?;
			if n == 0 {
				return Ok(());
			}
			let mut run = Range::new(at, at);
			for entry in bytes[..n].chunks_exact(8) {
				let e = u64::from_ne_bytes([
					entry[0], entry[1], entry[2], entry[3], entry[4], entry[5], entry[6], entry[7],
				]);
				let wanted = e & PM_SWAP != 0 || e & PM_PRESENT != 0 && (which == Which::Populated || e & PM_FILE == 0);
				if !wanted {
					if !run.is_empty() {
						each(run);
					}
					run.start = at + PAGE;
				}
				at += PAGE;
				run.end = at;
			}
			if !run.is_empty() {
				each(run);
			}
		}
		Ok(())
	}
}

/// Pages of the memfd are not written ones, the zero page is not populated.
fn wanted(which: Which) -> Ask {
	let none = match which {
		Which::Populated => scan::ZERO,
		Which::Written => scan::ZERO | scan::FILE,
	};
	Ask { none, any: scan::PRESENT | scan::SWAPPED, told: scan::PRESENT | scan::SWAPPED, ..Ask::default() }
}

impl Drop for Pagemap<'_> {
	fn drop(&mut self) {
		if self.own {
			sys::close(self.fd);
		}
	}
}

/// Calls `each` with the pages of a range that are in memory, and in the page table of this process alone.
pub fn for_each_exclusive(range: Range, mut each: impl FnMut(usize)) -> Result<()> {
	const WANTED: u64 = PM_PRESENT | PM_MMAP_EXCLUSIVE;
	for_each_entry(range, |page, entry| {
		if entry & WANTED == WANTED {
			each(page);
		}
		Ok(())
	})
}

/// Calls `each` with the runs of guard pages (`MADV_GUARD_INSTALL`) in a range; runs that touch may come apart.
pub fn for_each_guard(range: Range, mut each: impl FnMut(Range) -> Result<()>) -> Result<()> {
	for_each_entry(range, |page, entry| match entry & PM_GUARD {
		0 => Ok(()),
		_ => each(Range::new(page, page + PAGE)),
	})
}

/// Calls `each` with the pages of a range and what the page map says of them, stopping at the first error.
fn for_each_entry(range: Range, mut each: impl FnMut(usize, u64) -> Result<()>) -> Result<()> {
	let fd = text::open(c"/proc/thread-self/pagemap", sys::O_RDONLY)?;
	let mut entries = [[0; size_of::<u64>()]; 128];
	let mut at = range.start;
	let mut result = Ok(());
	while at < range.end && result.is_ok() {
		let most = (range.end - at).div_ceil(PAGE).min(entries.len());
		let bytes = entries[..most].as_flattened_mut();
		let read = match sys::pread(fd, bytes, (at / PAGE * size_of::<u64>()) as u64) {
			Ok(n) if n >= size_of::<u64>() => n / size_of::<u64>(),
			Ok(_) => {
				result = Err(Errno::EIO);
				break;
			}
			Err(Errno::EINTR) => continue,
			Err(e) => {
				result = Err(e);
				break;
			}
		};
		for entry in &entries[..read] {
			result = result.and_then(|()| each(at, u64::from_ne_bytes(*entry)));
			at += PAGE;
		}
	}
	sys::close(fd);
	result
}

#[cfg(test)]
mod tests;
