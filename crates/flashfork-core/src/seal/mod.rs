//! Seal: plan, copy, remap, and the way back.
//!
//! The walk of a seal, from [`begin`] on, a file each: what must be left alone and what is worth it ([`plan`]), whether
//! all that was sealed before is sealed anew ([`fold`]), what of libraries is sealed ([`library`]), limits lifted
//! meanwhile ([`limits`]); then run by run ([`maker`]) which file it lies in ([`file`]) and where ([`offset`]), its
//! copy ([`copy`]), the old pages out of the way ([`aside`], [`kept`]) and the copy in their place ([`remap`]). What is
//! known of each file afterwards: [`generations`], and who else has it mapped: [`witness`]. The way back: [`unseal`],
//! with what the program has asked for the mapping ([`properties`]), which what is written much goes too ([`dense`]).
//! What reads put into page tables meanwhile: [`refills`].

mod aside;
pub(crate) mod copy;
pub(crate) mod dense;
pub(crate) mod file;
mod fold;
pub(crate) mod generations;
mod kept;
pub(crate) mod library;
pub(crate) mod limits;
pub(crate) mod maker;
pub(crate) mod offset;
pub(crate) mod plan;
pub(crate) mod properties;
pub(crate) mod refills;
pub(crate) mod remap;
pub(crate) mod unseal;
pub(crate) mod vain;
pub(crate) mod vetted;
pub(crate) mod witness;

use crate::{
	arena::Arena,
	calls, code,
	never_seal::Reason,
	outcome::{Error, Outcome, Pages, Step},
	proc::{dump, headroom::Limits},
	range::Range,
	report::Sealed,
	restartable,
	session::{self, Wait},
	state::STATE,
	sys,
	threads::{exclusive, pauses::Pauses},
};
use dense::DENSE;
use file::{Filled, Mounted};
use fold::plan_or_fold;
use maker::Maker;
use witness::Ours;

/// Nanoseconds after which part of a seal for which a fork waits begins nothing more: with what it is at then it takes
/// twenty milliseconds, which are promised.
const PART_NS: u64 = 15_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
	/// Everything; the data of libraries is asked for apart.
	All { libraries: bool },
	/// What [`What::Dense`] says, and then everything; of what is sealed and was written since, all but densely written
	/// blocks.
	AllButDense(u64),
	/// Nothing: densely written blocks are made anonymous, on huge pages, for about so many nanoseconds.
	Dense(u64),
	/// At most so many bytes of what isn't sealed.
	New(u64),
	/// The generation of which most was written, of those after this one and those that no other process has, all of
	/// it: its memfd goes when no clone has it mapped any more.
	MostWritten(u64),
}

/// [`crate::seal()`], and [`crate::seal_template()`] without `libraries`.
pub fn seal(pages: Pages, libraries: bool) -> Sealed {
	begin(What::All { libraries }, pages, Wait::Yes)
}

/// Seals in the middle of a program's fork: waits for no other thread.
pub(crate) fn seal_for_policy(what: What) -> Sealed {
	begin(what, Pages::Auto, Wait::No)
}

/// Seals a program whose threads stand still for good, from another process in its memory: `stopped` are the addresses
/// of their next instructions. `keep` stays as it is.
pub(crate) fn seal_frozen(pages: Pages, keep: [Range; 2], stopped: &'static [usize]) -> Sealed {
	begin_with(What::All { libraries: false }, pages, Wait::No, |arena| {
		arena.stopped = Some(stopped);
		arena.small_runs = true;
		keep.into_iter().try_for_each(|range| arena.push_hole(range))
	})
}

/// The one way into a seal, whoever asks for it, with one thread and with many: takes the engine, keeps off what must
/// not be sealed, and goes on when nobody else can touch memory, at once or in each pause.
fn begin(what: What, pages: Pages, wait: Wait) -> Sealed {
	begin_with(what, pages, wait, |_| Ok(()))
}

