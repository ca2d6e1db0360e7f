//! The helper: a process of its own in the same memory, which works while threads are stopped.
//!
//! It shares nothing but memory with the program: its descriptors are its own, so that none of them shows in the
//! program or is inherited by a clone that another thread makes meanwhile. It is a child that only `__WALL` and
//! `__WCLONE` wait for, blocks all signals, and dies with the thread that made it. When it dies the kernel lets all
//! threads go.

use super::{
	errand::lift_limit,
	pauses::{Asks, Pauses},
	stop::{self, Others},
	stop_by_signal::{ASKED, Desk, Handler},
};
use crate::{
	arena::Arena,
	kernel_writers::Process,
	outcome::{Error, Outcome, Step},
	range::Range,
	scratch,
	state::STATE,
	sys::{self, Errno, Result},
};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use linux_raw_sys::general as k;

const STACK: usize = 1024 * 1024;

#[repr(C, align(4096))]
struct Memory {
	stack: [u8; STACK],
	others: Others,
	desk: Desk,
	go: AtomicU32,
	/// Not 0 while the helper uses memory; [`ASKED`] while it waits for an answer.
	alive: AtomicU32,
	/// Addresses through which it writes to a memfd: given back for it when it was killed.
	window: Range,
}

impl Memory {
	fn map() -> Result<&'static mut Memory> {
		let at = scratch::map(size_of::<Memory>())?;
		// SAFETY: a fresh mapping of the right size; all-zero bytes are a valid Memory (integers, empty ranges).
		unsafe {
			// Clones that other threads make have no use for it.
			sys::madvise(at, size_of::<Memory>(), k::MADV_DONTFORK).inspect_err(|_| {
				let _ = sys::munmap(at, size_of::<Memory>());
			})?;
			Ok(&mut *(at as *mut Memory))
		}
	}

	fn range(&self) -> Range {
		let at = &raw const *self as usize;
		Range::new(at, at + size_of::<Memory>())
	}
}

struct Job<F> {
	arena: *mut Arena,
	memory: *mut Memory,
	f: Option<F>,
	pid: i32,
	thread: i32,
	by_signals: bool,
	outcome: core::result::Result<Outcome, Error>,
}

/// Runs `f` in a helper that can stop the other threads. What else forbids a seal is refused.
pub fn run<F>(arena: &mut Arena, f: F) -> core::result::Result<Outcome, Error>
where
	F: FnOnce(&mut Arena, Option<Pauses>) -> core::result::Result<Outcome, Error>,
{
	let begin = |e| Error::System(Step::Begin, e);
	let memory = Memory::map().map_err(begin)?;
	let range = memory.range();
	// SAFETY: the arena is the engine's own.
	let prepared = arena
		.push_hole(range)
		.and_then(|()| unsafe { sys::madvise(arena.range().start, arena.range().len(), k::MADV_DONTFORK) });
	let (outcome, in_use) = match prepared {
		Ok(()) => by_any_means(arena, memory, f),
		Err(e) => (Err(begin(e)), false),
	};
	if !in_use {
		// SAFETY: the helper has ended. A failure would leak the mapping, no more.
		let _ = unsafe { sys::munmap(range.start, range.len()) };
	}
	outcome
}

/// By ptrace, or by a signal where that is refused. Says too whether a thread still uses the memory.
fn by_any_means<F>(arena: &mut Arena, memory: *mut Memory, f: F) -> (core::result::Result<Outcome, Error>, bool)
where
	F: FnOnce(&mut Arena, Option<Pauses>) -> core::result::Result<Outcome, Error>,
{
	let mut f = Some(f);
	let outcome = with_helper(arena, memory, &mut f, false);
	// SAFETY: the helper, the only other user, has ended.
	let forbidden = unsafe { (*memory).others.ptrace_is_forbidden() };
	if !forbidden || f.is_none() {
		return (outcome, false);
	}
	// SAFETY: the memory stays mapped while anybody uses the desk (`Handler::end`); all its fields are atomics.
	let desk: &'static Desk = unsafe { &(*memory).desk };
	let Some(handler) = Handler::begin(desk) else { return (outcome, false) };
	let outcome = with_helper(arena, memory, &mut f, true);
	(outcome, !handler.end(desk))
}

