//! The system calls of this program. What fails has no reason here: whoever can tell it in words finds it again.

use core::ffi::CStr;
use linux_raw_sys::general as sys;
use syscalls::Sysno;

/// A descriptor. None is ever closed here without a reason: the process ends soon.
pub type Fd = i32;

/// # Safety
/// As the call.
pub unsafe fn call<const N: usize>(number: Sysno, given: [usize; N]) -> Option<usize> {
	// SAFETY: as the caller says.
	unsafe { flashfork_core::system_call(number, given) }.ok()
}

/// An address, for a call.
pub fn at<T>(what: &T) -> usize {
	core::ptr::from_ref(what) as usize
}

/// An address to write to.
pub fn into<T>(what: &mut T) -> usize {
	core::ptr::from_mut(what) as usize
}

pub fn exit(code: i32) -> ! {
	loop {
		// SAFETY: ends the process.
		unsafe { call(Sysno::exit_group, [code as usize]) };
	}
}

/// Numbers that a call takes and gives.
pub fn ask<const N: usize>(number: Sysno, given: [usize; N]) -> Option<usize> {
	// SAFETY: of the callers here none passes an address.
	unsafe { call(number, given) }
}

pub fn is_open(fd: Fd) -> bool {
	ask(Sysno::fcntl, [fd as usize, sys::F_GETFD as usize]).is_some()
}

/// Opens a file; it is closed by an exec.
pub fn open(path: &CStr, flags: u32) -> Option<Fd> {
	let (here, path) = (sys::AT_FDCWD as usize, path.as_ptr() as usize);
	// SAFETY: the path ends with a NUL.
	let opened = unsafe { call(Sysno::openat, [here, path, (flags | sys::O_CLOEXEC) as usize, 0]) };
	opened.map(|fd| fd as Fd)
}

pub fn close(fd: Fd) {
	ask(Sysno::close, [fd as usize]);
}

/// What a small file begins with.
pub fn read<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
	let file = open(path, sys::O_RDONLY)?;
	// SAFETY: the buffer is as long as said.
	let count = unsafe { call(Sysno::read, [file as usize, buffer.as_mut_ptr() as usize, buffer.len()]) };
	close(file);
	buffer.get(..count?)
}

/// What `fstatat(2)` finds, without following a link.
pub fn stat(fd: Fd, path: &CStr, flags: u32) -> Option<sys::stat> {
	let mut found = core::mem::MaybeUninit::<sys::stat>::zeroed();
	let (flags, path) = ((flags | sys::AT_SYMLINK_NOFOLLOW) as usize, path.as_ptr() as usize);
	// SAFETY: the path ends with a NUL; all zeros are a value of the structure, to which the kernel writes.
	unsafe {
		call(Sysno::newfstatat, [fd as usize, path, found.as_mut_ptr() as usize, flags])?;
		Some(found.assume_init())
	}
}

/// Changes the set of blocked signals, and gives the one before.
pub fn block(how: u32, set: u64) -> u64 {
	let mut before = 0u64;
	// SAFETY: the sets are locals, of the size said.
	unsafe { call(Sysno::rt_sigprocmask, [how as usize, at(&set), into(&mut before), size_of::<u64>()]) };
	before
}

/// As the kernel has it.
#[repr(C)]
#[derive(Default)]
pub struct Action {
	handler: usize,
	flags: u64,
	restorer: usize,
	mask: u64,
}

const IGNORED: usize = 1;

pub fn is_ignored(signal: i32) -> bool {
	let mut action = Action::default();
	// SAFETY: writes to a local; nothing is set.
	let known = unsafe { call(Sysno::rt_sigaction, [signal as usize, 0, into(&mut action), size_of::<u64>()]) };
	known.is_some() && action.handler == IGNORED
}

/// Ends this process by a signal, which is blocked, as its default action does; returns where that does nothing.
pub fn end_by(signal: i32) {
	let action = Action::default();
	let set = 1u64 << (signal - 1);
	// SAFETY: the structure is a local; the default action runs no code. The one thread gets the signal.
	unsafe {
		call(Sysno::rt_sigaction, [signal as usize, at(&action), 0, size_of::<u64>()]);
	}
	let own = ask(Sysno::getpid, []).unwrap_or(0);
	ask(Sysno::tgkill, [own, own, signal as usize]);
	block(sys::SIG_UNBLOCK, set);
}
