//! What was written to a region, found and copied back.
//!
//! A page that was touched has an entry in the page table. It is either the memfd's, which was read, and is protected
//! when it is found, by the region's [`super::watch`]; or it is a copy of the process's own, which was written. Such a
//! page is copied back and stays writable: one written again and again costs no fault any more. Pages written once upon
//! a time are copied in vain, so when that has become dearer than faults all are protected anew, and those that differ
//! copied. Where nothing was touched there is no page table to look through.
//!
//! Always true: a protected page holds what it held at the seal. So pages are protected first and looked at then, never
//! the other way round, because another process may write at any time.
//!
//! Copying writes to memory. What would make that a signal is seen to first: each time the kernel is asked how the
//! region is mapped now. Whatever can't be done is an error, on which the caller drops everything, which is right at
//! any time.

use super::{
	copies::{Copies, Vain},
	watch::WATCHED,
};
use crate::{
	proc::{
		lookup::{self, Wanted},
		scan::{self, Ask, FILE, HUGE_PAGE, PRESENT, Region, SWAPPED, WRITTEN, ZERO},
		text,
		vma::Vma,
	},
	range::Range,
	state::STATE,
	sys::{self, Errno, PAGE, PROT_READ, PROT_WRITE, Result, Status},
};
use core::arch::{
	asm,
	x86_64::{__cpuid, __cpuid_count},
};
use linux_raw_sys::general as k;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Find {
	/// Pages that are not protected. A 2 MB page is the memfd's, and left out.
	Touched,
	/// The same, and protects them.
	Protecting,
	/// Pages that are not the memfd's, protected or not. This takes ten times as long.
	Own,
}

/// A region whose written pages can be told.
#[derive(Debug)]
pub(super) struct Written {
	range: Range,
	/// Where the memfd is mapped for reading.
	source: Range,
	file: Status,
	copies: Copies,
	has_keys: bool,
	vain: Vain,
}

impl Written {
	/// For a region that holds no copy: all has just been dropped. Nothing is protected at first; before Linux 6.10 a
	/// protection may have outlived the watch that it was for, but not the page.
	pub fn begin(range: Range, source: Range, file: Status) -> Result<Written> {
		let copies = Copies::none(range.len() / PAGE)?;
		let new = Written { range, source, file, copies, has_keys: has_protection_keys(), vain: Vain::default() };
		// Where that fails the map goes with it.
		WATCHED.begin(range)?;
		Ok(new)
	}

	/// Takes a part back to what it held at the seal. The part is whole pages.
	pub fn take_back(&mut self, part: Range) -> Result<()> {
		if !WATCHED.watches(self.range) {
			return Err(Errno::ESTALE);
		}
		self.is_mapped_as_before()?;
		let fd = text::open(c"/proc/thread-self/pagemap", sys::O_RDONLY)?;
		let done = self.with_all_keys(|this| this.copy_back(fd, part));
		sys::close(fd);
		if done == Err(Errno::EPERM) {
			// Not registered: this is a clone, and the descriptor its parent's watch.
			WATCHED.leave(self.range);
		}
		done
	}

	/// Whether all the region is mapped privately from its memfd and may be written, and the memfd read beside it.
	fn is_mapped_as_before(&self) -> Result<()> {
		const READ_WRITE: u32 = PROT_READ | PROT_WRITE;
		let mut reached = self.range.start;
		let mut readable = false;
		let mut told = |v: &Vma| {
			let is_file = v.inode == self.file.inode && sys::device(v.device) == self.file.device && !v.shared;
			// Where the file's first byte would be.
			let first = v.range.start.wrapping_sub(v.offset as usize);
			if is_file && first == self.range.start && v.prot & READ_WRITE == READ_WRITE && v.range.start <= reached {
				reached = reached.max(v.range.end);
			}
			if is_file && first == self.source.start && v.prot & PROT_READ != 0 && v.range.end >= self.source.end {
				readable = v.range.start <= self.source.start;
			}
			Some(v.range.end)
		};
		let all = Range::new(self.range.start, self.source.end);
		if lookup::ask(all, Wanted::All, &mut [], Some(&mut told), &mut |_, _| Ok(()))?.is_none() {
			lookup::for_each(all, Wanted::All, |v| {
				told(v);
				Ok(())
			})?;
		}
		if reached >= self.range.end && readable { Ok(()) } else { Err(Errno::EFAULT) }
	}

