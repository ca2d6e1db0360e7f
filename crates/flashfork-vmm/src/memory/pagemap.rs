//! Which pages of a private file mapping are copies of this process's own: /proc/PID/pagemap, which every kernel has,
//! or `PAGEMAP_SCAN` (Linux 6.7, ioctl_pagemap_scan(2)), which skips what isn't there and can protect what it finds.

use linux_raw_sys::general::{
	PAGE_IS_FILE, PAGE_IS_PRESENT, PAGE_IS_SWAPPED, PAGE_IS_WRITTEN, PM_SCAN_CHECK_WPASYNC, PM_SCAN_WP_MATCHING,
	page_region as Region, pm_scan_arg as Ask,
};
use rustix::{
	ioctl::{Opcode, opcode::read_write},
	system::uname,
	thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
};
use std::{
	fs::File,
	io,
	ops::Range,
	os::{fd::AsRawFd, unix::fs::FileExt},
};

/// `PAGEMAP_SCAN` of linux/fs.h.
pub(crate) const SCAN: Opcode = read_write::<Ask>(b'f', 16);

pub(super) const PAGE: usize = 4096;

/// Runs asked for at a time.
const RUNS: usize = 512;

/// Bytes between runs that are looked at faster than by another call.
const NEAR: usize = 512 * PAGE;

/// Bytes that are looked at without the quick way where it tells of most.
const DENSE: usize = 512 << 20;

/// Entries read at a time, where there is nothing better.
const ENTRIES: usize = 2048;

/// Bits of an entry (Documentation/admin-guide/mm/pagemap.rst): in memory, swapped out, and a file's page.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// Which copies are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
	All,
	/// Those that were written since they were protected. All of the range is watched by a userfaultfd.
	Written,
	/// The same, and they are protected, beside the file's pages that are there: what has been protected the kernel
	/// passes over without a look at whose it is. So many at most.
	Protect(usize),
}

/// All that is there, and no file's: an inverted category must be absent.
const ALL: Ask = Ask {
	size: size_of::<Ask>() as u64,
	flags: 0,
	start: 0,
	end: 0,
	walk_end: 0,
	vec: 0,
	vec_len: RUNS as u64,
	max_pages: u64::MAX,
	category_inverted: PAGE_IS_FILE as u64,
	category_mask: PAGE_IS_FILE as u64,
	category_anyof_mask: (PAGE_IS_PRESENT | PAGE_IS_SWAPPED) as u64,
	return_mask: 0,
};

/// All that is there and was written since it was protected.
const WRITTEN: Ask =
	Ask { flags: PM_SCAN_CHECK_WPASYNC as u64, category_inverted: 0, category_mask: PAGE_IS_WRITTEN as u64, ..ALL };

/// The kernel's quick way, by one bit of each page: tells of holes, too.
const QUICK: Ask = Ask { max_pages: 1024, category_anyof_mask: 0, return_mask: PAGE_IS_WRITTEN as u64, ..WRITTEN };

/// The page map of this process (/proc/self/pagemap), kept open.
///
/// Who has it learns of each of the process's pages whether it is there and a file's, but not where in the host's
/// memory it lies.
#[derive(Debug)]
pub(super) struct Pagemap {
	file: File,
	scans: bool,
	/// [`QUICK`] misses nothing: up to Linux 6.8 it may take what is swapped out for protected.
	quick: bool,
}

impl Pagemap {
	/// Opens it, and tries whether this kernel has `PAGEMAP_SCAN`.
	pub(super) fn open() -> io::Result<Self> {
		let file = without_privilege(|| File::open("/proc/self/pagemap"))??;
		let quick = uname().release().to_string_lossy().split('.').map_while(|n| n.parse::<u32>().ok()).ge([6, 9]);
		let mut map = Self { file, scans: true, quick };
		let here = std::ptr::from_ref(&map) as usize & !(PAGE - 1);
		map.scans = map.copies(here..here + PAGE, Which::All, |_| ()).is_ok();
		Ok(map)
	}

	/// Whether it can tell what was written.
	pub(super) fn scans(&self) -> bool {
		self.scans
	}

	/// Calls `each` with the runs of such pages in `range`, by address and in order. Runs that touch may come apart.
	/// Gives where it has come to.
	pub(super) fn copies(
		&self,
		range: Range<usize>,
		which: Which,
		mut each: impl FnMut(Range<usize>),
	) -> io::Result<usize> {
		match which {
			Which::All if !self.scans => self.read(range, &mut each),
			Which::All => self.scan(range, ALL, &mut |run, _| each(run)),
			// Whose a page is shows in a structure of its own, far away: it is asked of the few alone that were
			// written, and the many are passed over fifteen times as fast.
			Which::Written => {
				let mut runs = Vec::new();
				let end = self.written(range, WRITTEN, &mut |run, _| runs.push(run))?;
				for run in runs {
					self.scan(run, ALL, &mut |run, _| each(run))?;
				}
				Ok(end)
			}
			// Both at once: a page of the file that is written afterwards is found again.
			Which::Protect(most) => {
				let flags = WRITTEN.flags | u64::from(PM_SCAN_WP_MATCHING);
				let ask = Ask { flags, max_pages: most as u64, return_mask: PAGE_IS_FILE.into(), ..WRITTEN };
				self.written(range, ask, &mut |run, file| {
					if !file {
						each(run);
					}
				})
			}
		}
	}