fn with_helper<F>(
	arena: &mut Arena,
	memory: *mut Memory,
	f: &mut Option<F>,
	by_signals: bool,
) -> core::result::Result<Outcome, Error>
where
	F: FnOnce(&mut Arena, Option<Pauses>) -> core::result::Result<Outcome, Error>,
{
	const FLAGS: usize = (k::CLONE_VM | k::CLONE_FILES | k::CLONE_FS | k::CLONE_UNTRACED) as usize;
	const WCLONE: u32 = 0x8000_0000;
	let killed = Err(Error::System(Step::Helper, Errno::ESRCH));
	let (pid, thread) = (sys::getpid(), sys::gettid());
	let mut job = Job { arena, memory, f: f.take(), pid, thread, by_signals, outcome: killed };
	let place = &raw mut job;
	// SAFETY: the memory is mapped, and these two are used through atomics alone.
	let (go, alive, desk) = unsafe { (&(*memory).go, &(*memory).alive, &(*memory).desk) };
	go.store(0, SeqCst);
	let top = memory as usize + core::mem::offset_of!(Memory, stack) + STACK;
	// SAFETY: the stack is the helper's own; the job outlives it, because it is waited for below.
	let helper = unsafe { crate::stack::clone_on(top, FLAGS, alive, start::<F>, place.cast()) };
	let helper = match helper {
		Ok(pid) => pid,
		Err(e) => {
			// SAFETY: there is no helper.
			*f = unsafe { (*place).f.take() };
			return Err(Error::System(Step::Helper, e));
		}
	};
	STATE.set_helper(helper);
	// SAFETY: the helper waits for `go` before it touches the job.
	let arena = unsafe { &mut *(*place).arena };
	// Where that fails ptrace is refused, and that is what will be said.
	let allowed = stop::allow_tracer(helper, &mut arena.small).unwrap_or(false);
	go.store(1, SeqCst);
	sys::futex_wake(go);
	loop {
		match alive.load(SeqCst) {
			0 => break,
			ASKED => desk.answer(alive),
			other => sys::futex_wait(alive, other),
		}
	}
	// Somebody else may have waited for it (`__WALL`).
	let _ = sys::wait(helper, WCLONE);
	STATE.set_helper(0);
	// Where it was killed.
	STATE.close(false);
	if allowed {
		// As it was before, as far as anybody can know.
		let _ = sys::set_ptracer(0);
	}
	// SAFETY: the helper, the only other user, has ended.
	unsafe {
		let window = (*memory).window;
		if !window.is_empty() {
			// The window was the helper's, which was killed.
			let _ = sys::munmap(window.start, window.len());
			(*memory).window = Range::default();
		}
		*f = (*place).f.take();
		core::ptr::read(&raw const (*place).outcome)
	}
}

extern "C" fn start<F>(job: *mut u8) -> !
where
	F: FnOnce(&mut Arena, Option<Pauses>) -> core::result::Result<Outcome, Error>,
{
	// SAFETY: the thread that made the helper passes its own Job<F> and leaves it alone until the helper has ended. The
	// helper's memory is mapped while it lives; the fields that others use too are atomics, taken by shared reference.
	let (job, others, window, asks, go) = unsafe {
		let job = &mut *job.cast::<Job<F>>();
		let memory = job.memory;
		let asks = Asks { desk: &(*memory).desk, alive: &(*memory).alive };
		(job, &mut (*memory).others, &mut (*memory).window, asks, &(*memory).go)
	};
	// A SIGSTOP for the program's group would stop the helper, too, and threads that it has stopped by then could not
	// take part in that stop, of which nobody would be told.
	let _ = sys::leave_group();
	// Whoever made it may have been killed meanwhile, or be another program by now, as which another thread took its
	// place: nobody would ever say so.
	const LONG: u64 = 10_000_000_000;
	const LOOK: u64 = 100_000_000;
	let begun = sys::now_ns();
	while go.load(SeqCst) == 0 {
		if sys::now_ns() - begun > LONG {
			sys::exit(0);
		}
		sys::futex_wait_for(go, 0, LOOK);
	}
	// SAFETY: as above; the program's thread has done with the arena.
	let arena = unsafe { &mut *job.arena };
	job.outcome = prepare(job.pid, job.thread).map_err(|e| Error::System(Step::Helper, e)).and_then(|pidfd| {
		let asks = job.by_signals.then_some(asks);
		others.set(job.pid, job.thread, asks.map(|a| a.desk));
		let process = Process::Other { pid: job.pid, tid: job.thread, pidfd };
		let mut pauses = Pauses::new(others, window, process, asks);
		pauses.first_look(arena).map_err(Error::Refused)?;
		job.f.take().map_or(Err(Error::Busy), |f| f(arena, Some(pauses)))
	});
	sys::exit(0)
}

/// Makes the helper its own process. Gives a pidfd of the program, by the thread that made the helper.
fn prepare(pid: i32, thread: i32) -> Result<i32> {
	sys::die_with_parent()?;
	if sys::getppid() != pid {
		// Orphaned before that took hold, or /proc would show somebody else's ids.
		return Err(Errno::ESRCH);
	}
	sys::expect_children()?;
	sys::leave_descriptors()?;
	lift_limit();
	sys::leave_limited_real_time()?;
	sys::pidfd_open(pid, thread)
}
