//! A copy of what was written to a private mapping, made while it is written to: rounds of copying what was written
//! since the last one (pre-copy, as in live migration), and one at the end, when nobody writes.

use super::{
	Reservation, Watch,
	delta::{self, mark},
	pagemap::PAGE,
};
use rustix::mm::{MapFlags, ProtFlags};
use std::{io, ops::Range, os::fd::AsFd};

/// Bytes that are copied in one step: a few milliseconds.
const STEP: usize = 16 << 20;

/// Bytes of addresses that are looked at in one step: a few milliseconds, if nothing was written and all is there.
const REACH: usize = 4 << 30;

/// A copy under way. Dropping it doesn't end the watch: see [`Copying::end`].
#[derive(Debug)]
pub struct Copying {
	/// The memory that is copied.
	from: Range<usize>,
	/// The [delta] that it goes to.
	to: Reservation,
	/// Where the round has come to.
	at: usize,
	pages: usize,
}

impl Copying {
	/// Begins to copy what was written to `from`, a private mapping of memory files, into `file`, an empty [delta] for
	/// as much memory, which keeps its size.
	pub(crate) fn begin(watch: &Watch, from: Range<usize>, file: impl AsFd) -> io::Result<Self> {
		let mut to = Reservation::new(delta::length(from.len() as u64) as usize)?;
		to.fill(ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file)?;
		watch.begin(&from)?;
		Ok(Self { at: from.start, from, to, pages: 0 })
	}

	/// Copies what was written to the next part since it was last copied. At the end of a round: how many pages that
	/// were in all of it. What can't be told from what was copied before waits for [`Copying::finish`].
	pub(crate) fn step(&mut self, watch: &Watch) -> io::Result<Option<usize>> {
		if !watch.tracks() {
			return Ok(Some(0));
		}
		let end = self.from.end.min(self.at.saturating_add(REACH));
		self.at = self.copy(watch, self.at..end, Some(STEP / PAGE))?;
		if self.at < self.from.end {
			return Ok(None);
		}
		self.at = self.from.start;
		Ok(Some(std::mem::take(&mut self.pages)))
	}

	/// Nobody writes any more: copies what is left, and gives the number of its pages.
	pub(crate) fn finish(&mut self, watch: &Watch) -> io::Result<usize> {
		self.pages = 0;
		self.copy(watch, self.from.clone(), None)?;
		Ok(self.pages)
	}

	/// Ends the watch, and takes the copy's mapping away.
	pub(crate) fn end(self, watch: &Watch) -> io::Result<()> {
		watch.end(&self.from)
	}

