//! Files that users name.

use rustix::fs::{FileType, Mode, OFlags, fcntl_setfl, fstat, open as place_of};
use std::{
	fs::File,
	io,
	os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
	path::Path,
};

/// Opens what can be read without waiting for somebody who writes: a file or a block device. What it is comes first: to
/// be opened does something to other devices, and a terminal may become this process's own.
pub(crate) fn open(path: &Path) -> io::Result<File> {
	let place = place_of(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
	if !matches!(FileType::from_raw_mode(fstat(&place)?.st_mode), FileType::RegularFile | FileType::BlockDevice) {
		return Err(io::Error::other("it is neither a file nor a block device"));
	}
	// Nor for who has a lease of the file.
	let flags = OFlags::NONBLOCK.bits().cast_signed();
	let file = File::options().read(true).custom_flags(flags).open(format!("/proc/self/fd/{}", place.as_raw_fd()))?;
	fcntl_setfl(&file, OFlags::empty())?;
	Ok(file)
}
