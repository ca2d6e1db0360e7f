//! Calls that map memory, as rustix has them, but by way of libc: rustix makes them itself, and then nobody sees them.
//! A program that this library is part of would count as one that maps memory by calls of its own, and each restore
//! of its snapshots would have to ask for all mappings.

pub(crate) use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use rustix::{
	fd::{AsFd, AsRawFd},
	io::{Errno, Result},
};
use std::ffi::c_void;

fn done(result: i32) -> Result<()> {
	if result == 0 { Ok(()) } else { Err(last()) }
}

fn last() -> Errno {
	Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn mapped(at: *mut c_void) -> Result<*mut c_void> {
	if at == libc::MAP_FAILED { Err(last()) } else { Ok(at) }
}

/// `mmap(2)` of a file.
///
/// # Safety
/// As the call.
pub(crate) unsafe fn mmap(
	at: *mut c_void,
	len: usize,
	prot: ProtFlags,
	flags: MapFlags,
	file: impl AsFd,
	offset: i64,
) -> Result<*mut c_void> {
	let file = file.as_fd().as_raw_fd();
	// SAFETY: the caller says so.
	mapped(unsafe { libc::mmap(at, len, prot.bits() as i32, flags.bits() as i32, file, offset) })
}

/// `mmap(2)` of memory without a file.
///
/// # Safety
/// As the call.
pub(crate) unsafe fn mmap_anonymous(
	at: *mut c_void,
	len: usize,
	prot: ProtFlags,
	flags: MapFlags,
) -> Result<*mut c_void> {
	let flags = flags.bits() as i32 | libc::MAP_ANONYMOUS;
	// SAFETY: the caller says so.
	mapped(unsafe { libc::mmap(at, len, prot.bits() as i32, flags, -1, 0) })
}

/// `munmap(2)`.
///
/// # Safety
/// As the call.
pub(crate) unsafe fn munmap(at: *mut c_void, len: usize) -> Result<()> {
	// SAFETY: the caller says so.
	done(unsafe { libc::munmap(at, len) })
}

/// `madvise(2)`.
///
/// # Safety
/// As the call.
pub(crate) unsafe fn madvise(at: *mut c_void, len: usize, advice: Advice) -> Result<()> {
	// SAFETY: the caller says so.
	done(unsafe { libc::madvise(at, len, advice as i32) })
}

/// `mprotect(2)`.
///
/// # Safety
/// As the call.
pub(crate) unsafe fn mprotect(at: *mut c_void, len: usize, prot: MprotectFlags) -> Result<()> {
	// SAFETY: the caller says so.
	done(unsafe { libc::mprotect(at, len, prot.bits() as i32) })
}
