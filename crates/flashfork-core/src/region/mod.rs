//! Region: memory of the caller's own that goes back to how it was, as often as wanted, in microseconds.
//!
//! Its pages are born in a memfd, on 2 MB pages where the kernel gives them, mapped shared. Sealing it is then one
//! `mmap`: the same memfd privately over the same addresses. From there on a written page is a copy, and dropping the
//! copies (`MADV_DONTNEED`) is a rollback, always. Dropping the whole range beats looking for the written pages first:
//! the page tables are walked in either case, and each call costs a flush.
//!
//! The other way keeps the copies, finds those written since, and copies the memfd's bytes into them ([`written`]): who
//! writes the same pages again and again has no fault any more. [`choice`] takes the one or the other by what they
//! cost, and [`allowed`] says whether the kernel may be asked.
//!
//! The memfd's name is not [`MEMFD_PREFIX`](crate::MEMFD_PREFIX): to a seal of the process a region is a file, which it
//! leaves alone, and forks skip its page tables as those of sealed memory.

mod allowed;
pub(crate) mod choice;
pub(crate) mod copies;
pub(crate) mod watch;
mod written;

pub use choice::Way;

use crate::{
	outcome::Pages,
	proc::headroom::Limits,
	range::Range,
	seal::{
		copy::{CHUNK, Window},
		limits::{SLACK, ThpAllowed},
		remap::ATTEMPTS,
	},
	state::STATE,
	sys::{
		self, Errno, HUGE, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PAGE, PROT_NONE,
		PROT_READ, PROT_WRITE, RLIMIT_FSIZE, Result,
	},
};
use choice::Choice;
use linux_raw_sys::general as k;
use watch::WATCHED;
use written::Written;

/// The step of a region's life at which a system call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
	/// Finding addresses.
	Reserve,
	/// Making the memfd, `RLIMIT_FSIZE` included.
	CreateMemfd,
	/// Mapping the memfd.
	Map,
	/// Sealing the memfd against writes. `EBUSY`: the kernel or a device still writes there (I/O under way).
	AddSeals,
	/// Dropping the written pages.
	Drop,
}

/// Why a call failed. A region whose seal failed is unsealed, its bytes as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
	/// The length is 0, or more than there are addresses.
	Length,
	/// The region is sealed already.
	Sealed,
	/// The region isn't sealed: there is nothing to go back to.
	NotSealed,
	/// The region wasn't sealed when this process was forked: it is another's, and here there may be other memory.
	Elsewhere,
	/// A part to take back that is not whole pages inside the region.
	Range,
	/// A system call failed.
	System(Step, Errno),
}

/// See the module. Dropping it unmaps it.
#[derive(Debug)]
pub struct Region {
	reserved: Range,
	range: Range,
	/// Whose it is until it is sealed.
	process: i32,
	/// The memfd; closed by the seal.
	fd: Option<i32>,
	huge: usize,
	/// Where the memfd is mapped for reading, and which file it is; none where pages can't be copied back.
	source: Option<(Range, sys::Status)>,
	/// What was written since the last rollback is known; not while everything is dropped.
	written: Option<Written>,
	choice: Choice,
	/// The one way to be taken, whatever it costs.
	only: Option<Way>,
	/// When the last rollback was over, as far as that matters.
	over: Option<u64>,
	/// Forks of this process by then.
	forks: u32,
}

impl Region {
	/// Maps a region of `len` bytes, rounded up to 2 MB, all zeros, at an address that is a multiple of 2 MB.
	///
	/// With [`Pages::Auto`] its memory is taken at once where there is enough of it; with [`Pages::Small`], and without
	/// 2 MB pages, as it is touched.
	pub fn map(len: usize, pages: Pages) -> core::result::Result<Region, Error> {
		let at = |step| move |e| Error::System(step, e);
		let len = len.checked_next_multiple_of(HUGE).filter(|len| *len > 0).ok_or(Error::Length)?;
		let least = len.checked_add(HUGE).ok_or(Error::Length)?;
		// A file longer than the limit would come with a signal (SIGXFSZ).
		if sys::getrlimit(RLIMIT_FSIZE).map_err(at(Step::CreateMemfd))?[0] < len as u64 {
			return Err(Error::System(Step::CreateMemfd, Errno::EFBIG));
		}
		let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
		// SAFETY: a fresh mapping that nothing may access.
		let reserve = |len| unsafe { sys::mmap(0, len, PROT_NONE, flags, -1, 0) }.map(|start| (start, len));
		// With room for the memfd once more behind it, where addresses are not short.
		let twice = match sys::getrlimit(k::RLIMIT_AS) {
			Ok([u64::MAX, _]) => least.checked_mul(2).ok_or(Errno::ENOMEM).and_then(reserve),
			_ => Err(Errno::ENOMEM),
		};
		let (start, whole) = twice.or_else(|_| reserve(least)).map_err(at(Step::Reserve))?;
		let aligned = start.next_multiple_of(HUGE);
		let mut region = Region {
			reserved: Range::new(start, start + whole),
			range: Range::new(aligned, aligned + len),
			process: sys::getpid(),
			fd: None,
			huge: 0,
			source: None,
			written: None,
			choice: Choice::new(),
			only: None,
			over: None,
			forks: 0,
		};
		let fd = sys::memfd_create(c"flashfork-region").map_err(at(Step::CreateMemfd))?;
		region.fd = Some(fd);
		sys::ftruncate(fd, len as u64).map_err(at(Step::CreateMemfd))?;
		if pages == Pages::Auto {
			region.huge = make_huge(fd, len);
		}
		region.map_shared(fd).map_err(at(Step::Map))?;
		Ok(region)
	}

