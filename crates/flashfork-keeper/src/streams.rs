//! Standard output and standard error of a program. Where they are one open file, as on a terminal, nobody could tell
//! of which of them a third descriptor is a copy, and its clones' may go to two places.

use rustix::{
	fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat},
	io::{Errno, fcntl_dupfd_cloexec},
	stdio::{stderr, stdout},
};
use std::{
	io::Result,
	os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

/// An open file for each, if they are one and can be opened again: a socket can't, and in a file one would write over
/// what the other has written.
pub fn apart() -> Result<Option<[OwnedFd; 2]>> {
	if !is_one(1, 2) || FileType::from_raw_mode(fstat(stderr())?.st_mode).is_file() {
		return Ok(None);
	}
	match again(stderr()) {
		Ok(errors) => Ok(Some([fcntl_dupfd_cloexec(stdout(), 3)?, errors])),
		Err(Errno::NXIO | Errno::ACCESS | Errno::NOENT) => Ok(None),
		Err(e) => Err(e.into()),
	}
}

/// Whether two descriptors of this process are one open file (`kcmp(2)`).
fn is_one(a: i32, b: i32) -> bool {
	const KCMP_FILE: i32 = 0;
	let me = std::process::id();
	// SAFETY: takes numbers.
	unsafe { libc::syscall(libc::SYS_kcmp, me, me, KCMP_FILE, a, b) == 0 }
}

/// Opens one again. A pipe that nobody reads is not waited for.
fn again(stream: BorrowedFd<'_>) -> std::result::Result<OwnedFd, Errno> {
	let flags = fcntl_getfl(stream)?;
	let open = flags & (OFlags::ACCMODE | OFlags::APPEND) | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
	let new = rustix::fs::open(format!("/proc/self/fd/{}", stream.as_raw_fd()), open, Mode::empty())?;
	fcntl_setfl(&new, flags)?;
	Ok(new)
}
