//! The calling thread, and words on which threads wait for each other.

use super::raw::{Result, call};
use core::sync::atomic::AtomicU32;
use syscalls::Sysno;

/// The head of this thread's robust futex list (`get_robust_list(2)`): the kernel reads and writes there at exit.
pub fn robust_list() -> Option<(usize, usize)> {
	let (mut head, mut len) = (0usize, 0usize);
	// SAFETY: both pointers are to locals of the right size.
	unsafe { call(Sysno::get_robust_list, [0, &raw mut head as usize, &raw mut len as usize]) }.ok()?;
	(head != 0).then_some((head, len))
}

/// The thread pointer: where libc keeps the thread's control block, its rseq area among it.
pub fn thread_pointer() -> Result<usize> {
	const ARCH_GET_FS: usize = 0x1003;
	let mut fs = 0usize;
	// SAFETY: the kernel writes one word to a local.
	unsafe { call(Sysno::arch_prctl, [ARCH_GET_FS, &raw mut fs as usize]) }.map(|_| fs)
}

/// Sleeps while `*word` is `value` (`futex(2)`). Waking early is harmless: callers look again.
pub fn futex_wait(word: &AtomicU32, value: u32) {
	const FUTEX_WAIT: usize = 0;
	// SAFETY: the kernel reads the word.
	let _ = unsafe { call(Sysno::futex, [word.as_ptr() as usize, FUTEX_WAIT, value as usize, 0]) };
}

/// The same for so many nanoseconds at most, under a second.
pub fn futex_wait_for(word: &AtomicU32, value: u32, ns: u64) {
	const FUTEX_WAIT: usize = 0;
	let t = [0u64, ns];
	// SAFETY: the kernel reads the word and one struct timespec.
	let _ = unsafe { call(Sysno::futex, [word.as_ptr() as usize, FUTEX_WAIT, value as usize, t.as_ptr() as usize]) };
}

/// Wakes all who sleep on `word`.
pub fn futex_wake(word: &AtomicU32) {
	const FUTEX_WAKE: usize = 1;
	// SAFETY: the kernel only uses the address.
	let _ = unsafe { call(Sysno::futex, [word.as_ptr() as usize, FUTEX_WAKE, i32::MAX as usize]) };
}

/// Whether a process with one thread is told its own number: a filter may answer in the kernel's place (seccomp(2)).
pub fn knows_itself() -> bool {
	let me = super::getpid();
	me > 0 && me == gettid()
}

/// The thread's id.
pub fn gettid() -> i32 {
	// SAFETY: no arguments, can't fail.
	unsafe { call(Sysno::gettid, []) }.map_or(0, |t| t as i32)
}