	/// Its addresses.
	pub fn range(&self) -> Range {
		self.range
	}

	/// How many of its bytes are on 2 MB pages.
	pub fn huge(&self) -> usize {
		self.huge
	}

	/// Whether there is a state to go back to.
	pub fn is_sealed(&self) -> bool {
		self.fd.is_none()
	}

	/// Makes what the region holds now the state that [`Region::rollback`] goes back to. Nothing is copied.
	///
	/// Where pages may be copied back later, the program's calls are followed from now on, as from a first seal on.
	pub fn seal(&mut self) -> core::result::Result<(), Error> {
		self.seal_memory()?;
		if let Some((Range { start, end }, _)) = self.source
			&& !(cfg!(test) || allowed::may_ask())
		{
			self.source = None;
			let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
			// A failure leaves a mapping that nobody uses.
			// SAFETY: the addresses are the region's own, and are kept.
			let _ = unsafe { sys::mmap(start, end - start, PROT_NONE, flags, -1, 0) };
		}
		Ok(())
	}

	fn seal_memory(&mut self) -> core::result::Result<(), Error> {
		let fd = self.fd.ok_or(Error::Sealed)?;
		if self.is_elsewhere() {
			return Err(Error::Elsewhere);
		}
		let flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
		let Range { start, .. } = self.range;
		// SAFETY: the same bytes, mapped privately over themselves.
		let mapped = unsafe { sys::mmap(start, self.range.len(), PROT_READ | PROT_WRITE, flags, fd, 0) };
		let done = mapped.map_err(|e| Error::System(Step::Map, e)).and_then(|_| {
			// Whoever else maps it to write (a device, I/O under way) is found here.
			sys::add_seals(fd).map_err(|e| Error::System(Step::AddSeals, e))
		});
		if let Err(error) = done {
			// Before Linux 6.12 a failed mmap may have left a hole, and running on with memory missing would be worse
			// than ending.
			for _ in 0..ATTEMPTS {
				if self.map_shared(fd).is_ok() {
					return Err(error);
				}
				sys::pause_briefly();
			}
			sys::die(sys::getpid());
		}
		self.source = self.map_source(fd);
		STATE.unsealed.forget();
		self.fd = None;
		sys::close(fd);
		Ok(())
	}

	/// Maps the memfd for reading in the room behind the region, if any.
	fn map_source(&self, fd: i32) -> Option<(Range, sys::Status)> {
		// A gap between them: who reads over the region's end finds nothing.
		let start = self.range.end + PAGE;
		let source = Range::new(start, start + self.range.len());
		if source.end > self.reserved.end {
			return None;
		}
		// SAFETY: the addresses are the region's own, and nothing is there.
		let mapped =
			unsafe { sys::mmap(start, source.len(), PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, 0) };
		// In core dumps the region is enough.
		// SAFETY: the mapping just made.
		let dumped = |_| unsafe { sys::madvise(start, source.len(), k::MADV_DONTDUMP) };
		mapped.and_then(dumped).and_then(|()| sys::fstatus(fd)).ok().map(|file| (source, file))
	}

	/// Undoes every write to the region since its seal, in this process.
	///
	/// On an error the region is partly rolled back: somebody unmapped part of it.
	pub fn rollback(&mut self) -> core::result::Result<(), Error> {
		if self.fd.is_some() {
			return Err(Error::NotSealed);
		}
		if self.source.is_none() || STATE.is_sandboxed() {
			return self.drop_part(self.range);
		}
		if self.forks != WATCHED.forks() {
			// The next one may come soon, and would have page tables to copy.
			self.forks = WATCHED.forks();
			self.choice.drop_for_now();
		}
		let done = match self.only.unwrap_or(self.choice.way()) {
			Way::Copy if allowed::is_alone() => self.copy_or_begin(),
			// Beside others until they have gone.
			Way::Copy => {
				self.over = None;
				return self.drop_all();
			}
			Way::Drop => self.drop_all(),
		};
		self.note_cycle();
		done
	}

