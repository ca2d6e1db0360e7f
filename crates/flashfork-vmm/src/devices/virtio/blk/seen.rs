//! Whether a disk's image is what it was: whoever changes it changes the disk of all that was made of it.

use super::DiskError;
use rustix::fs::{FileType, Stat, fstat};
use serde::{Deserialize, Serialize};
use std::{
	io,
	os::fd::{AsFd, AsRawFd},
	path::{Path, PathBuf},
};

/// An image as it was when it was first used. Changes of a block device can't be noticed, nor, in a tmpfs, those
/// through a mapping written to before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Seen {
	path: PathBuf,
	stamp: Option<Stamp>,
}

/// Device, inode, bytes, and the times of the last change of content and of inode. Nobody can set the last.
type Stamp = [i64; 7];

fn stamp(stat: &Stat) -> Option<Stamp> {
	let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
	is_file.then_some([
		stat.st_dev.cast_signed(),
		stat.st_ino.cast_signed(),
		stat.st_size,
		stat.st_mtime,
		stat.st_mtime_nsec.cast_signed(),
		stat.st_ctime,
		stat.st_ctime_nsec.cast_signed(),
	])
}

/// Has the file written out: while a page is dirty, who has mapped it writes on without the file's times being set.
fn clean(image: impl AsFd) -> Result<(), DiskError> {
	let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
	// SAFETY: a call on numbers, which changes no file's content.
	if unsafe { libc::sync_file_range(image.as_fd().as_raw_fd(), 0, 0, all) } < 0 {
		return Err(DiskError::Image(io::Error::last_os_error()));
	}
	Ok(())
}

impl Seen {
	/// The image opened at `path`.
	///
	/// # Errors
	/// [`DiskError::Image`].
	pub fn now(path: &Path, image: impl AsFd) -> Result<Self, DiskError> {
		clean(&image)?;
		let stat = fstat(image).map_err(|e| DiskError::Image(e.into()))?;
		Ok(Self { path: path.to_owned(), stamp: stamp(&stat) })
	}

	/// Whether it still is the same.
	///
	/// # Errors
	/// [`DiskError::Changed`].
	pub fn check(&self, image: impl AsFd) -> Result<(), DiskError> {
		let stat = fstat(image).map_err(|e| DiskError::Image(e.into()))?;
		if stamp(&stat) == self.stamp { Ok(()) } else { Err(DiskError::Changed(self.path.clone())) }
	}
}