	/// As [`Self::scan`], near what the quick way tells of, or all where that is most.
	fn written(&self, range: Range<usize>, mut ask: Ask, each: Each<'_>) -> io::Result<usize> {
		let (mut at, mut reach, mut dense) = (range.start, DENSE / 32, !self.quick);
		while at < range.end {
			let mut near: Vec<Range<usize>> = Vec::new();
			let mut end = range.end.min(at.saturating_add(if dense { DENSE } else { reach }));
			if dense {
				near.push(at..end);
			} else {
				end = self.scan(at..end, QUICK, &mut |run, _| match near.last_mut() {
					Some(last) if run.start - last.end < NEAR => last.end = run.end,
					_ => near.push(run),
				})?;
			}
			dense = !self.quick || !dense && near.iter().map(Range::len).sum::<usize>() > (end - at) / 2;
			reach = if dense { DENSE / 32 } else { reach.saturating_mul(2) };
			for run in near {
				at = self.scan(run, ask, &mut |run, file| {
					ask.max_pages -= (run.len() / PAGE) as u64;
					each(run, file);
				})?;
				if ask.max_pages == 0 {
					return Ok(at);
				}
			}
			at = end;
		}
		Ok(at)
	}

	/// Gives where it ended.
	fn scan(&self, mut range: Range<usize>, mut ask: Ask, each: Each<'_>) -> io::Result<usize> {
		let mut runs = [Region { start: 0, end: 0, categories: 0 }; RUNS];
		ask.vec = runs.as_mut_ptr() as u64;
		while !range.is_empty() && ask.max_pages > 0 {
			(ask.start, ask.end, ask.walk_end) = (range.start as u64, range.end as u64, 0);
			// SAFETY: the kernel's structure, and room for as many runs as it says; both outlive the call. Protecting
			// changes nothing that memory holds.
			let found = match unsafe { libc::ioctl(self.file.as_raw_fd(), SCAN.into(), &raw mut ask) } {
				..0 => match io::Error::last_os_error() {
					e if e.kind() == io::ErrorKind::Interrupted => continue,
					e => return Err(e),
				},
				found => runs.get(..found as usize).ok_or(io::ErrorKind::InvalidData)?,
			};
			// `walk_end` stays behind once the kernel's own buffer was full (pagemap_scan in fs/proc/task_mmu.c): what
			// was reported is behind us all the same.
			let pages = found.iter().map(|run| run.end - run.start).sum::<u64>() / PAGE as u64;
			let walked = if found.len() < RUNS && pages < ask.max_pages { ask.end } else { ask.walk_end };
			let next = found.last().map_or(walked, |last| walked.max(last.end)) as usize;
			// A filter that answers in the kernel's place leaves it as it was.
			if ask.walk_end == 0 || next <= range.start {
				return Err(io::ErrorKind::InvalidData.into());
			}
			for run in found {
				each(run.start as usize..run.end as usize, run.categories & u64::from(PAGE_IS_FILE) != 0);
			}
			(range.start, ask.max_pages) = (next, ask.max_pages.saturating_sub(pages));
		}
		Ok(range.start)
	}

	/// Entry by entry.
	fn read(&self, mut range: Range<usize>, each: &mut dyn FnMut(Range<usize>)) -> io::Result<usize> {
		let mut bytes = [0; ENTRIES * 8];
		while !range.is_empty() {
			let count = (range.len() / PAGE).min(ENTRIES);
			let bytes = &mut bytes[..count * 8];
			self.file.read_exact_at(bytes, (range.start / PAGE * 8) as u64)?;
			let (entries, _) = bytes.as_chunks();
			let is_copy = |entry: &[u8; 8]| {
				let entry = u64::from_ne_bytes(*entry);
				entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0
			};
			let mut at = range.start;
			for run in entries.chunk_by(|one, next| is_copy(one) == is_copy(next)) {
				let end = at + run.len() * PAGE;
				if is_copy(&run[0]) {
					each(at..end);
				}
				at = end;
			}
			range.start = at;
		}
		Ok(range.end)
	}
}

/// Told runs of pages, and whether they are a file's where that was asked.
type Each<'a> = &'a mut dyn FnMut(Range<usize>, bool);

