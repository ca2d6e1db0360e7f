//! The statistics that the shim in every process of the program adds to.

use flashfork_core::stats::Stats;
use memmap2::MmapMut;
use rustix::{
	fs::{MemfdFlags, memfd_create},
	process::{Resource, getrlimit},
};
use std::{
	fs::File,
	io::{self, ErrorKind, Write},
	os::fd::AsRawFd,
	path::PathBuf,
};

/// A memfd that holds a `Stats`, mapped shared. It needs no directory, and is gone with this command, however that
/// ends.
pub struct SharedStats {
	file: File,
	map: MmapMut,
}

impl SharedStats {
	/// Makes it with all counters zero.
	pub fn create() -> io::Result<SharedStats> {
		let mut bytes = vec![0; size_of::<Stats>()];
		bytes[..8].copy_from_slice(&Stats::MAGIC.to_ne_bytes());
		// Beyond the limit, which goes for memfds too, a write would come with a signal (SIGXFSZ).
		if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes.len() as u64) {
			return Err(ErrorKind::FileTooLarge.into());
		}
		let mut file = File::from(memfd_create(c"flashfork-stats", MemfdFlags::CLOEXEC)?);
		// Written, so that no page must be found later, where there may be none and a signal instead (SIGBUS).
		file.write_all(&bytes)?;
		// SAFETY: the memfd was just made; whoever else maps it only changes 64-bit counters, which are read as
		// atomics.
		let map = unsafe { MmapMut::map_mut(&file) }?;
		Ok(SharedStats { file, map })
	}

	/// Where this user's processes find it, while this one lives.
	pub fn path(&self) -> PathBuf {
		format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
	}

	/// The counters.
	pub fn get(&self) -> &Stats {
		// SAFETY: the mapping is page-aligned, as long as a Stats, and every bit pattern is a valid one; all access is
		// atomic.
		unsafe { &*self.map.as_ptr().cast::<Stats>() }
	}
}