	/// Copies back what was written, or drops it and has what is written from now on noted.
	fn copy_or_begin(&mut self) -> core::result::Result<(), Error> {
		let mut begins = true;
		if self.written.is_some() {
			match self.copy_back(self.range) {
				Ok(()) => return Ok(()),
				// So many copies are not worth their memory.
				Err(Errno::ENOMEM) => {}
				Err(_) => begins = false,
			}
		}
		self.drop_all()?;
		if begins && let Some((source, file)) = self.source {
			self.written = Written::begin(self.range, source, file).ok();
		}
		if self.written.is_none() {
			self.choice.drop_for_now();
		}
		Ok(())
	}

	/// Undoes every write to part of the region, which begins at byte `offset`. Both must be multiples of a page.
	pub fn rollback_range(&mut self, offset: usize, len: usize) -> core::result::Result<(), Error> {
		if self.fd.is_some() {
			return Err(Error::NotSealed);
		}
		let end = offset.checked_add(len).filter(|end| *end <= self.range.len()).ok_or(Error::Range)?;
		if !offset.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) {
			return Err(Error::Range);
		}
		let part = Range::new(self.range.start + offset, self.range.start + end);
		if self.written.is_some() && !STATE.is_sandboxed() && allowed::is_alone() && self.copy_back(part).is_ok() {
			return Ok(());
		}
		self.drop_part(part)
	}

	/// Has it go back in one way, whatever that costs; by default it takes the cheaper one. Where pages can't be copied
	/// back they are dropped all the same.
	pub fn go_back_by(&mut self, way: Option<Way>) {
		self.only = way;
	}

	/// How it will go back the next time, as far as that is known.
	pub fn next_way(&self) -> Way {
		if self.written.is_some() { Way::Copy } else { Way::Drop }
	}

	fn drop_all(&mut self) -> core::result::Result<(), Error> {
		self.written = None;
		self.drop_part(self.range)
	}

	fn drop_part(&self, part: Range) -> core::result::Result<(), Error> {
		// SAFETY: the region is the caller's, who asks for just that.
		unsafe { sys::madvise(part.start, part.len(), k::MADV_DONTNEED_LOCKED) }
			.map_err(|e| Error::System(Step::Drop, e))
	}

	/// On an error some of it may have gone back, and what was written is not known any more.
	fn copy_back(&mut self, part: Range) -> Result<()> {
		let done = self.written.as_mut().map_or(Err(Errno::ESTALE), |written| written.take_back(part));
		if done.is_err() {
			self.written = None;
		}
		done
	}

	fn note_cycle(&mut self) {
		if self.only.is_some() {
			return;
		}
		let begun = self.over.take();
		if !self.choice.times() {
			return self.choice.cycle(None);
		}
		let now = sys::thread_cpu_ns();
		self.choice.cycle(begun.map(|begun| now.saturating_sub(begun)));
		self.over = Some(now);
	}

	/// Whether this is a clone, which has a gap in the region's place or what the kernel has put there since.
	fn is_elsewhere(&self) -> bool {
		self.fd.is_some() && self.process != sys::getpid()
	}

	/// Maps the memfd shared. A clone made now would write into its parent's memory, so clones don't get it.
	fn map_shared(&self, fd: i32) -> Result<()> {
		let Range { start, .. } = self.range;
		// SAFETY: the addresses are the region's own, and the memfd holds its bytes.
		unsafe {
			sys::mmap(start, self.range.len(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0)?;
			sys::madvise(start, self.range.len(), k::MADV_DONTFORK)
		}
	}
}

impl Drop for Region {
	fn drop(&mut self) {
		self.written = None;
		let (whole, none) = (self.reserved, Range::default());
		let own = if self.is_elsewhere() {
			[Range::new(whole.start, self.range.start), Range::new(self.range.end, whole.end)]
		} else {
			[whole, none]
		};
		for part in own.iter().filter(|part| !part.is_empty()) {
			// SAFETY: the mapping is the region's own and nobody may use it any more. A failure would leak it, no more.
			let _ = unsafe { sys::munmap(part.start, part.len()) };
		}
		if let Some(fd) = self.fd {
			sys::close(fd);
		}
	}
}

/// Puts 2 MB pages into a memfd while there are any and memory is not short; returns how many bytes of it have them.
fn make_huge(fd: i32, len: usize) -> usize {
	let mut text = [0; 16 * 1024];
	let mut small = [0; 4096];
	let Ok(memory) = Limits::find(&mut text, &mut small) else { return 0 };
	let Ok(mut window) = Window::reserve() else { return 0 };
	if !window.holds_chunk() {
		return 0;
	}
	let _thp = ThpAllowed::set();
	let mut done = 0;
	while done < len {
		let chunk = CHUNK.min(len - done);
		let ample = memory.headroom(&mut text).is_ok_and(|free| free >= (chunk as u64) + SLACK);
		if !ample || window.make_huge(fd, done as u64, chunk).is_err() {
			break;
		}
		done += chunk;
	}
	done
}

#[cfg(test)]
mod tests;
