//! Runs something beside the program, in its memory, with descriptors apart: where the program's table is full, or its
//! limit low, `/proc` can still be read; and where others use that table ([`super::table`]), none of these descriptors
//! is inherited by a child that one of them forks, takes the number that one of them is about to get, or is replaced
//! by one of theirs.
//!
//! Whoever does it has all signals blocked and leaves nothing behind: a thread where there are others, because one of
//! them may wait for any child at all (`__WALL`), and a process where nobody can, because its limits are its own.

use super::table;
use crate::{
	scratch,
	state::STATE,
	sys::{self, Errno, RLIMIT_NOFILE, Result},
};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use linux_raw_sys::general as k;

const STACK: usize = 256 * 1024;
/// How often others are let run until a thread that has ended is gone, and for how many milliseconds it is waited then,
/// because it may have been running on a processor that the host has taken away. A number that is soon in use again is
/// no reason to wait for ever.
const PATIENCE: usize = 1000;
const LONGER: usize = 200;
const DESCRIPTORS: u64 = 16;

/// Who does it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Who {
	/// A thread whose table is empty.
	Thread,
	/// A thread whose table begins as a copy of the program's.
	ThreadWithCopy,
	/// The same, by no call that a program with threads doesn't make: for before anything is known of a filter. It may
	/// count for a moment longer.
	Reader,
	/// A child that only `__WALL` and `__WCLONE` wait for. May have descriptors whatever the program's limit is.
	Process,
}

struct Job<F> {
	who: Who,
	f: Option<F>,
	done: Result<()>,
}

/// Asks the kernel what is mapped: that way where others use the table, or where it can't be done otherwise. A sandbox
/// might end a program that starts a process.
pub fn ask(mut f: impl FnMut() -> Result<()>) -> Result<()> {
	if STATE.is_sandboxed() {
		return f();
	}
	let alone = table::is_own();
	let here = if alone { f() } else { Err(Errno::EAGAIN) };
	if here.is_ok() {
		return here;
	}
	let mut asked = false;
	let mut by = |who| {
		run(who, || {
			asked = true;
			f()
		})
	};
	let there = match by(if alone { Who::Process } else { Who::Thread }) {
		// The limit allows no descriptor at all.
		Err(Errno::EMFILE) if !alone => by(Who::Process),
		there => there,
	};
	match (asked, alone) {
		(true, _) => there,
		(false, true) => here,
		// No thread is to be had (`RLIMIT_NPROC`).
		(false, false) => f(),
	}
}

/// Takes a look that can as well be left: in the program's table only where nobody else uses it.
pub fn look(f: impl FnOnce() -> Result<()>) -> Result<()> {
	if STATE.is_sandboxed() || table::is_own() { f() } else { run(Who::Thread, f) }
}

/// Runs `f` that way; gives what it says.
pub fn run<F: FnOnce() -> Result<()>>(who: Who, f: F) -> Result<()> {
	let mask = sys::block_signals()?;
	let stack = scratch::map(STACK).inspect_err(|_| sys::restore_signals(mask))?;
	// SAFETY: the stack was made for it.
	let done = unsafe { run_on(stack + STACK, who, f) };
	// SAFETY: nobody uses it any more. A failure would leak the mapping, no more.
	let _ = unsafe { sys::munmap(stack, STACK) };
	sys::restore_signals(mask);
	done
}

