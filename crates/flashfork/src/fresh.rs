//! Work in a fresh child: a process with next to nothing of the caller's memory, descriptors and signals.
//!
//! Probing and measuring change a process: limits, `/proc/self` files, pinned CPUs, sealed memory. So they happen in a
//! child that the caller doesn't notice: it is made by the bare system call (no `pthread_atfork` handler runs, no fork
//! is counted), its end sends no `SIGCHLD` and a `wait` of the caller's doesn't see it.
//!
//! The caller may have threads, one of which may hold the allocator's lock: work in the child never allocates and never
//! panics. It goes through rustix, which makes system calls itself.

mod settle;
pub(crate) mod text;

use crate::memory::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::{io, ops::Deref, ptr::null_mut};

pub(crate) use settle::pin_to_one_cpu;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
	#[error("can't start a child process: {0}")]
	Start(io::Error),
	#[error("the child process was ended by signal {0}")]
	Killed(i32),
	#[error("the child process was stopped after {0} seconds without a result")]
	TimedOut(u32),
}

/// What a child may leave its results in: valid when all zeros, and shared between processes, thus atomics only.
///
/// # Safety
/// All-zero bytes must be a valid value, and all fields must be atomics or made of them.
pub(crate) unsafe trait Results {}

pub(crate) struct Shared<T: Results>(*mut T);

impl<T: Results> Shared<T> {
	pub(crate) fn new() -> io::Result<Shared<T>> {
		let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
		// SAFETY: a fresh mapping.
		Ok(Shared(unsafe { mmap_anonymous(null_mut(), size_of::<T>(), prot, flags) }?.cast()))
	}
}

impl<T: Results> Deref for Shared<T> {
	type Target = T;

	fn deref(&self) -> &T {
		// SAFETY: mapped until the drop, aligned to a page, all zeros at first, changed through atomics only.
		unsafe { &*self.0 }
	}
}

impl<T: Results> Drop for Shared<T> {
	fn drop(&mut self) {
		// SAFETY: the last use. A failure would leak the mapping, no more.
		let _ = unsafe { munmap(self.0.cast(), size_of::<T>()) };
	}
}

/// Runs `work` in a fresh child and waits for its end, at most `seconds`.
///
/// # Safety
/// `work` must not allocate, panic, take locks or return early by unwinding: it runs in the child of a process that may
/// have threads.
pub(crate) unsafe fn run<T: Results>(seconds: u32, work: impl FnOnce(&T)) -> Result<Shared<T>, ChildError> {
	let results = Shared::<T>::new().map_err(ChildError::Start)?;
	let mask = settle::block_signals();
	// SAFETY: the child does as promised and ends in `leave`.
	let pid = unsafe { clone() };
	if matches!(pid, Ok(0)) {
		settle::settle(seconds);
		work(&results);
		leave();
	}
	settle::restore_signals(&mask);
	match wait(pid.map_err(ChildError::Start)?) {
		0 => Ok(results),
		libc::SIGALRM => Err(ChildError::TimedOut(seconds)),
		signal => Err(ChildError::Killed(signal)),
	}
}

/// `clone(2)` without any flag: a fork whose end sends no signal. In the child: 0.
///
/// # Safety
/// The child must not use what other threads of the caller may hold, the allocator above all, and must end in
/// [`leave`].
pub(crate) unsafe fn clone() -> Result<i32, io::Error> {
	// SAFETY: with neither CLONE_VM nor a new stack this is a fork; the rest is the caller's to answer for.
	match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
		-1 => Err(io::Error::last_os_error()),
		pid => Ok(pid as i32),
	}
}

/// Ends a child without any exit handler.
pub(crate) fn leave() -> ! {
	// SAFETY: ends the process.
	unsafe { libc::_exit(0) }
}

/// Waits for a child that [`clone`] made; the signal that ended it, or 0.
pub(crate) fn wait(pid: i32) -> i32 {
	let mut status = 0;
	// SAFETY: the status is a local. __WALL: children without a termination signal are waited for only when asked for.
	while unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } == -1 {
		if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
			return 0;
		}
	}
	if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 }
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

	// SAFETY: atomics, for which all zeros are valid.
	unsafe impl Results for [AtomicU64; 4] {}

	#[test]
	fn the_child_is_a_process_of_its_own_with_little_memory() {
		let large = vec![1u8; 96 << 20];
		// SAFETY: the work only reads /proc and stores numbers.
		let seen = unsafe {
			run(5, |r: &[AtomicU64; 4]| {
				r[0].store(text::status_field(b"Pid:").unwrap_or(0), Relaxed);
				r[1].store(text::status_field(b"VmRSS:").unwrap_or(0), Relaxed);
				r[2].store(text::status_field(b"Threads:").unwrap_or(0), Relaxed);
			})
		}
		.unwrap();
		let [pid, rss, threads, _] = &*seen;
		assert!(![0, u64::from(std::process::id())].contains(&pid.load(Relaxed)));
		assert!((1..64 << 10).contains(&rss.load(Relaxed)), "{} KB", rss.load(Relaxed));
		assert_eq!(threads.load(Relaxed), 1);
		assert!(large.iter().all(|b| *b == 1), "the caller lost memory");
	}

	#[test]
	fn a_child_that_dies_or_hangs_is_an_error() {
		// SAFETY: the work ends itself.
		let killed = unsafe {
			run(5, |_: &[AtomicU64; 4]| {
				libc::kill(libc::getpid(), libc::SIGKILL);
			})
		};
		assert!(matches!(killed.err(), Some(ChildError::Killed(libc::SIGKILL))));
		// SAFETY: the work only waits.
		let hung = unsafe {
			run(1, |_: &[AtomicU64; 4]| {
				libc::usleep(5_000_000);
			})
		};
		assert!(matches!(hung.err(), Some(ChildError::TimedOut(1))));
	}
}
