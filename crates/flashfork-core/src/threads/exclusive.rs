//! Works on memory while nobody else does: at once where there is nobody else, otherwise in pauses in which all others
//! are stopped.

use super::{
	alone::{alone, alone_now},
	errand::{self, Who},
	helper,
	pauses::Pauses,
	table,
};
use crate::{
	arena::Arena,
	kernel_writers,
	never_seal::Reason,
	outcome::{Error, Outcome, Purpose, Step},
	region::watch::WATCHED,
	state::STATE,
	sys::{self, Errno},
};

/// Runs `f` when nobody else uses this process's memory, in a thread with its own table of descriptors; with other
/// threads, and where they may be stopped, in a helper that can stop them, and so where the program has no descriptor
/// left to look through: the helper's are its own. What else forbids a seal is refused.
pub fn run<F>(arena: &mut Arena, f: F) -> Result<Outcome, Error>
where
	F: FnOnce(&mut Arena, Option<Pauses>) -> Result<Outcome, Error>,
{
	WATCHED.end_all();
	let purpose = arena.purpose();
	if arena.stopped.is_some() {
		return beside_stopped(arena, f);
	}
	if purpose == Purpose::Seal && table::may_be_shared() {
		return Err(Error::Refused(Reason::SharedDescriptors));
	}
	if !alone(&mut arena.text).map_err(look)? {
		return if super::may_stop(purpose) { helper::run(arena, f) } else { Err(Error::Refused(Reason::Threads)) };
	}
	let mut f = Some(f);
	let outcome = beside_nobody(arena, |arena| f.take().map_or(Err(Error::Busy), |f| f(arena, None)));
	match (outcome, f) {
		(Err(Error::System(_, Errno::EMFILE)), Some(f)) if super::may_stop(purpose) => helper::run(arena, f),
		(outcome, _) => outcome,
	}
}

/// The same for what isn't worth that anybody is stopped; with `wait` for threads that are just ending, as the last one
/// of the engine's may be.
pub fn run_alone<F>(arena: &mut Arena, wait: bool, f: F) -> Result<Outcome, Error>
where
	F: FnOnce(&mut Arena) -> Result<Outcome, Error>,
{
	WATCHED.end_all();
	if table::may_be_shared() {
		return Err(Error::Refused(Reason::SharedDescriptors));
	}
	let alone = if wait { alone(&mut arena.text) } else { alone_now(&mut arena.text) };
	if !alone.map_err(look)? {
		return Err(Error::Refused(Reason::Threads));
	}
	beside_nobody(arena, f)
}

fn beside_nobody<F>(arena: &mut Arena, f: F) -> Result<Outcome, Error>
where
	F: FnOnce(&mut Arena) -> Result<Outcome, Error>,
{
	arena.alone = true;
	let caller = sys::gettid();
	let outcome = in_own_table(arena, |arena| {
		obstacles(arena, caller)?;
		f(arena)
	});
	arena.alone = false;
	outcome
}

/// Runs `f` in a process whose memory is a program's that stands still: its table of descriptors is its own, with the
/// program's in it.
fn beside_stopped<F>(arena: &mut Arena, f: F) -> Result<Outcome, Error>
where
	F: FnOnce(&mut Arena, Option<Pauses>) -> Result<Outcome, Error>,
{
	if let Some(reason) = kernel_writers::descriptors(arena.purpose(), &mut arena.text).map_err(look)? {
		return Err(Error::Refused(reason));
	}
	arena.alone = true;
	let outcome = f(arena, None);
	arena.alone = false;
	outcome
}

/// Runs a piece of the engine's work where nobody else uses this memory: by a thread whose table begins as a copy of
/// the program's and is nobody else's from then on, whoever may use that. Where no thread is to be had it is done here,
/// as long as nobody is known who shares the table, and the kernel doesn't end the program for the time that it takes.
fn in_own_table<F>(arena: &mut Arena, f: F) -> Result<Outcome, Error>
where
	F: FnOnce(&mut Arena) -> Result<Outcome, Error>,
{
	let (mut f, mut outcome) = (Some(f), Err(Error::Busy));
	let top = arena.thread_stack_top();
	let done = if STATE.is_sandboxed() {
		Err(Errno::EPERM)
	} else {
		// SAFETY: this part of the arena's stack is for this thread alone: who waits for it uses the part above.
		unsafe {
			errand::run_on(top, Who::ThreadWithCopy, || {
				sys::leave_limited_real_time()?;
				if let Some(f) = f.take() {
					outcome = f(arena);
				}
				Ok(())
			})
		}
	};
	match (done, f) {
		(Err(_), Some(f)) if !table::may_be_shared() && !sys::real_time_is_limited() => f(arena),
		(Err(e), Some(_)) => Err(Error::System(Step::Helper, e)),
		_ => outcome,
	}
}

/// What else forbids a seal is an error. Afterwards nothing of the program's is open here, where the kernel can close
/// it in one call: while it is, a pipe would not end.
fn obstacles(arena: &mut Arena, caller: i32) -> Result<(), Error> {
	if let Some(reason) = kernel_writers::descriptors(arena.purpose(), &mut arena.text).map_err(look)? {
		return Err(Error::Refused(reason));
	}
	if sys::gettid() == caller {
		return Ok(());
	}
	let _ = sys::close_range(0, i32::MAX);
	if arena.purpose() == Purpose::Seal {
		table::look_around(caller, &mut arena.text);
		if table::may_be_shared() {
			return Err(Error::Refused(Reason::SharedDescriptors));
		}
	}
	Ok(())
}

fn look(e: Errno) -> Error {
	Error::System(Step::Look, e)
}

/// The first reason not to touch the calling process's memory, other threads among them. `buf` is scratch.
pub fn refusal(buf: &mut [u8]) -> sys::Result<Option<Reason>> {
	WATCHED.end_all();
	let caller = sys::gettid();
	// Without a thread that looks, what is known by then has to do.
	let _ = errand::run(Who::Thread, || {
		table::look_around(caller, buf);
		Ok(())
	});
	if table::may_be_shared() {
		return Ok(Some(Reason::SharedDescriptors));
	}
	if alone(buf)? { kernel_writers::descriptors(Purpose::Seal, buf) } else { Ok(Some(Reason::Threads)) }
}