/// The same on a stack that ends at `top`, with all signals blocked.
///
/// # Safety
/// The stack is a writable mapping large enough for `f`, used by nobody else meanwhile.
pub(super) unsafe fn run_on<F: FnOnce() -> Result<()>>(top: usize, who: Who, f: F) -> Result<()> {
	const SHARED: u32 = k::CLONE_VM | k::CLONE_FS | k::CLONE_UNTRACED;
	const THREAD: u32 = k::CLONE_THREAD | k::CLONE_SIGHAND | k::CLONE_SYSVSEM;
	const WCLONE: u32 = 0x8000_0000;
	let flags = SHARED
		| match who {
			Who::Thread => THREAD | k::CLONE_FILES,
			Who::ThreadWithCopy | Who::Reader => THREAD,
			Who::Process => k::CLONE_FILES,
		};
	let (alive, mut job) = (AtomicU32::new(0), Job { who, f: Some(f), done: Err(Errno::ESRCH) });
	// SAFETY: the stack is its own; the job and the word outlive it, because it is waited for below, and nobody else
	// uses them.
	let child = unsafe { crate::stack::clone_on(top, flags as usize, &alive, start::<F>, (&raw mut job).cast()) };
	if let Ok(child) = child {
		loop {
			match alive.load(SeqCst) {
				0 => break,
				other => sys::futex_wait(&alive, other),
			}
		}
		match who {
			// The kernel says a moment early that it is over, and nobody shall count it then.
			Who::Thread | Who::ThreadWithCopy => wait_until_gone(child),
			Who::Reader => {}
			// Somebody else may have waited for it (`__WALL`).
			Who::Process => drop(sys::wait(child, WCLONE)),
		}
	}
	// SAFETY: written by who has ended, behind the compiler's back.
	child.and_then(|_| unsafe { core::ptr::read_volatile(&raw const job.done) })
}

/// Waits until a thread that has ended is no longer listed. Others are let run only where it is: on a busy machine that
/// takes milliseconds.
fn wait_until_gone(thread: i32) {
	for turn in 0..PATIENCE + LONGER {
		if sys::tgkill(sys::getpid(), thread, 0).is_err() {
			break;
		}
		if turn < PATIENCE { sys::give_way() } else { sys::pause_briefly() }
	}
}

/// In a process of the engine's: has it open what it needs. Limits are each process's own; where the hard one can't be
/// lifted it is as it is.
pub(super) fn lift_limit() {
	if let Ok([_, hard]) = sys::getrlimit(RLIMIT_NOFILE) {
		let most = hard.max(DESCRIPTORS);
		let _ = sys::setrlimit(RLIMIT_NOFILE, [most, most]).or_else(|_| sys::setrlimit(RLIMIT_NOFILE, [hard, hard]));
	}
}

extern "C" fn start<F: FnOnce() -> Result<()>>(job: *mut u8) -> ! {
	// SAFETY: whoever made this task passes its own Job<F> and leaves it alone until the end of the task.
	let job = unsafe { &mut *job.cast::<Job<F>>() };
	let who = job.who;
	let left = match who {
		Who::Thread | Who::Process => sys::leave_descriptors(),
		Who::ThreadWithCopy | Who::Reader => Ok(()),
	};
	job.done = left.and_then(|()| {
		if who == Who::Process {
			lift_limit();
		}
		job.f.take().map_or(Err(Errno::ESRCH), |f| f())
	});
	match who {
		Who::Thread | Who::ThreadWithCopy | Who::Reader => sys::exit_thread(),
		Who::Process => sys::exit(0),
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn has_descriptors_of_its_own_and_the_same_memory() {
		let kept = sys::open(c"/dev/null", sys::O_RDONLY).unwrap();
		for who in [Who::Thread, Who::ThreadWithCopy, Who::Process] {
			let (mut opened, mut pid, mut thread) = (-1, 0, 0);
			let said = run(who, || {
				opened = sys::open(c"/dev/null", sys::O_RDONLY)?;
				(pid, thread) = (sys::getpid(), sys::gettid());
				Err(Errno::ENOSPC)
			});
			assert_eq!(said, Err(Errno::ENOSPC));
			assert_eq!(opened == 0, who != Who::ThreadWithCopy, "an empty table");
			assert_eq!(pid == sys::getpid(), who != Who::Process);
			assert!(pid != 0 && thread != sys::gettid());
			assert!(sys::identity(kept).is_ok(), "which is not the caller's");
		}
		sys::close(kept);
	}
}
