//! Snapshot: a process with one thread goes back to how it was, as often as wanted, and the call that took the snapshot
//! returns again.
//!
//! docs/ROLLBACK.md says what goes back, what doesn't, what is refused, and how. [`take`] seals and copies; a restore
//! ([`restore`]) makes the mappings what they were ([`compare`]), then their contents ([`watched`]). The engine's own
//! memory is left out.
//!
//! Why returning twice is sound here, as it is for `fork(2)`: stack and registers are exactly those of the first
//! return.

mod asm;
mod check;
mod compare;
pub(crate) mod current;
mod hands_off;
mod limits;
mod mappings;
mod restore;
mod table;
mod take;
mod watched;

use current::CURRENT;
use table::Table;

pub use crate::region::choice::Way;

use crate::{
	code::remembered::CODE,
	filter::trial,
	never_seal::Reason,
	outcome,
	range::Range,
	state::STATE,
	sys::{self, Errno},
};
use core::sync::atomic::Ordering::SeqCst;

/// What a snapshot covers beside what it always does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
	/// Seal large anonymous memory in place. Without it all of it is copied, and compared at each restore, and what was
	/// sealed before becomes anonymous; nothing in the process may rely on `MADV_DONTNEED` giving zeros when it is set
	/// and the shim is not there.
	pub seal: bool,
	/// Bytes that stay as they are, at most 64 ranges: what the kernel writes (the rseq area), and what the caller
	/// wants to keep. A range that ends before it begins, or beyond the addresses a program has, or that covers where
	/// this call returns to, is refused.
	pub keep: &'a [Range],
	/// Descriptors whose file offset goes back, at most 64.
	pub descriptors: &'a [i32],
	/// Close descriptors that weren't open when the snapshot was taken.
	pub close_new: bool,
}

/// The step at which a system call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
	/// Blocking signals, mapping the snapshot's own memory.
	Begin,
	/// Reading `/proc/self`.
	Look,
	/// Making or mapping the memfd.
	Memfd,
	/// Copying memory.
	Copy,
	/// Having as much memory as there was, which `RLIMIT_AS` or `RLIMIT_DATA` no longer allows.
	Limits,
}

/// Why there is no snapshot, or why it was not restored. The process is as it was before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
	/// The process holds something that can't be put back.
	Refused(Reason),
	/// The engine is at work in this process (a signal handler called in its middle).
	Busy,
	/// More ranges, descriptors or mappings than a snapshot has room for.
	TooMany,
	/// A range to keep that is none.
	Keep(Range),
	/// There is no snapshot.
	None,
	/// This process is a clone of the one that took the snapshot.
	Clone,
	/// Another thread took the snapshot.
	Thread,
	/// A mapping that the snapshot can't make again is gone, another one is in its place, or it is no longer locked.
	Changed(Range),
	/// A descriptor whose offset should go back is closed, or not the same file.
	Descriptor(i32),
	/// The program closed the snapshot's memfd, which is needed now.
	MemfdClosed,
	/// A system call failed.
	System(Step, Errno),
}

impl Error {
	fn of_engine(e: outcome::Error) -> Error {
		match e {
			outcome::Error::Refused(reason) => Error::Refused(reason),
			outcome::Error::Busy => Error::Busy,
			outcome::Error::System(outcome::Step::CreateMemfd, e) => Error::System(Step::Memfd, e),
			outcome::Error::System(outcome::Step::Begin, e) => Error::System(Step::Begin, e),
			outcome::Error::System(_, e) => Error::System(Step::Look, e),
		}
	}
}

/// Takes a snapshot, in place of the one there may be, which stays if this one is refused. Returns 0 when it is taken,
/// and again, with the value given, at each [`restore`].
///
/// The process must have one thread.
pub fn snapshot(options: &Options) -> Result<u64, Error> {
	trial::prepare();
	crate::filter::allows().map_err(Error::of_engine)?;
	if !STATE.enter() {
		return Err(Error::Busy);
	}
	let result = take_signals_blocked(options);
	STATE.leave();
	result
}

struct Job<'a> {
	table: *mut Table,
	options: &'a Options<'a>,
	outcome: Result<(), Error>,
}