/// Does `what` without effective capabilities: a page map that is opened with `CAP_SYS_ADMIN` tells physical addresses,
/// whoever has it later.
fn without_privilege<T>(what: impl FnOnce() -> T) -> io::Result<T> {
	let before = capabilities(None)?;
	if before.effective.is_empty() {
		return Ok(what());
	}
	set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..before })?;
	let done = what();
	set_capabilities(None, before)?;
	Ok(done)
}

#[cfg(test)]
pub(super) mod tests {
	use super::*;
	use crate::memory::{self, Reservation, Watch};
	use flashfork_proto::shape::Pages;
	use rustix::mm::{MapFlags, ProtFlags};

	#[test]
	fn it_tells_nobody_where_memory_lies_and_takes_no_privilege_away() {
		let before = capabilities(None).unwrap();
		let map = Pagemap::open().unwrap();
		assert_eq!(capabilities(None).unwrap(), before);
		let here = Box::new([1_u8; 2 * PAGE]);
		let mut entry = [0; 8];
		map.file.read_exact_at(&mut entry, (here.as_ptr() as u64).div_ceil(PAGE as u64) * 8).unwrap();
		let entry = u64::from_ne_bytes(entry);
		assert_eq!((entry >> 63, entry & ((1 << 55) - 1)), (1, 0), "present, and nothing of where");
	}

	/// Its file has few pages: beside these, others may be mapped when one is read.
	pub fn mapped(pages: usize) -> Reservation {
		let file = memory::create("flashfork:test", (pages * PAGE) as u64, Pages::Small).unwrap();
		(0..pages).step_by(64).for_each(|page| {
			rustix::io::pwrite(&file, &[1; PAGE], (page * PAGE) as u64).unwrap();
		});
		let mut memory = Reservation::new(pages * PAGE).unwrap();
		memory.fill(ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE, &file).unwrap();
		memory
	}

	/// Both ways, of a mapping in which pages were written, read, left alone, and given up after they were written.
	#[test]
	fn copies_are_what_was_written_and_is_still_there_by_either_way() {
		const PAGES: usize = 5000;
		let memory = mapped(PAGES);
		let start = memory.start();
		let written = [0..3, 100..101, 2047..2049, 4999..5000];
		for page in written.iter().cloned().flatten().chain(200..300) {
			// SAFETY: in the mapping above, which nobody else knows.
			unsafe { start.add(page * PAGE).write(7) };
		}
		// SAFETY: as above.
		unsafe {
			assert_eq!(start.add(64 * PAGE).read() + start.add(3000 * PAGE).read(), 1);
			libc::madvise(start.add(200 * PAGE).cast(), 100 * PAGE, libc::MADV_DONTNEED);
		}
		let mut map = Pagemap::open().unwrap();
		for scans in [map.scans, false] {
			map.scans = scans;
			let mut found = Vec::new();
			let range = start as usize..start as usize + PAGES * PAGE;
			let page = |at: usize| (at - start as usize) / PAGE;
			map.copies(range, Which::All, |run| found.extend(page(run.start)..page(run.end))).unwrap();
			assert_eq!(found, written.iter().cloned().flatten().collect::<Vec<_>>(), "PAGEMAP_SCAN: {scans}");
		}
	}

	/// Beside pages that were read, dropped, and never there.
	#[test]
	fn the_quick_way_finds_what_the_other_does() {
		const END: usize = DENSE / PAGE + 20_000;
		let (watch, mut map, memory) = (Watch::find().unwrap(), Pagemap::open().unwrap(), mapped(END));
		if !watch.tracks() {
			return eprintln!("skipped: this kernel can't note writes");
		}
		let place = |page| memory.start().wrapping_add(page * PAGE);
		let range = place(0) as usize..place(END) as usize;
		// SAFETY: in the mapping above, which nobody else knows.
		let write = |page| unsafe { place(page).write_volatile(7) };
		watch.begin(&range).unwrap();
		for step in [1, 1700, 2500] {
			(0..9000).step_by(step).chain((9000 + step..END).step_by(16)).for_each(write);
			for page in (step..END).step_by(701) {
				// SAFETY: as above.
				unsafe {
					libc::madvise(place(page).cast(), PAGE, libc::MADV_DONTNEED);
					place(page & !1).read_volatile();
				}
			}
			let mut find = |quick, which| {
				let mut found = Vec::new();
				map.quick = quick;
				map.copies(range.clone(), which, |run| found.extend(run.step_by(PAGE))).unwrap();
				found
			};
			let exact = find(false, Which::Written);
			assert_eq!(find(true, Which::Written), exact);
			assert_eq!(find(true, Which::Protect(END)), exact);
			assert!(find(false, Which::Written).is_empty());
		}
	}
}