	/// Gives where it has come to.
	fn copy(&mut self, watch: &Watch, part: Range<usize>, protect: Option<usize>) -> io::Result<usize> {
		let (start, to, mut pages) = (self.from.start, self.to.start(), 0);
		let place = self.from.len();
		// SAFETY: the delta's bits, which lie behind its pages, and of which only this knows.
		let bits = unsafe { std::slice::from_raw_parts_mut(to.add(place), self.to.length() - place) };
		let end = watch.written(part, protect, |run| {
			pages += run.len() / PAGE;
			mark(bits, &(((run.start - start) / PAGE) as u64..((run.end - start) / PAGE) as u64));
			// SAFETY: a run lies in `from`, which its owner keeps mapped, and its place in the copy is mapped as long
			// as `self.to` lives. Others may write to the run meanwhile, a guest above all: whatever is torn by that
			// was written after it was protected, and is copied again. By the C library, which knows nothing of Rust's
			// rules for memory that others write to.
			unsafe { libc::memcpy(to.add(run.start - start).cast(), run.start as *const _, run.len()) };
		})?;
		self.pages += pages;
		Ok(end)
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::memory;
	use flashfork_proto::shape::Pages;
	use std::{
		os::fd::OwnedFd,
		sync::atomic::{AtomicBool, AtomicU64, Ordering},
	};

	const PAGES: usize = 3 * STEP / PAGE / 2;
	const BYTES: usize = PAGES * PAGE;

	fn file() -> OwnedFd {
		delta::create("flashfork:test", BYTES as u64).unwrap()
	}

	/// A private mapping in which each page of the file says its number.
	fn memory() -> Reservation {
		let file = memory::create("flashfork:test", BYTES as u64, Pages::Small).unwrap();
		for page in 0..PAGES {
			rustix::io::pwrite(&file, &(page as u64).to_ne_bytes(), (page * PAGE) as u64).unwrap();
		}
		memory::seal(&file).unwrap();
		let mut memory = Reservation::new(BYTES).unwrap();
		memory.fill(ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE, &file).unwrap();
		memory
	}

	fn range(memory: &Reservation) -> Range<usize> {
		memory.start() as usize..memory.start() as usize + memory.length()
	}

	fn word(memory: &Reservation, page: usize) -> &AtomicU64 {
		// SAFETY: in a mapping that lives as long as the reference.
		unsafe { &*memory.start().add(page * PAGE).cast() }
	}

	fn in_copy(copy: &OwnedFd, page: usize) -> u64 {
		let mut word = [0; 8];
		rustix::io::pread(copy, &mut word, (page * PAGE) as u64).unwrap();
		u64::from_ne_bytes(word)
	}

	#[test]
	fn each_round_copies_what_was_written_since_the_last_and_the_end_the_rest() {
		let watch = Watch::find().unwrap();
		if !watch.tracks() {
			return eprintln!("skipped: this kernel can't note writes");
		}
		let (memory, copy) = (memory(), file());
		[1, 2, 5000].into_iter().for_each(|page| word(&memory, page).store(1 << 32, Ordering::Relaxed));
		let mut copying = Copying::begin(&watch, range(&memory), &copy).unwrap();
		let mut round = || loop {
			if let Some(pages) = copying.step(&watch).unwrap() {
				break pages;
			}
		};
		assert_eq!(round(), 3);
		assert_eq!(round(), 0);
		[2, 7, 5001].into_iter().for_each(|page| word(&memory, page).store(2 << 32, Ordering::Relaxed));
		// What is read is nobody's copy.
		assert_eq!(word(&memory, 9).load(Ordering::Relaxed), 9);
		assert_eq!(round(), 3);
		word(&memory, 7).store(3 << 32, Ordering::Relaxed);
		assert_eq!(copying.finish(&watch).unwrap(), 1);
		copying.end(&watch).unwrap();
		for (page, value) in [(1, 1), (2, 2), (5000, 1), (7, 3), (5001, 2), (9, 0), (0, 0)] {
			assert_eq!(in_copy(&copy, page), value << 32, "page {page}");
		}
		assert_eq!(delta::runs(&copy, BYTES as u64, u64::MAX).unwrap(), [1..3, 7..8, 5000..5002]);
		memory::seal(&copy).expect("nobody has it mapped");
	}

	#[test]
	fn a_step_ends_by_what_was_written_and_not_by_how_much_memory_there_is() {
		const LARGE: usize = 1 << 40;
		let watch = Watch::find().unwrap();
		if !watch.tracks() {
			return eprintln!("skipped: this kernel can't note writes");
		}
		let file = memory::create("flashfork:test", LARGE as u64, Pages::Small).unwrap();
		let mut memory = Reservation::new(LARGE).unwrap();
		memory.fill(ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE, &file).unwrap();
		let copy = delta::create("flashfork:test", LARGE as u64).unwrap();
		let mut copying = Copying::begin(&watch, range(&memory), &copy).unwrap();
		// One step more than whole ones.
		(0..2 * STEP / PAGE + 1).for_each(|page| word(&memory, page).store(1, Ordering::Relaxed));
		word(&memory, LARGE / PAGE - 1).store(2, Ordering::Relaxed);
		let mut steps = 0;
		let pages = loop {
			steps += 1;
			if let Some(pages) = copying.step(&watch).unwrap() {
				break pages;
			}
		};
		assert_eq!((pages, steps), (2 * STEP / PAGE + 2, LARGE / REACH + 2));
		assert_eq!((in_copy(&copy, LARGE / PAGE - 1), copying.finish(&watch).unwrap()), (2, 0));
	}

	#[test]
	fn on_a_kernel_that_notes_nothing_the_end_copies_all() {
		let watch = Watch::find().unwrap().without_tracking();
		let (memory, copy) = (memory(), file());
		word(&memory, 3).store(1 << 32, Ordering::Relaxed);
		let mut copying = Copying::begin(&watch, range(&memory), &copy).unwrap();
		assert_eq!(copying.step(&watch).unwrap(), Some(0));
		word(&memory, 5000).store(2 << 32, Ordering::Relaxed);
		assert_eq!(copying.finish(&watch).unwrap(), 2);
		copying.end(&watch).unwrap();
		assert_eq!([3, 5000, 4].map(|page| in_copy(&copy, page) >> 32), [1, 2, 0]);
	}

	/// Another thread writes all the time, as a guest does.
	#[test]
	fn no_write_is_lost_while_others_write() {
		let watch = Watch::find().unwrap();
		let (memory, copy, ended) = (memory(), file(), AtomicBool::new(false));
		let mut copying = Copying::begin(&watch, range(&memory), &copy).unwrap();
		std::thread::scope(|scope| {
			let writer = scope.spawn(|| {
				let mut at = 1;
				while !ended.load(Ordering::Relaxed) {
					at = (at * 4099 + 1) % PAGES;
					word(&memory, at).fetch_add(1 << 32, Ordering::Relaxed);
				}
			});
			for _ in 0..200 {
				copying.step(&watch).unwrap();
			}
			ended.store(true, Ordering::Relaxed);
			writer.join().unwrap();
		});
		copying.finish(&watch).unwrap();
		copying.end(&watch).unwrap();
		for page in 0..PAGES {
			let now = word(&memory, page).load(Ordering::Relaxed);
			let expected = if now >> 32 == 0 { 0 } else { now };
			assert_eq!(in_copy(&copy, page), expected, "page {page}");
		}
	}
}
