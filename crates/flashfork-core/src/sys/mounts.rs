//! A tmpfs that is mounted nowhere, and what its files need.

use super::raw::{Result, call};
use core::ffi::CStr;
use linux_raw_sys::general as k;
use syscalls::Sysno;

const CLOEXEC: usize = 1; // FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC
const SET_STRING: usize = 1; // FSCONFIG_SET_STRING
const CREATE: usize = 6; // FSCONFIG_CMD_CREATE

/// Makes a tmpfs with these options; gives the descriptor of its mount, which is attached nowhere and gone with the
/// last of its files (`fsopen(2)`, `fsconfig(2)`, `fsmount(2)`, Linux 5.2). `EPERM` for whoever may not mount.
pub fn mount_tmpfs(options: &[(&CStr, &CStr)]) -> Result<i32> {
	// SAFETY: a NUL-terminated string.
	let context = unsafe { call(Sysno::fsopen, [c"tmpfs".as_ptr() as usize, CLOEXEC]) }?;
	let set = |(key, value): &(&CStr, &CStr)| {
		let (key, value) = (key.as_ptr() as usize, value.as_ptr() as usize);
		// SAFETY: NUL-terminated strings.
		unsafe { call(Sysno::fsconfig, [context, SET_STRING, key, value, 0]) }.map(drop)
	};
	let mounted = options.iter().try_for_each(set).and_then(|()| {
		// SAFETY: no memory is passed.
		unsafe {
			call(Sysno::fsconfig, [context, CREATE, 0, 0, 0])?;
			call(Sysno::fsmount, [context, CLOEXEC, 0])
		}
	});
	super::close(context as i32);
	mounted.map(|fd| fd as i32)
}

/// Makes a mount read-only for good, as long as nobody has a file of it open for writing: `EBUSY` then
/// (`mount_setattr(2)`, Linux 5.12).
pub fn make_read_only(mount: i32) -> Result<()> {
	const MOUNT_ATTR_RDONLY: u64 = 1;
	// struct mount_attr: attr_set, attr_clr, propagation, userns_fd.
	let attributes = [MOUNT_ATTR_RDONLY, 0, 0, 0];
	let (path, flags) = (c"".as_ptr() as usize, k::AT_EMPTY_PATH as usize);
	let (at, len) = (attributes.as_ptr() as usize, size_of_val(&attributes));
	// SAFETY: an empty path, and one struct mount_attr to read.
	unsafe { call(Sysno::mount_setattr, [mount as usize, path, flags, at, len]) }.map(drop)
}

/// Makes a file in an open directory; gives a descriptor to write it by and one to read it by, and takes its name away.
pub fn make_file(directory: i32, name: &CStr) -> Result<[i32; 2]> {
	let open = |flags: u32| {
		let (name, flags) = (name.as_ptr() as usize, (flags | k::O_CLOEXEC) as usize);
		// SAFETY: a NUL-terminated string.
		unsafe { call(Sysno::openat, [directory as usize, name, flags, 0o600]) }.map(|fd| fd as i32)
	};
	let write = open(k::O_RDWR | k::O_CREAT | k::O_EXCL)?;
	let read = open(k::O_RDONLY);
	// SAFETY: a NUL-terminated string.
	let unlinked = unsafe { call(Sysno::unlinkat, [directory as usize, name.as_ptr() as usize, 0]) };
	match (read, unlinked) {
		(Ok(read), Ok(_)) => Ok([write, read]),
		(read, unlinked) => {
			super::close(write);
			let read = read.inspect(|read| super::close(*read));
			Err(read.err().or(unlinked.err()).unwrap_or(syscalls::Errno::EIO))
		}
	}
}

/// The size of blocks by which an open file is best written (`st_blksize`).
pub fn block_size(fd: i32) -> Result<u64> {
	let mut stat = [0u64; 18];
	// SAFETY: struct stat is 18 words on this architecture; the eighth is st_blksize.
	unsafe { call(Sysno::fstat, [fd as usize, stat.as_mut_ptr() as usize]) }.map(|_| stat[7])
}

/// Major and minor number of the kernel (`uname(2)`).
pub fn kernel_version() -> Result<(u32, u32)> {
	const LEN: usize = 65;
	let mut names = [0u8; 6 * LEN];
	// SAFETY: struct new_utsname is six strings of this length.
	unsafe { call(Sysno::uname, [names.as_mut_ptr() as usize]) }?;
	let mut numbers = names[2 * LEN..3 * LEN].split(|byte| !byte.is_ascii_digit());
	let mut next = || {
		let digits = numbers.next()?;
		digits.iter().try_fold(0u32, |sum, digit| sum.checked_mul(10)?.checked_add(u32::from(digit - b'0')))
	};
	next().zip(next()).ok_or(syscalls::Errno::EINVAL)
}
