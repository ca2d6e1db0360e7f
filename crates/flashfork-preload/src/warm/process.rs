//! Of this process: its program and its threads.

use core::{ffi::CStr, mem::MaybeUninit};

/// Whether the name of the program's file begins so.
pub fn name_of_program(start: &[u8]) -> bool {
	let mut path = [0u8; 4096];
	// SAFETY: the buffer is as long as said.
	let len = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len()) };
	let path = path.get(..len.max(0) as usize).unwrap_or_default();
	path.rsplit(|b| *b == b'/').next().is_some_and(|name| name.starts_with(start))
}

/// Threads of this process: the directory has a link for each beside its own two.
pub fn threads() -> u64 {
	const TASKS: &CStr = c"/proc/self/task";
	// SAFETY: writes to a local; all zeros are a value of this plain C structure.
	unsafe {
		let mut stat = MaybeUninit::<libc::stat>::zeroed().assume_init();
		if libc::stat(TASKS.as_ptr(), &raw mut stat) == 0 { stat.st_nlink.saturating_sub(2) } else { 0 }
	}
}

/// Blocks all signals, those among them that glibc keeps for itself and so leaves out: of these, too, a program may
/// have handlers. What was blocked before is given back.
pub fn block_signals() -> libc::sigset_t {
	let all = u64::MAX;
	// SAFETY: the kernel reads a mask of 8 bytes, and writes one to a local, of which all zeros are a value.
	unsafe {
		let mut before = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
		libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut before, size_of::<u64>());
		before
	}
}
