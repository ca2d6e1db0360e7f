//! Files and descriptors, memfds among them.

use super::{
	process::getrlimit,
	raw::{Result, call, numeric},
};
use core::ffi::CStr;
use linux_raw_sys::general as k;
use syscalls::{Errno, Sysno};

/// `memfd_create(2)`: sealable, closed on exec, and never executable where the kernel knows how to say so (6.3).
pub fn memfd_create(name: &CStr) -> Result<i32> {
	let base = k::MFD_CLOEXEC | k::MFD_ALLOW_SEALING;
	// SAFETY: `name` is a NUL-terminated string.
	let create = |flags: u32| unsafe { call(Sysno::memfd_create, [name.as_ptr() as usize, flags as usize]) };
	match create(base | k::MFD_NOEXEC_SEAL) {
		Err(Errno::EINVAL) => create(base),
		other => other,
	}
	.map(|fd| fd as i32)
}

/// `ftruncate(2)`.
pub fn ftruncate(fd: i32, len: u64) -> Result<()> {
	numeric(Sysno::ftruncate, [fd as usize, len as usize]).map(drop)
}

/// `fallocate(2)` that gives a range of a file back.
pub fn punch_hole(fd: i32, offset: u64, len: usize) -> Result<()> {
	let mode = (k::FALLOC_FL_PUNCH_HOLE | k::FALLOC_FL_KEEP_SIZE) as usize;
	numeric(Sysno::fallocate, [fd as usize, mode, offset as usize, len]).map(drop)
}

/// `fcntl(F_ADD_SEALS)`: no write, shrink, growth or further seal.
pub fn add_seals(fd: i32) -> Result<()> {
	let seals = k::F_SEAL_WRITE | k::F_SEAL_SHRINK | k::F_SEAL_GROW | k::F_SEAL_SEAL;
	numeric(Sysno::fcntl, [fd as usize, k::F_ADD_SEALS as usize, seals as usize]).map(drop)
}

/// Copies memory into a file: `pwrite64(2)` until all is written.
///
/// A source page that can't be read ends in `EFAULT`, never in a signal: that is why the copy goes through the kernel.
pub fn pwrite_all(fd: i32, addr: usize, len: usize, offset: u64) -> Result<()> {
	all(addr, len, offset, Errno::ENOSPC, |addr, len, offset| {
		// SAFETY: the kernel only reads the memory, and answers EFAULT where it can't.
		unsafe { call(Sysno::pwrite64, [fd as usize, addr, len, offset as usize]) }
	})
}

/// Copies a file's bytes into memory: `pread64(2)` until all is read.
///
/// # Safety
/// The range is writable memory whose contents may be replaced.
pub unsafe fn pread_all(fd: i32, addr: usize, len: usize, offset: u64) -> Result<()> {
	all(addr, len, offset, Errno::EIO, |addr, len, offset| {
		// SAFETY: the caller gave the range up to be overwritten.
		unsafe { call(Sysno::pread64, [fd as usize, addr, len, offset as usize]) }
	})
}

/// Calls until all bytes are through; `nothing` is what it means that a call moves none.
fn all(
	mut addr: usize,
	mut len: usize,
	mut offset: u64,
	nothing: Errno,
	call: impl Fn(usize, usize, u64) -> Result<usize>,
) -> Result<()> {
	while len > 0 {
		match call(addr, len, offset) {
			Ok(0) => return Err(nothing),
			Ok(n) => {
				addr += n;
				len -= n;
				offset += n as u64;
			}
			Err(Errno::EINTR) => {}
			Err(e) => return Err(e),
		}
	}
	Ok(())
}

/// `pread64(2)` once, into a buffer.
pub fn pread(fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
	// SAFETY: the buffer is ours to fill.
	unsafe { call(Sysno::pread64, [fd as usize, buf.as_mut_ptr() as usize, buf.len(), offset as usize]) }
}

/// `openat(2)` with the flags given, relative to the working directory.
pub fn open(path: &CStr, flags: u32) -> Result<i32> {
	// SAFETY: `path` is a NUL-terminated string.
	unsafe {
		call(Sysno::openat, [k::AT_FDCWD as isize as usize, path.as_ptr() as usize, (flags | k::O_CLOEXEC) as usize, 0])
	}
	.map(|fd| fd as i32)
}

pub const O_RDONLY: u32 = k::O_RDONLY;
pub const O_WRONLY: u32 = k::O_WRONLY;
pub const O_DIRECTORY: u32 = k::O_DIRECTORY;
/// A place in the file system, of which nothing can be read (`open(2)`).
pub const O_PATH: u32 = k::O_PATH;

/// `close(2)`. Linux releases the descriptor whatever the call answers, so there is nothing to do about an error.
pub fn close(fd: i32) {
	// SAFETY: the caller owns the descriptor.
	let _ = unsafe { call(Sysno::close, [fd as usize]) };
}

/// `read(2)` once.
pub fn read(fd: i32, buf: &mut [u8]) -> Result<usize> {
	loop {
		// SAFETY: the buffer is ours to fill.
		match unsafe { call(Sysno::read, [fd as usize, buf.as_mut_ptr() as usize, buf.len()]) } {
			Err(Errno::EINTR) => {}
			other => return other,
		}
	}
}

