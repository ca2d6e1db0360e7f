//! Aside: the pages that a seal or an unseal replaces are kept until they have been compared with what took their
//! place.
//!
//! Other processes write into this one's memory without asking: `process_vm_writev(2)`, `/proc/PID/mem`, `ptrace(2)`.
//! The engine can't stop them, and what they write after the copy would go with the old pages. So a step's old pages
//! are moved to addresses of the engine's own (`mremap(2)` takes the pages themselves, with whatever was written until
//! then); then they are compared with the copy, and what differs is brought into it, or the copy is only made now; and
//! only then the copy takes their place. In between nothing is mapped there: who writes at that moment is told
//! `EFAULT`, or `EIO` by `/proc/PID/mem`, and nothing is lost.
//!
//! Who had a page in hand before it was moved (`pin_user_pages_remote`), and was interrupted before he wrote, writes
//! into the old one later. So old pages stay for a while and are compared once more before they are freed; and they
//! stay for longer where somebody has been seen to write.
//!
//! An unseal looks at those pages alone that were written since the seal: nobody can write into a page of the memfd,
//! because whoever gets hold of a page to write to it makes it the mapping's own first.

use super::{
	kept::{BLOCK, Kept, Pages},
	properties::is_guard,
	remap::{self, ATTEMPTS},
};
use crate::{
	proc::{
		pagemap::{Pagemap, Which},
		scan::Region,
	},
	range::Range,
	state::STATE,
	sys::{
		self, Errno, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PAGE, PROT_NONE, PROT_READ, PROT_WRITE,
		Result,
	},
};
use linux_raw_sys::general as k;

/// Bytes that a seal replaces at a time where it compares them: nothing is mapped there for some tens of microseconds.
/// Where it copies them meanwhile it replaces a [`BLOCK`], because 2 MB pages move in one piece, not in 512.
pub const STEP: usize = 256 << 10;

/// Most bytes kept at a time, where nobody is known to write and where somebody is. The former are still in the
/// processor's cache when they are compared once more: 16 MB would make a seal take twice as long.
const FEW: usize = 1 << 20;
pub const MOST: usize = 16 << 20;

/// Most steps kept at a time: some are shorter.
const STEPS: usize = 2 * MOST / STEP;

/// Where somebody writes, old pages stay at least this long, in nanoseconds: longer than a process is usually kept from
/// running.
const GRACE: u64 = 5_000_000;

/// How often what is kept is compared again, as long as each time something has changed.
const LOOKS: usize = 20;

/// See the module. All of it is given up, after a last look, when it is dropped.
pub struct Aside {
	/// Addresses reserved for old pages, or none.
	place: Range,
	/// In an unseal: for each of those addresses another, where the bytes are that were found there.
	known: Range,
	/// Most bytes in one step.
	step: usize,
	used: usize,
	kept: [Kept; STEPS],
	count: usize,
	/// Whether the steps kept were not compared when they were taken, so that who writes must be noticed otherwise.
	unwatched: bool,
	somebody_writes: bool,
}

impl Aside {
	/// Reserves addresses for a seal, few where there are few (`RLIMIT_AS`).
	pub fn reserve() -> Result<Aside> {
		let place = reserve_blocks(MOST).or_else(|_| reserve(STEP, PROT_NONE))?;
		Ok(Aside::at(place, Range::default(), STEP))
	}

	/// The same for an unseal.
	pub fn for_unseal() -> Result<Aside> {
		let both = |len| {
			let place = reserve(len, PROT_NONE)?;
			let known = reserve(len, PROT_READ | PROT_WRITE).inspect_err(|_| give_back(place))?;
			Ok(Aside::at(place, known, BLOCK))
		};
		both(MOST).or_else(|_: Errno| both(BLOCK))
	}

	fn at(place: Range, known: Range, step: usize) -> Aside {
		let none = Kept { range: Range::default(), prot: 0, old: 0, known: 0, pages: Pages::default() };
		Aside { place, known, step, used: 0, kept: [none; STEPS], count: 0, unwatched: false, somebody_writes: false }
	}

	/// Most memory that what is kept may take.
	pub fn most(&self) -> usize {
		let most = if self.somebody_writes { MOST } else { FEW.max(self.step) }.min(self.place.len());
		if self.known.is_empty() { most } else { 2 * most }
	}

	/// Most bytes of a step copied after it was moved.
	pub fn largest_step(&self) -> usize {
		if self.place.len() < BLOCK { self.step } else { BLOCK }
	}

	/// Whether there is room for [`MOST`] bytes of whole blocks.
	pub fn holds_blocks(&self) -> bool {
		self.place.len() >= MOST
	}

	/// Bytes kept now.
	pub fn kept(&self) -> usize {
		self.used
	}

