//! Memory files: made, sealed, and checked when they come from elsewhere.

use flashfork_proto::shape::Pages;
use rustix::{
	fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create},
	io::Errno,
};
use std::{
	os::fd::{AsFd, OwnedFd},
	time::Duration,
};

/// What a template's memory must have: nobody can ever write to it, or make it shorter (a clone would get `SIGBUS`) or
/// longer.
const SEALS: SealFlags = SealFlags::WRITE.union(SIZE);

/// What every memory file has.
const SIZE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Why a memory file can't be made or used.
#[derive(Debug, thiserror::Error)]
pub enum MemfdError {
	/// No room, or no 2 MB pages reserved.
	#[error("cannot create a memory file of {mib} MB: {cause}{hint}", hint = huge_hint(.page))]
	Create {
		/// Its size.
		mib: u64,
		/// Its pages.
		page: Pages,
		/// As the kernel says.
		cause: Errno,
	},
	/// `EBUSY`: somebody still has it mapped for writing.
	#[error("cannot seal the memory file: {0}; is it still mapped for writing?")]
	Seal(Errno),
	/// Another file than a memory file.
	#[error("not a memory file")]
	NotMemfd,
	/// It could change or shrink while it is mapped.
	#[error("the memory file is not sealed against writing, shrinking and growing")]
	NotSealed,
	/// It has another size.
	#[error("the memory file has {found} bytes, {expected} were expected")]
	Size {
		/// Of the file.
		found: u64,
		/// Of the shape.
		expected: u64,
	},
}

fn huge_hint(page: &Pages) -> &'static str {
	match page {
		Pages::Small => "",
		Pages::Huge => "; reserve 2 MB pages in /proc/sys/vm/nr_hugepages",
	}
}

/// A new memory file of `bytes`, all zero, that can be sealed later; it keeps its size. `name` shows in /proc/PID/maps.
pub fn create(name: &str, bytes: u64, page: Pages) -> Result<OwnedFd, MemfdError> {
	let failed = |cause| MemfdError::Create { mib: bytes >> 20, page, cause };
	let huge = match page {
		Pages::Small => MemfdFlags::empty(),
		Pages::Huge => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
	};
	let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | huge).map_err(failed)?;
	ftruncate(&file, bytes).map_err(failed)?;
	// Who gets it can't make it more.
	fcntl_add_seals(&file, SIZE).map_err(failed)?;
	Ok(file)
}

/// Makes `file` immutable for ever. No writable shared mapping of it may exist.
///
/// Waits up to a second for who has hold of a page or mapping for a moment only: another processor that has it in hand
/// (`memfd_wait_for_pins` in the kernel), a child between fork and exec.
pub fn seal(file: impl AsFd) -> Result<(), MemfdError> {
	const ATTEMPTS: usize = 100;
	for _ in 1..ATTEMPTS {
		match fcntl_add_seals(&file, SEALS) {
			Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(10)),
			done => return done.map_err(MemfdError::Seal),
		}
	}
	fcntl_add_seals(file, SEALS).map_err(MemfdError::Seal)
}

/// Whether `file`, which came from elsewhere, is an immutable memory file of exactly `bytes`.
pub fn check(file: impl AsFd, bytes: u64) -> Result<(), MemfdError> {
	check_seals(file, bytes, SEALS)
}

/// Whether `file`, which came from elsewhere, is a memory file of exactly `bytes`, and stays that long.
pub fn check_size(file: impl AsFd, bytes: u64) -> Result<(), MemfdError> {
	check_seals(file, bytes, SIZE)
}

fn check_seals(file: impl AsFd, bytes: u64, wanted: SealFlags) -> Result<(), MemfdError> {
	let seals = fcntl_get_seals(&file).map_err(|_| MemfdError::NotMemfd)?;
	if !seals.contains(wanted) {
		return Err(MemfdError::NotSealed);
	}
	let found = fstat(&file).map_err(|_| MemfdError::NotMemfd)?.st_size as u64;
	if found != bytes {
		return Err(MemfdError::Size { found, expected: bytes });
	}
	Ok(())
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn only_a_sealed_memory_file_of_the_right_size_passes() {
		let file = create("flashfork:test", 4096, Pages::Small).unwrap();
		assert!(matches!(check(&file, 4096), Err(MemfdError::NotSealed)));
		check_size(&file, 4096).unwrap();
		assert_eq!(ftruncate(&file, 8192), Err(Errno::PERM));
		seal(&file).unwrap();
		check(&file, 4096).unwrap();
		assert!(matches!(check(&file, 8192), Err(MemfdError::Size { found: 4096, expected: 8192 })));
		let disk = tempfile::tempfile().unwrap();
		assert!(matches!(check(&disk, 0), Err(MemfdError::NotMemfd | MemfdError::NotSealed)));
	}
}