/// `write(2)` once.
pub fn write(fd: i32, buf: &[u8]) -> Result<usize> {
	// SAFETY: the kernel only reads the buffer.
	unsafe { call(Sysno::write, [fd as usize, buf.as_ptr() as usize, buf.len()]) }
}

/// `readlink(2)`.
pub fn readlink(path: &CStr, buf: &mut [u8]) -> Result<usize> {
	// SAFETY: a NUL-terminated path and our own buffer.
	unsafe { call(Sysno::readlink, [path.as_ptr() as usize, buf.as_mut_ptr() as usize, buf.len()]) }
}

/// The number of the character device at a path, links followed (`stat(2)`); none when it is something else.
pub fn character_device(path: &CStr) -> Result<Option<u64>> {
	let mut stat = [0u64; 18];
	// SAFETY: a NUL-terminated path, and a struct stat to write to.
	unsafe {
		let at = k::AT_FDCWD as isize as usize;
		call(Sysno::newfstatat, [at, path.as_ptr() as usize, stat.as_mut_ptr() as usize, 0])
	}?;
	Ok(character_device_in(&stat))
}

/// The number of the character device that is open as `fd`; none when it is something else (`fstat(2)`).
pub fn device_of(fd: i32) -> Result<Option<u64>> {
	let mut stat = [0u64; 18];
	// SAFETY: a struct stat to write to.
	unsafe { call(Sysno::fstat, [fd as isize as usize, stat.as_mut_ptr() as usize]) }?;
	Ok(character_device_in(&stat))
}

/// Struct stat is 18 words on this architecture: st_dev, st_ino, st_nlink, st_mode and st_uid, ..., st_rdev.
fn character_device_in(stat: &[u64; 18]) -> Option<u64> {
	const S_IFMT: u64 = 0o170_000;
	const S_IFCHR: u64 = 0o020_000;
	(stat[3] & S_IFMT == S_IFCHR).then_some(stat[5])
}

/// `getdents64(2)`.
pub fn getdents(fd: i32, buf: &mut [u8]) -> Result<usize> {
	// SAFETY: the buffer is ours to fill.
	unsafe { call(Sysno::getdents64, [fd as usize, buf.as_mut_ptr() as usize, buf.len()]) }
}

/// The protocol family of a socket (`SO_DOMAIN`), or the error `getsockopt(2)` gave.
pub fn socket_domain(fd: i32) -> Result<i32> {
	const SOL_SOCKET: usize = 1;
	const SO_DOMAIN: usize = 39;
	let mut value = 0i32;
	let mut len = 4u32;
	// SAFETY: both pointers are to locals of the right size.
	unsafe {
		call(Sysno::getsockopt, [fd as usize, SOL_SOCKET, SO_DOMAIN, &raw mut value as usize, &raw mut len as usize])
	}
	.map(|_| value)
}

/// `ioctl(2)` with a pointer argument.
///
/// # Safety
/// `arg` points to what the request expects.
pub unsafe fn ioctl(fd: i32, request: usize, arg: usize) -> Result<usize> {
	// SAFETY: see above.
	unsafe { call(Sysno::ioctl, [fd as usize, request, arg]) }
}

/// `io_uring_setup(2)`. Returns the descriptor, or the index where it is registered.
///
/// # Safety
/// As the call: the kernel writes `params`, and later whatever is submitted.
pub unsafe fn io_uring_setup(entries: usize, params: usize) -> Result<usize> {
	// SAFETY: see above.
	unsafe { call(Sysno::io_uring_setup, [entries, params]) }
}

/// `io_uring_register(2)`.
///
/// # Safety
/// As the call.
pub unsafe fn io_uring_register(fd: usize, opcode: usize, arg: usize, count: usize) -> Result<usize> {
	// SAFETY: see above.
	unsafe { call(Sysno::io_uring_register, [fd, opcode, arg, count]) }
}

/// Leaves a shared descriptor table for an empty one of one's own (`close_range(2)`, Linux 5.9).
pub fn leave_descriptors() -> Result<()> {
	const CLOSE_RANGE_UNSHARE: usize = 2;
	// SAFETY: no memory is passed; what the caller has open it doesn't use any more.
	unsafe { call(Sysno::close_range, [0, u32::MAX as usize, CLOSE_RANGE_UNSHARE]) }.map(drop)
}

/// A duplicate of another process's descriptor (`pidfd_getfd(2)`, Linux 5.6).
pub fn pidfd_getfd(pidfd: i32, fd: i32) -> Result<i32> {
	numeric(Sysno::pidfd_getfd, [pidfd as usize, fd as usize, 0]).map(|fd| fd as i32)
}

/// The offset of an open file (`lseek(2)`). `ESPIPE`: it has none.
pub fn file_offset(fd: i32) -> Result<u64> {
	numeric(Sysno::lseek, [fd as usize, 0, k::SEEK_CUR as usize]).map(|at| at as u64)
}

