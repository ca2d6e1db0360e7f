//! Noting which pages are written while somebody else copies them: a userfaultfd with asynchronous write protection
//! (`UFFD_FEATURE_WP_ASYNC`, Linux 6.7, ioctl_userfaultfd(2)).
//!
//! Nobody reads the descriptor. Whoever writes to a protected page, the kernel for KVM too, makes the kernel take the
//! protection away, and `PAGEMAP_SCAN` finds the page. So a process needs no privilege for it: user faults alone
//! (`UFFD_USER_MODE_ONLY`) could be told to it, and none is.

use super::pagemap::{Pagemap, Which};
use linux_raw_sys::{
	general::{
		UFFD_API, UFFD_FEATURE_PAGEFAULT_FLAG_WP, UFFD_FEATURE_WP_ASYNC, UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
		UFFDIO_REGISTER_MODE_WP, uffdio_api, uffdio_range, uffdio_register,
	},
	ioctl::{UFFDIO_API, UFFDIO_REGISTER, UFFDIO_UNREGISTER},
};
use rustix::mm::{UserfaultfdFlags, userfaultfd};
use std::{
	io,
	ops::Range,
	os::fd::{AsRawFd, OwnedFd},
};

/// The ioctls that a watch makes, for the shell's filter.
pub(crate) const CALLS: [u32; 2] = [UFFDIO_REGISTER, UFFDIO_UNREGISTER];

/// What a process needs to find out which of its pages were written. Made before it is jailed.
#[derive(Debug)]
pub struct Watch {
	pagemap: Pagemap,
	/// None on kernels before 6.7, or where nobody may have one.
	faults: Option<OwnedFd>,
}

impl Watch {
	/// Finds out what this kernel can do.
	///
	/// # Errors
	/// Without /proc.
	pub fn find() -> io::Result<Self> {
		let pagemap = Pagemap::open()?;
		let faults = if pagemap.scans() { asynchronous() } else { None };
		Ok(Self { pagemap, faults })
	}

	/// Whether what is written can be told from what was written before. Otherwise there is only one list: of all that
	/// was ever written.
	#[must_use]
	pub fn tracks(&self) -> bool {
		self.faults.is_some()
	}

	/// Whether it can be told quickly which pages are this process's own, by [`Self::copies`].
	#[must_use]
	pub fn scans(&self) -> bool {
		self.pagemap.scans()
	}

	/// Calls `each` with runs of pages in `range`, a private mapping of memory files, that are this process's own.
	pub(super) fn copies(&self, range: Range<usize>, each: impl FnMut(Range<usize>)) -> io::Result<()> {
		self.pagemap.copies(range, Which::All, each).map(drop)
	}

	/// From here on writes to `range` are noted, if they can be; it is mapped privately, from memory files.
	pub(super) fn begin(&self, range: &Range<usize>) -> io::Result<()> {
		let Some(faults) = &self.faults else { return Ok(()) };
		let mut asked = uffdio_register { range: told(range), mode: UFFDIO_REGISTER_MODE_WP.into(), ioctls: 0 };
		// SAFETY: the kernel's structure, which outlives the call; nothing that memory holds is changed.
		succeed(unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_REGISTER.into(), &raw mut asked) })
	}

	/// Nothing is noted any more, nor protected.
	pub(super) fn end(&self, range: &Range<usize>) -> io::Result<()> {
		let Some(faults) = &self.faults else { return Ok(()) };
		let asked = told(range);
		// SAFETY: as above.
		succeed(unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_UNREGISTER.into(), &raw const asked) })
	}

	/// Calls `each` with runs of pages in `range` that are this process's own. Where writes are noted, these are the
	/// ones that were written since they were last protected, and `protect` of them at most are protected again. Gives
	/// where it has come to.
	pub(super) fn written(
		&self,
		range: Range<usize>,
		protect: Option<usize>,
		each: impl FnMut(Range<usize>),
	) -> io::Result<usize> {
		let which = match (&self.faults, protect) {
			(None, _) => Which::All,
			(Some(_), Some(most)) => Which::Protect(most),
			(Some(_), None) => Which::Written,
		};
		self.pagemap.copies(range, which, each)
	}

	/// A process on a kernel that can't note writes.
	#[cfg(test)]
	pub(crate) fn without_tracking(self) -> Self {
		Self { faults: None, ..self }
	}
}

fn asynchronous() -> Option<OwnedFd> {
	const USER_MODE_ONLY: UserfaultfdFlags = UserfaultfdFlags::from_bits_retain(1);
	// SAFETY: without a registered range it does nothing.
	let faults =
		unsafe { userfaultfd(UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK | USER_MODE_ONLY) }.ok()?;
	let wanted = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_WP_ASYNC;
	let mut asked = uffdio_api { api: UFFD_API.into(), features: wanted.into(), ioctls: 0 };
	// SAFETY: the kernel's structure, which outlives the call.
	succeed(unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_API.into(), &raw mut asked) }).ok()?;
	Some(faults)
}

fn told(range: &Range<usize>) -> uffdio_range {
	uffdio_range { start: range.start as u64, len: range.len() as u64 }
}

fn succeed(result: libc::c_int) -> io::Result<()> {
	if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::memory::pagemap::{PAGE, tests::mapped};

	/// Pages that were there before as the file's, as copies, and not at all, beside each other.
	#[test]
	fn of_what_was_protected_only_what_is_written_afterwards_is_told() {
		const PAGES: usize = 3 * 512;
		let watch = Watch::find().unwrap();
		if !watch.tracks() {
			return eprintln!("skipped: this kernel can't note writes");
		}
		let memory = mapped(PAGES);
		let start = memory.start();
		let range = start as usize..start as usize + PAGES * PAGE;
		// SAFETY: in the mapping above, which nobody else knows.
		let write = |page: usize| unsafe { start.add(page * PAGE).write_volatile(7) };
		let read = |page: usize| {
			// SAFETY: as above.
			assert_eq!(unsafe { start.add(page * PAGE).read_volatile() }, 1, "page {page}");
		};
		let told = |protect: bool| {
			let mut found = Vec::new();
			let page = |address: usize| (address - start as usize) / PAGE;
			let each = |run: Range<usize>| found.extend(page(run.start)..page(run.end));
			watch.written(range.clone(), protect.then_some(PAGES), each).unwrap();
			found
		};
		(0..512).step_by(64).for_each(read);
		(1..1024).step_by(2).for_each(write);
		watch.begin(&range).unwrap();
		assert_eq!(told(true), (1..1024).step_by(2).collect::<Vec<_>>());
		assert_eq!((told(false), told(true)), (vec![], vec![]));
		// The file's, its own, one that wasn't there, and one that is read meanwhile.
		[64, 129, 500, 1100].into_iter().for_each(write);
		read(1024);
		assert_eq!(told(false), [64, 129, 500, 1100]);
		assert_eq!(told(true), [64, 129, 500, 1100]);
		write(1024);
		write(128);
		assert_eq!((told(false), told(true)), (vec![128, 1024], vec![128, 1024]));
		watch.end(&range).unwrap();
	}
}
