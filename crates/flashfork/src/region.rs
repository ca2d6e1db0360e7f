//! Region: memory of the caller's own with a state to go back to.

use crate::Pages;
use flashfork_core::region as core;
use std::io;

/// Memory that goes back to how it was, as often as wanted, in microseconds.
///
/// ```
/// use flashfork::{Pages, Region};
/// let mut region = Region::new(4 << 20, Pages::Auto)?;
/// region.bytes()[..5].copy_from_slice(b"ready"); // whatever takes long to prepare
/// region.seal()?;
/// for input in 0..3u8 {
///     region.bytes()[0] = input; // the work of one input
///     region.rollback()?;
///     assert_eq!(&region.bytes()[..5], b"ready");
/// }
/// # Ok::<(), flashfork::RegionError>(())
/// ```
///
/// Sound only when **all** of a thing's state lies inside: a rolled-back heap whose allocator keeps its lists elsewhere
/// is corrupt. Nothing else of the process goes back; [`snapshot`](crate::snapshot()) is for that. What was mapped,
/// protected or advised inside the region stays so.
///
/// Until it is sealed a region belongs to the process that made it: clones don't have it. Once sealed, each clone has
/// its own copy, which it can roll back. Seals of the process leave regions alone.
#[derive(Debug)]
pub struct Region(core::Region);

/// Why a call of a [`Region`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
	/// 0 bytes, or more than there are addresses.
	#[error("a region has at least 1 byte and fits into the address space")]
	Length,
	/// [`Region::seal`] once more.
	#[error("the region is sealed already; roll it back, or make another one")]
	Sealed,
	/// [`Region::rollback`] too early.
	#[error("the region is not sealed, so there is no state to go back to; seal it first")]
	NotSealed,
	/// [`Region::seal`] in a clone forked before.
	#[error("this process was forked before the region was sealed, so it doesn't have it; make another one")]
	Elsewhere,
	/// [`Region::rollback_range`] of something else than whole pages inside the region.
	#[error("only whole pages (4096 bytes) of the region go back, and none beyond its end")]
	Range,
	/// Part of the region is not mapped any more.
	#[error("a part of the region is gone (somebody unmapped it); what is left has been rolled back")]
	Torn,
	/// A system call failed. After a seal that failed the region is unsealed, its bytes as they were.
	#[error("can't {step}: {source}")]
	System {
		/// What was being done.
		step: &'static str,
		/// The kernel's answer.
		source: io::Error,
	},
}

impl From<core::Error> for RegionError {
	fn from(e: core::Error) -> RegionError {
		let (step, errno) = match e {
			core::Error::Length => return RegionError::Length,
			core::Error::Sealed => return RegionError::Sealed,
			core::Error::NotSealed => return RegionError::NotSealed,
			core::Error::Elsewhere => return RegionError::Elsewhere,
			core::Error::Range => return RegionError::Range,
			core::Error::System(core::Step::Drop, flashfork_core::Errno::ENOMEM) => return RegionError::Torn,
			core::Error::System(step, errno) => (step, errno),
		};
		let step = match step {
			core::Step::Reserve => "find addresses for the region",
			core::Step::CreateMemfd => "make the region's memfd (RLIMIT_FSIZE, RLIMIT_NOFILE?)",
			core::Step::Map => "map the region",
			core::Step::AddSeals => "seal the region (a device or unfinished I/O writes into it?)",
			core::Step::Drop => "drop the region's written pages",
		};
		RegionError::System { step, source: io::Error::from_raw_os_error(errno.into_raw()) }
	}
}

impl Region {
	/// A region of `len` bytes, rounded up to 2 MB, all zeros, at an address that is a multiple of 2 MB.
	///
	/// With [`Pages::Auto`] all its memory is taken at once, in 2 MB pages where the kernel gives them (some tenths of
	/// a second for each GB); with [`Pages::Small`] as it is touched, and a rollback then costs the more the more of it
	/// was read since the last.
	pub fn new(len: usize, pages: Pages) -> Result<Region, RegionError> {
		Ok(Region(core::Region::map(len, pages)?))
	}

	/// The address of its first byte.
	pub fn as_ptr(&self) -> *mut u8 {
		self.0.range().start as *mut u8
	}

	/// Its length in bytes.
	#[allow(clippy::len_without_is_empty)]
	pub fn len(&self) -> usize {
		self.0.range().len()
	}

	/// How many of its bytes are on 2 MB pages.
	pub fn huge_bytes(&self) -> usize {
		self.0.huge()
	}

	/// Whether there is a state to go back to.
	pub fn is_sealed(&self) -> bool {
		self.0.is_sealed()
	}

	/// Its bytes.
	pub fn bytes(&mut self) -> &mut [u8] {
		// SAFETY: mapped, readable and writable as long as `self` lives; whoever unmaps or protects it by raw calls
		// answers for that.
		unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len()) }
	}

	/// Makes what it holds now the state to go back to. Copies nothing: about a millisecond for each GB, much less on 2
	/// MB pages. In a process with one thread the first seal takes some milliseconds more: the C library's system calls
	/// are led through the engine, as before a first [`seal`](crate::seal()).
	pub fn seal(&mut self) -> Result<(), RegionError> {
		Ok(self.0.seal()?)
	}

	/// Undoes every write since the seal, in this process: about a microsecond for each page written, less for pages
	/// that are written every time.
	///
	/// Of the two ways there are, dropping what was written and copying it back, it takes the one that has turned out
	/// cheaper. Copying is there in processes with one thread, from Linux 6.7 on, where userfaultfd is allowed. It
	/// keeps a descriptor open, and the written pages.
	///
	/// What raw pointers and other threads see of the region changes under them: as with [`Region::bytes`], nobody else
	/// may use it meanwhile.
	pub fn rollback(&mut self) -> Result<(), RegionError> {
		Ok(self.0.rollback()?)
	}

	/// The same for a part, in bytes from the region's beginning, which must be whole pages. For who knows where writes
	/// have gone: nothing else is looked at.
	pub fn rollback_range(&mut self, range: std::ops::Range<usize>) -> Result<(), RegionError> {
		let len = range.end.checked_sub(range.start).ok_or(RegionError::Range)?;
		Ok(self.0.rollback_range(range.start, len)?)
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn errors_say_what_and_what_to_do_in_one_line() {
		let mut region = Region::new(1, Pages::Small).unwrap();
		assert_eq!(region.len(), 2 << 20);
		let text = region.rollback().unwrap_err().to_string();
		assert_eq!(text, "the region is not sealed, so there is no state to go back to; seal it first");
		region.seal().unwrap();
		assert!(matches!(region.seal(), Err(RegionError::Sealed)));
		for (begin, end) in [(1, 4096), (0, 4095), (4096, 0), (2 << 20, (2 << 20) + 4096)] {
			let e = region.rollback_range(begin..end).unwrap_err();
			assert_eq!(e.to_string(), "only whole pages (4096 bytes) of the region go back, and none beyond its end");
		}
		region.bytes()[4096..12288].fill(7);
		region.rollback_range(4096..8192).unwrap();
		assert!(region.bytes()[4096..8192].iter().all(|b| *b == 0) && region.bytes()[8192] == 7);
		let e = Region::new(1 << 60, Pages::Small).unwrap_err();
		assert!(e.to_string().starts_with("can't find addresses for the region: Cannot allocate memory"), "{e}");
	}
}