	/// Moves the pages of `range` out of the program's sight; gives their address. What is to be done next is
	/// [`Aside::keep`] or [`Aside::put_back`].
	///
	/// On an error they are where they were.
	///
	/// # Safety
	/// No thread of this process uses `range` until something is mapped there again. It is at most a step, in one
	/// mapping.
	pub unsafe fn take(&mut self, range: Range) -> Result<usize> {
		let most = if self.somebody_writes { MOST } else { FEW };
		if self.used + range.len() > most.min(self.place.len()) || self.count == STEPS {
			self.settle();
		}
		if self.place.len() < range.len() {
			self.give_up();
			self.place = reserve(self.step.max(range.len()), PROT_NONE)?;
		}
		let old = self.place.start + self.used;
		self.used += range.len();
		// SAFETY: the target is ours; the caller answers for the source.
		let taken = unsafe { sys::mremap_fixed(range.start, range.len(), old) };
		taken.map(|()| old).inspect_err(|_| self.close(old))
	}

	/// Reserves the addresses again from which pages, the last that were taken, have gone or to which they have not
	/// come. Where that fails the place ends before them.
	fn close(&mut self, old: usize) {
		let hole = Range::new(old, self.place.start + self.used);
		self.used -= hole.len();
		// An mremap that failed early has left the reservation there.
		if !sys::is_mapped(hole.start, hole.len()) && reserve_at(hole, k::MAP_FIXED_NOREPLACE).is_err() {
			give_back(Range::new(hole.end, self.place.end));
			self.place.end = hole.start;
		}
	}

	/// Brings what was written meanwhile from the old pages, just taken, into the copy at `copy`.
	///
	/// # Safety
	/// Both are mapped, the old pages readable, the copy writable and nobody else's.
	pub unsafe fn amend(&mut self, old: usize, copy: usize, len: usize) {
		for at in (0..len).step_by(PAGE) {
			// SAFETY: the caller says so.
			unsafe {
				if !sys::same_page(old + at, copy + at) {
					sys::copy_bytes(old + at, copy + at, PAGE);
					self.somebody_writes = true;
				}
			}
		}
	}

	/// Copies the old pages, just taken, to `copy`.
	///
	/// # Safety
	/// As [`Aside::amend`], and no page of either is out of memory.
	pub unsafe fn transfer(&mut self, old: usize, copy: usize, len: usize) {
		// SAFETY: the caller says so.
		unsafe { sys::copy_bytes(old, copy, len) };
		self.unwatched = true;
	}

	/// Writes the old pages, just taken, to a file.
	///
	/// # Safety
	/// As [`Aside::amend`], but any page may turn out to be unreadable, which is an error.
	pub unsafe fn send(&mut self, old: usize, fd: i32, offset: u64, len: usize) -> Result<()> {
		self.unwatched = true;
		sys::pwrite_all(fd, old, len, offset)
	}

	/// Keeps the old pages of `range`, which holds its new ones with protection `prot`. `known`: the bytes of the old
	/// pages, as they were compared, writable until the next [`Aside::settle`].
	pub fn keep(&mut self, range: Range, prot: u32, old: usize, known: usize) {
		self.kept[self.count] = Kept { range, prot, old, known, pages: Pages::first(range.len()) };
		self.count += 1;
	}

	/// Unseals `range`: puts the copy at `copy` in its place, with what was written meanwhile, and keeps the old pages.
	/// `finish` gives the copy what the range has, protection `prot` among it. On an error the old pages are where they
	/// were.
	///
	/// # Safety
	/// As [`Aside::take`]; the old pages are readable, and the copy is writable, nobody else's, and holds what they
	/// held a moment ago.
	pub unsafe fn exchange(
		&mut self,
		range: Range,
		prot: u32,
		copy: usize,
		pagemap: Option<&mut Pagemap>,
		finish: impl FnOnce() -> Result<()>,
	) -> Result<()> {
		// SAFETY: the caller answers for it.
		let old = unsafe { self.take(range) }?;
		let known = self.known.start + (old - self.place.start);
		// SAFETY: the old pages are the engine's own now; the caller answers for the copy, which is moved to where
		// nothing is mapped.
		let moved = unsafe {
			self.learn(old, known, copy, range.len(), pagemap).and_then(|pages| {
				finish()?;
				sys::mremap_fixed(copy, range.len(), range.start)?;
				Ok(pages)
			})
		};
		match moved {
			Ok(pages) => {
				self.kept[self.count] = Kept { range, prot, old, known, pages };
				self.count += 1;
				Ok(())
			}
			Err(e) => {
				// SAFETY: taken from there just now.
				unsafe { self.put_back(range, prot, old) };
				Err(e)
			}
		}
	}

	/// Which of the old pages, just taken, were written since the seal; their bytes are brought to `known`, and into
	/// the copy.
	///
	/// # Safety
	/// As [`Aside::exchange`].
	unsafe fn learn(
		&mut self,
		old: usize,
		known: usize,
		copy: usize,
		len: usize,
		pagemap: Option<&mut Pagemap>,
	) -> Result<Pages> {
		let (mut pages, range) = (Pages::default(), Range::new(old, old + len));
		match pagemap {
			// A guard can't be read, and nobody can have written to it. The kernel counts it among what is swapped out.
			Some(pagemap) => pagemap.for_each_told(range, Which::Written, |found, out| {
				let found = found.intersect(range);
				let found = (found.start..found.end).step_by(PAGE).filter(|at| !out || !is_guard(*at));
				found.for_each(|at| pages.add((at - old) / PAGE));
			})?,
			None => (0..len / PAGE).filter(|page| !is_guard(old + page * PAGE)).for_each(|page| pages.add(page)),
		}
		pages.for_each(|at| {
			// SAFETY: all three are mapped; the caller answers for the old pages and the copy.
			unsafe {
				sys::copy_bytes(old + at, known + at, PAGE);
				if !sys::same_page(known + at, copy + at) {
					sys::copy_bytes(known + at, copy + at, PAGE);
					self.somebody_writes = true;
				}
			}
		});
		Ok(pages)
	}

