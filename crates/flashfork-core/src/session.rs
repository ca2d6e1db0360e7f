//! One piece of work of the engine: with the engine to itself, signals blocked, an arena, and a stack inside it. From
//! its first line to its last nothing of the program's memory is written but what the work is about.

use crate::{
	arena::Arena,
	filter,
	outcome::{Error, Outcome, Step},
	report::Sealed,
	state::STATE,
	sys,
	threads::{self, Threads},
};

/// What to do when another thread has the engine, where threads are allowed at all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
	/// Wait some seconds for it.
	Yes,
	/// Say [`Error::Busy`].
	No,
}

/// Runs `f` with an arena, on the arena's stack, signals blocked, nobody else in here.
pub(crate) fn run<F: FnOnce(&mut Arena) -> Result<Outcome, Error>>(wait: Wait, f: F) -> Sealed {
	const MILLISECONDS: usize = 10_000;
	if let Err(refused) = filter::allows() {
		return Sealed::not(refused);
	}
	let begin = |e| Sealed::not(Error::System(Step::Begin, e));
	let mut attempts = 0;
	// A handler must not find the engine taken by the thread that it interrupts: it would wait for itself, or jump away
	// from it.
	let mask = loop {
		let mask = match sys::block_signals() {
			Ok(mask) => mask,
			Err(e) => return begin(e),
		};
		if STATE.enter() {
			break mask;
		}
		sys::restore_signals(mask);
		attempts += 1;
		if wait == Wait::No || threads::allowed() == Threads::Refuse || attempts > MILLISECONDS {
			return Sealed::not(Error::Busy);
		}
		sys::pause_briefly();
	};
	let sealed = with_arena(f).unwrap_or_else(begin);
	STATE.leave();
	sealed.with_signals(mask)
}

struct Job<F> {
	arena: &'static mut Arena,
	f: Option<F>,
	outcome: Result<Outcome, Error>,
}

fn with_arena<F: FnOnce(&mut Arena) -> Result<Outcome, Error>>(f: F) -> sys::Result<Sealed> {
	extern "C" fn start<F: FnOnce(&mut Arena) -> Result<Outcome, Error>>(job: *mut u8) {
		// SAFETY: the caller passes its own Job<F>, which nobody else uses during the call.
		let job = unsafe { &mut *job.cast::<Job<F>>() };
		if let Some(f) = job.f.take() {
			job.outcome = f(job.arena);
		}
	}
	let arena = Arena::map()?;
	arena.keep_from_clones();
	let top = arena.stack_top();
	let mut job = Job { arena, f: Some(f), outcome: Err(Error::Busy) };
	// SAFETY: the arena's stack has room for these few frames (tested) and is used by this call only.
	unsafe { crate::stack::call_on(top, start::<F>, (&raw mut job).cast()) };
	let Job { arena, outcome, .. } = job;
	Ok(Sealed::new(arena, outcome))
}