fn take_signals_blocked(options: &Options) -> Result<u64, Error> {
	extern "C" fn run(job: *mut u8, stack_pointer: usize) {
		// SAFETY: the caller passes its own Job, which nobody else uses during the call.
		let job = unsafe { &mut *job.cast::<Job>() };
		// SAFETY: the table was just mapped and is nobody else's.
		job.outcome = take::take(unsafe { &mut *job.table }, job.options, stack_pointer);
	}
	let mask = sys::block_signals().map_err(|e| Error::System(Step::Begin, e))?;
	let table = Table::map().inspect_err(|_| sys::restore_signals(mask)).map_err(|e| Error::System(Step::Begin, e))?;
	let top = table.arena.stack_top();
	let mut job = Job { table, options, outcome: Err(Error::Busy) };
	// SAFETY: the arena's stack is used by this call only. When it returns again, everything in memory is as at its
	// first return.
	let value = unsafe { asm::capture(top, run, (&raw mut job).cast()) };
	let result = match (value, job.outcome) {
		// The job is as it was when its memory was copied: it doesn't know the outcome yet.
		(1.., _) => Ok(value),
		(0, Ok(())) => Ok(0),
		(0, Err(e)) => {
			// SAFETY: nobody refers to it: it never became the snapshot.
			unsafe { Table::release(job.table) };
			Err(e)
		}
	};
	sys::restore_signals(mask);
	result
}

/// Goes back to the snapshot, whose call returns `value` (at least 1, which 0 becomes). Returns only when it is
/// refused.
pub fn restore(value: u64) -> Error {
	struct Job {
		table: *mut Table,
		value: u64,
		error: Error,
	}
	extern "C" fn run(job: *mut u8) {
		// SAFETY: the caller passes its own Job, which nobody else uses during the call.
		let job = unsafe { &mut *job.cast::<Job>() };
		// SAFETY: the table of the snapshot there is; only one call is in the engine.
		job.error = restore::restore(unsafe { &mut *job.table }, job.value);
	}
	let table = CURRENT.load(SeqCst);
	if table.is_null() {
		return Error::None;
	}
	if STATE.strict.load(SeqCst) {
		return Error::Refused(Reason::SeccompFilter);
	}
	// SAFETY: mapped while it is the snapshot.
	let (owner, thread, top) = unsafe { ((*table).process, (*table).thread, (*table).arena.stack_top()) };
	if owner != sys::getpid() {
		return Error::Clone;
	}
	if thread != sys::gettid() {
		return Error::Thread;
	}
	if !STATE.enter() {
		return Error::Busy;
	}
	let error = match sys::block_signals() {
		Err(e) => Error::System(Step::Begin, e),
		Ok(mask) => {
			let mut job = Job { table, value: value.max(1), error: Error::Busy };
			// SAFETY: the arena's stack is used by nobody: the engine is ours.
			unsafe { crate::stack::call_on(top, run, (&raw mut job).cast()) };
			sys::restore_signals(mask);
			job.error
		}
	};
	STATE.leave();
	error
}

/// Has restores go back in one way, whatever that costs; by default they take the cheaper one. Where writes can't be
/// noted they are dropped and compared all the same.
pub fn go_back_by(way: Option<Way>) {
	current::set_only_way(way);
}

/// Whether the snapshot there is copies back what was written, at the moment.
pub fn copies_back() -> bool {
	// SAFETY: mapped while it is the snapshot.
	unsafe { CURRENT.load(SeqCst).as_mut() }.is_some_and(watched::is_on)
}

/// Whether the program's calls tell of every change of its mappings. Where they don't, because it has code that may map
/// memory past the C library, each restore asks for all mappings.
pub fn calls_tell_of_mappings() -> bool {
	STATE.sees_calls() && CODE.shows_mappings()
}

/// Forgets the snapshot, if any, and gives its memory back. Memory sealed for it stays sealed.
pub fn discard() -> Result<(), Error> {
	if !STATE.enter() {
		return Err(Error::Busy);
	}
	release(CURRENT.swap(core::ptr::null_mut(), SeqCst));
	STATE.leave();
	Ok(())
}

/// Gives back what is no longer the snapshot; the engine is the caller's.
fn release(table: *mut Table) {
	if !table.is_null() {
		// SAFETY: nobody else has it.
		unsafe { Table::release(table) };
	}
}