	/// Puts old pages back where they were taken from, because nothing could take their place.
	///
	/// # Safety
	/// As [`Aside::take`]; `prot` is what the range had.
	pub unsafe fn put_back(&mut self, range: Range, prot: u32, old: usize) {
		for attempt in 0..ATTEMPTS {
			// SAFETY: nothing is mapped at the target, and the source is ours.
			if unsafe { sys::mremap_fixed(old, range.len(), range.start) }.is_ok() {
				if attempt > 0 {
					// They may have been opened for reading alone.
					// SAFETY: the protection that they had.
					unsafe { remap::close(range, prot) };
				}
				return self.close(old);
			}
			// SAFETY: the hole is ours to fill; the bytes come from the old pages.
			let filled = unsafe {
				remap::fresh(range, prot | PROT_WRITE).and_then(|()| {
					sys::mprotect(old, range.len(), PROT_READ)?;
					for at in (0..range.len()).step_by(PAGE) {
						match is_guard(old + at) {
							true => sys::madvise(range.start + at, PAGE, k::MADV_GUARD_INSTALL)?,
							false => sys::copy_bytes(old + at, range.start + at, PAGE),
						}
					}
					sys::mprotect(range.start, range.len(), prot)
				})
			};
			if filled.is_ok() {
				return;
			}
			sys::pause_briefly();
		}
		STATE.die()
	}

	/// Compares all that is kept once more, or, where somebody writes, until nothing has changed for a while; gives it
	/// up then.
	pub fn settle(&mut self) {
		self.somebody_writes |= self.unwatched && self.count > 0 && self.written_since();
		self.unwatched = false;
		for _ in 0..LOOKS {
			if self.somebody_writes {
				sys::sleep_ns(GRACE);
			}
			if !self.look() {
				break;
			}
		}
		self.count = 0;
		if self.used == 0 {
			return;
		}
		let used = Range::new(self.place.start, self.place.start + self.used);
		self.used = 0;
		if reserve_at(used, MAP_FIXED).is_err() {
			self.give_up();
		}
	}

	/// Whether somebody has written to the new pages already: the program itself does not run. True too where that
	/// can't be told.
	fn written_since(&self) -> bool {
		let mut regions = [Region::default(); 8];
		let Ok(mut pagemap) = Pagemap::open(&mut regions) else { return true };
		self.kept[..self.count].iter().any(|kept| {
			let mut written = false;
			pagemap.for_each(kept.range, Which::Written, |_| written = true).is_err() || written
		})
	}

	/// Brings what was written into old pages since the last look to where it belongs; whether there was anything.
	fn look(&mut self) -> bool {
		let mut found = false;
		for kept in &self.kept[..self.count] {
			kept.pages.for_each(|at| {
				// SAFETY: both are mapped and readable while they are kept.
				if !unsafe { sys::same_page(kept.old + at, kept.known + at) } {
					found = true;
					kept.follow(at);
				}
			});
		}
		self.somebody_writes |= found;
		found
	}

	fn give_up(&mut self) {
		give_back(self.place);
		self.place = Range::default();
	}
}

impl Drop for Aside {
	fn drop(&mut self) {
		self.settle();
		self.give_up();
		give_back(self.known);
	}
}

/// Reserves whole blocks: to anywhere else a 2 MB page would move as 512 small ones.
fn reserve_blocks(len: usize) -> Result<Range> {
	let all = reserve(len + BLOCK, PROT_NONE)?;
	let start = all.start.next_multiple_of(BLOCK);
	let blocks = Range::new(start, start + len);
	for rest in [Range::new(all.start, blocks.start), Range::new(blocks.end, all.end)] {
		give_back(rest);
	}
	Ok(blocks)
}

fn reserve(len: usize, prot: u32) -> Result<Range> {
	let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	// SAFETY: a fresh mapping.
	let at = unsafe { sys::mmap(0, len, prot, flags, -1, 0) }?;
	Ok(Range::new(at, at + len))
}

/// Reserves addresses that are the place's own, with `MAP_FIXED` or `MAP_FIXED_NOREPLACE`.
fn reserve_at(range: Range, fixed: u32) -> Result<usize> {
	let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed;
	// SAFETY: what may lie there are old pages that nobody needs any more.
	unsafe { sys::mmap(range.start, range.len(), PROT_NONE, flags, -1, 0) }
}

fn give_back(range: Range) {
	if !range.is_empty() {
		// SAFETY: the addresses are ours. A failure would leak them, no more.
		let _ = unsafe { sys::munmap(range.start, range.len()) };
	}
}

#[cfg(test)]
mod tests;