/// Sets the offset of an open file.
pub fn set_file_offset(fd: i32, offset: u64) -> Result<()> {
	numeric(Sysno::lseek, [fd as usize, offset as usize, k::SEEK_SET as usize]).map(drop)
}

/// Closes the descriptors from `first` to `last`, those that are open (`close_range(2)`).
pub fn close_range(first: i32, last: i32) -> Result<()> {
	numeric(Sysno::close_range, [first as usize, last as usize, 0]).map(drop)
}

/// Whether a descriptor is open.
pub fn is_open(fd: i32) -> bool {
	numeric(Sysno::fcntl, [fd as usize, k::F_GETFD as usize]).is_ok()
}

/// A second descriptor for the same file, numbered `least` or above, closed on exec.
pub fn duplicate_above(fd: i32, least: i32) -> Result<i32> {
	numeric(Sysno::fcntl, [fd as usize, k::F_DUPFD_CLOEXEC as usize, least as usize]).map(|fd| fd as i32)
}

/// Gives a descriptor a high number, so that the program finds the numbers free that it expects. Not the highest: what
/// goes through all numbers of a process (forks, close_range, /proc/self/fd) would take longer.
pub fn out_of_the_way(fd: i32) -> i32 {
	let most = getrlimit(k::RLIMIT_NOFILE).map_or(256, |[soft, _]| soft.min(256)) as i32;
	// From near the end, where nothing is, on.
	let moved = (1..=8).find_map(|eighths| duplicate_above(fd, most - 1 - (eighths - 1) * most / 8).ok());
	moved.inspect(|_| close(fd)).unwrap_or(fd)
}

/// `userfaultfd(2)`, without waiting.
pub fn userfaultfd(flags: usize) -> Result<i32> {
	let flags = flags | (k::O_CLOEXEC | k::O_NONBLOCK) as usize;
	numeric(Sysno::userfaultfd, [flags]).map(|fd| fd as i32)
}

/// Device and inode number of an open file (`fstat(2)`). No two files that are there at the same time have both.
pub fn identity(fd: i32) -> Result<(u64, u64)> {
	let mut stat = [0u64; 18];
	// SAFETY: struct stat is 18 words on this architecture: st_dev, st_ino, ...
	unsafe { call(Sysno::fstat, [fd as usize, stat.as_mut_ptr() as usize]) }.map(|_| (stat[0], stat[1]))
}

/// What tells a version of a file from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
	/// Its device.
	pub device: u64,
	/// Its inode.
	pub inode: u64,
	/// Whether it is an ordinary file.
	pub regular: bool,
	/// Its length in bytes.
	pub size: u64,
	/// When it was last changed, its attributes among it: seconds and nanoseconds.
	pub changed: [u64; 2],
}

impl Status {
	/// From struct stat, 18 words on this architecture: st_dev, st_ino, st_nlink, st_mode and st_uid, st_gid, st_rdev,
	/// st_size, st_blksize, st_blocks, st_atim, st_mtim, st_ctim.
	fn new(stat: &[u64; 18]) -> Status {
		const S_IFMT: u64 = 0o170_000;
		const S_IFREG: u64 = 0o100_000;
		let regular = stat[3] & S_IFMT == S_IFREG;
		Status { device: stat[0], inode: stat[1], regular, size: stat[6], changed: [stat[13], stat[14]] }
	}
}

/// `stat(2)`.
pub fn status(path: &CStr) -> Result<Status> {
	let mut stat = [0u64; 18];
	// SAFETY: a NUL-terminated path, and a struct stat to write to.
	unsafe { call(Sysno::stat, [path.as_ptr() as usize, stat.as_mut_ptr() as usize]) }.map(|_| Status::new(&stat))
}

/// The same for a path that begins at an open directory.
pub fn status_at(directory: i32, path: &CStr) -> Result<Status> {
	let (mut stat, at) = ([0u64; 18], directory as isize as usize);
	// SAFETY: a NUL-terminated path, and a struct stat to write to.
	unsafe { call(Sysno::newfstatat, [at, path.as_ptr() as usize, stat.as_mut_ptr() as usize, 0]) }
		.map(|_| Status::new(&stat))
}

/// The same for an open file. By `fstatat(2)`, which a program's loader makes, too: this is asked before it is known
/// what a filter lets the engine do.
pub fn fstatus(fd: i32) -> Result<Status> {
	let mut stat = [0u64; 18];
	let (path, at) = (c"".as_ptr() as usize, stat.as_mut_ptr() as usize);
	// SAFETY: an empty path, and a struct stat to write to.
	unsafe { call(Sysno::newfstatat, [fd as isize as usize, path, at, k::AT_EMPTY_PATH as usize]) }
		.map(|_| Status::new(&stat))
}

/// A device's number as `stat(2)` gives it, of the two numbers that lists of mappings have (`new_encode_dev` in
/// include/linux/kdev_t.h).
pub fn device([major, minor]: [u32; 2]) -> u64 {
	u64::from(minor & 0xff | major << 8 | (minor & !0xff) << 12)
}