/// The same, when the arena is prepared.
fn begin_with(what: What, pages: Pages, wait: Wait, prepare: impl FnOnce(&mut Arena) -> sys::Result<()>) -> Sealed {
	let here = 0u8;
	let caller_stack = &raw const here as usize;
	session::run(wait, |arena| {
		let look = |e| Error::System(Step::Look, e);
		match what {
			What::All { libraries } => arena.libraries = libraries,
			What::AllButDense(_) => arena.leave_dense = true,
			What::New(most) => arena.most = usize::try_from(most).unwrap_or(usize::MAX),
			What::MostWritten(_) | What::Dense(_) => {}
		}
		let start = sys::now_ns();
		if matches!(what, What::New(_)) {
			arena.late_at = start + PART_NS;
		}
		// The addresses that belong to the calling thread: the helper can't ask for them.
		plan::set_holes(arena, caller_stack).and_then(|()| prepare(arena)).map_err(look)?;
		if !restartable::is_known(sys::thread_pointer().map_err(look)?) {
			return Err(Error::Refused(Reason::RestartableSequence));
		}
		let mut outcome = exclusive::run(arena, |arena, pauses| {
			if let What::MostWritten(after) = what {
				match plan::most_written(&Ours::find(after), arena).map_err(look)? {
					Some(generation) => arena.only = generation,
					None => return Ok(Outcome::default()),
				}
			}
			let mut late = false;
			if let What::Dense(ns) | What::AllButDense(ns) = what {
				DENSE.look(&mut arena.regions).map_err(look)?;
				late = pauses.is_none() && dense::sweep(arena, ns).map_err(look)?;
			}
			match what {
				What::Dense(_) => Ok(Outcome { late, ..Outcome::default() }),
				_ => seal_all(arena, pages, pauses),
			}
		})?;
		outcome.elapsed_ns = sys::now_ns() - start;
		Ok(outcome)
	})
}

/// Plans and seals. What a seal counts on is seen to first: that the program's calls are seen.
fn seal_all(arena: &mut Arena, pages: Pages, mut pauses: Option<Pauses>) -> Result<Outcome, Error> {
	if pauses.is_some() {
		// The plan counts on being told what threads do to memory meanwhile.
		take_calls(arena, &mut pauses)?;
	}
	let fold = plan_or_fold(arena, &mut pauses)?;
	if arena.libraries && pauses.is_none() {
		// Where it can't be done forks cost more.
		let _ = library::add(arena);
	}
	if arena.run_count == 0 {
		return Ok(Outcome::default());
	}
	if pauses.is_none() {
		take_calls(arena, &mut pauses)?;
	}
	let raised = limits::Raised::begin(arena)?;
	let outcome = seal_runs(arena, &raised.memory, pages, pauses, fold)?;
	if outcome.sealed > 0 {
		dump::add_file_memory(&mut arena.small);
	}
	Ok(outcome)
}

/// Sees to it that every call that means something else on sealed memory is seen, or refuses.
pub(crate) fn take_calls(arena: &mut Arena, pauses: &mut Option<Pauses>) -> Result<(), Error> {
	let executable = calls::take(arena, pauses)?;
	match code::process::look(arena, executable).map_err(|e| Error::System(Step::Look, e))? {
		Some(reason) => Err(Error::Refused(reason)),
		None => Ok(()),
	}
}

/// Makes the files of this generation and seals every run into them.
fn seal_runs(
	arena: &mut Arena,
	memory: &Limits,
	pages: Pages,
	pauses: Option<Pauses>,
	fold: bool,
) -> Result<Outcome, Error> {
	let (start, held) = (sys::now_ns(), STATE.holds_sealed());
	let mut maker = Maker::begin(memory, pages)?;
	maker.with(pauses, fold);
	maker.mount(arena);
	maker.seal_all(arena);
	let ((memfd, mounted), mut outcome) = maker.finish();
	if outcome.sealed == 0 && !held {
		// It was to be expected from the first piece on, of which nothing came.
		STATE.all_unsealed();
	}
	note(memfd, arena);
	if let Some(mounted) = mounted
		&& note(mounted, arena)
		&& !mounted.protected
	{
		// Somebody has it open for writing.
		Mounted::give_up();
		// All of it, also where it is a part and time is over.
		(arena.only, arena.most, arena.late_at) = (u64::from(outcome.generation), 0, 0);
		match plan_or_fold(arena, &mut None).and_then(|fold| seal_runs(arena, memory, pages, None, fold)) {
			// All the generation: less could be some of what lies in the memfd in place of what must go.
			Ok(again) if again.sealed >= outcome.sealed => {
				outcome.huge = again.huge;
				outcome.peak_extra = outcome.peak_extra.max(again.peak_extra);
				outcome.write_sealed &= again.write_sealed;
				outcome.generation = again.generation;
			}
			_ => outcome.write_sealed = false,
		}
	}
	outcome.sealing_ns = sys::now_ns() - start;
	match outcome.cut_short {
		Some(reason) if outcome.sealed == 0 => Err(Error::Refused(reason)),
		_ => Ok(outcome),
	}
}

/// Notes what was sealed into a file, and closes it; whether there is anything in it.
fn note(filled: Filled, arena: &mut Arena) -> bool {
	if filled.bytes > 0
		&& let Ok(identity) = sys::identity(filled.fd)
	{
		plan::note_generation(identity, filled.bytes, &mut arena.small);
	}
	sys::close(filled.fd);
	filled.bytes > 0
}
