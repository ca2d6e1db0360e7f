//! New open files, and how they take the places of old ones.

use super::{
	frozen::{Entry, PATH},
	raw::numeric,
};
use crate::{
	proc::text::ProcPath,
	sys::{self, Errno, Result},
};
use core::ffi::CStr;
use linux_raw_sys::general as k;
use syscalls::Sysno;

/// `dup3(2)`.
pub fn duplicate_to(fd: i32, number: i32, flags: usize) -> Result<()> {
	numeric(Sysno::dup3, [fd as usize, number as usize, flags]).map(drop)
}

/// Puts a new descriptor in place of an old one.
pub fn place(new: i32, entry: &Entry) -> Result<()> {
	let placed = duplicate_to(new, entry.number, entry.close_on_exec());
	sys::close(new);
	placed
}

/// Sets what of the flags of an open file can be set.
pub fn set_flags(fd: i32, entry: &Entry) {
	const F_SETFL: usize = 4;
	let _ = numeric(Sysno::fcntl, [fd as usize, F_SETFL, entry.info.flags as usize]);
}

/// Opens a file again, at the same position.
pub fn open_again(entry: &Entry) -> Result<i32> {
	const ONCE: u32 = k::O_CREAT | k::O_EXCL | k::O_TRUNC | k::O_NOFOLLOW;
	let own = under_own_mounts(entry.number);
	let path = ProcPath::of_this_thread().push(b"/fd/").number(own.unwrap_or(entry.number));
	let opened = sys::open(path.as_c(), entry.info.flags & !ONCE);
	if let Ok(own) = own {
		sys::close(own);
	}
	let new = opened?;
	if entry.info.flags & k::O_PATH != 0 {
		return Ok(new);
	}
	// ext4 finds a directory empty that was first read at its end, wherever it is read next.
	let _ = sys::getdents(new, &mut [0; 512]);
	sys::set_file_offset(new, entry.info.position).map(|()| new).inspect_err(|_| sys::close(new))
}

/// By its name, as something to open it by: between the mounts of two namespaces nothing is renamed or linked. An
/// error: that name is another's now, or nobody's.
pub fn under_own_mounts(fd: i32) -> Result<i32> {
	let mut name = [0; PATH];
	sys::readlink(ProcPath::of_this_thread().push(b"/fd/").number(fd).as_c(), &mut name[..PATH - 1])?;
	let path = CStr::from_bytes_until_nul(&name).map_err(|_| Errno::ENAMETOOLONG)?;
	let found = sys::open(path, k::O_PATH | k::O_NOFOLLOW)?;
	if sys::identity(found)? == sys::identity(fd)? {
		return Ok(found);
	}
	sys::close(found);
	Err(Errno::ENOENT)
}