	fn copy_back(&mut self, fd: i32, part: Range) -> Result<()> {
		let all = part == self.range;
		let anew = all && self.vain.is_dearer();
		let find = if anew { Find::Protecting } else { Find::Touched };
		let mut found = 0;
		for_each_run::<256>(fd, part, find, |run| {
			let mut rest = run.range();
			while !rest.is_empty() {
				let first = self.index(rest.start);
				let known = self.copies.has(first);
				let alike = self.copies.end_of_like(first, self.index(rest.end)) - first;
				let piece = Range::new(rest.start, rest.start + alike * PAGE);
				rest.start = piece.end;
				found += match (known, run.has(SWAPPED)) {
					(true, false) => self.put_back(piece, anew),
					(true, true) => discard(piece).map(|()| 0)?,
					(false, _) => self.look_at(fd, piece)?,
				};
			}
			Ok(())
		})?;
		if !all {
			return Ok(());
		}
		self.vain.found(found, anew);
		if self.vain.is_too_much(&self.copies) { Err(Errno::ENOMEM) } else { Ok(()) }
	}

	/// Takes pages back of which it isn't known whether they are copies, and protects those that are none. How many
	/// were copies.
	fn look_at(&mut self, fd: i32, pages: Range) -> Result<usize> {
		for_each_run::<32>(fd, pages, Find::Protecting, |_| Ok(()))?;
		let mut found = 0;
		for_each_run::<32>(fd, pages, Find::Own, |run| {
			if run.has(SWAPPED) {
				return discard(run.range());
			}
			(self.index(run.range().start)..self.index(run.range().end)).for_each(|page| self.copies.note(page));
			found += self.put_back(run.range(), false);
			Ok(())
		})?;
		Ok(found)
	}

	/// Copies pages back, or only those that differ. How many it copied.
	fn put_back(&self, pages: Range, only_different: bool) -> usize {
		let source = |page: usize| self.source.start + (page - self.range.start);
		if !only_different {
			// SAFETY: inside the region, which is writable, and its memfd, which is readable, apart from it and as long
			// (`is_mapped_as_before`).
			unsafe { sys::copy_bytes(source(pages.start), pages.start, pages.len()) };
			return pages.len() / PAGE;
		}
		let mut copied = 0;
		for page in (pages.start..pages.end).step_by(PAGE) {
			// SAFETY: as above.
			unsafe {
				if !sys::same_page(source(page), page) {
					sys::copy_bytes(source(page), page, PAGE);
					copied += 1;
				}
			}
		}
		copied
	}

	fn index(&self, page: usize) -> usize {
		(page - self.range.start) / PAGE
	}

	/// Runs `f` when no protection key forbids this thread anything: neither drops nor faults of the kernel mind them.
	fn with_all_keys<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
		if !self.has_keys {
			return f(self);
		}
		// SAFETY: the processor has such keys, and the system has switched them on.
		let keys = unsafe { protection_keys() };
		// SAFETY: as above. They are put back below; only this function's accesses come in between.
		unsafe { set_protection_keys(0) };
		let done = f(self);
		// SAFETY: as above.
		unsafe { set_protection_keys(keys) };
		done
	}
}

impl Drop for Written {
	fn drop(&mut self) {
		// A sandbox might end the program for these calls.
		if !STATE.is_sandboxed() {
			WATCHED.end(self.range);
		}
	}
}

fn has_protection_keys() -> bool {
	const OSPKE: u32 = 1 << 4;
	__cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & OSPKE != 0
}

/// # Safety
/// [`has_protection_keys`].
unsafe fn protection_keys() -> u32 {
	let keys;
	// SAFETY: reads a register.
	unsafe { asm!("rdpkru", in("ecx") 0, out("eax") keys, out("edx") _, options(nostack, preserves_flags)) };
	keys
}

/// # Safety
/// [`has_protection_keys`]. Accesses of this thread may be allowed or not from then on.
unsafe fn set_protection_keys(keys: u32) {
	// SAFETY: the caller says so. Not without `nomem`: accesses stay on their side of it.
	unsafe { asm!("wrpkru", in("eax") keys, in("ecx") 0, in("edx") 0, options(nostack, preserves_flags)) };
}

/// Calls `each` with the runs of pages looked for, in order of address; asks for `N` at a time.
fn for_each_run<const N: usize>(
	fd: i32,
	range: Range,
	find: Find,
	each: impl FnMut(Region) -> Result<()>,
) -> Result<()> {
	let (all, none) = match find {
		Find::Touched | Find::Protecting => (WRITTEN, HUGE_PAGE),
		Find::Own => (0, ZERO | FILE),
	};
	let protect = find == Find::Protecting;
	let ask = Ask { all, none, any: PRESENT | SWAPPED, told: SWAPPED, protect, watched: true };
	scan::for_each(fd, range, ask, &mut [Region::default(); N], each)
}

/// Drops pages that are not in memory. What is protected or a guard stays so.
fn discard(range: Range) -> Result<()> {
	// SAFETY: part of the region, which falls back to its memfd.
	unsafe { sys::madvise(range.start, range.len(), k::MADV_DONTNEED_LOCKED) }
}
