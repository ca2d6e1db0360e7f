//! Unseal: sealed memory becomes anonymous again, at its addresses, with its bytes.

use super::{
	PART_NS,
	aside::Aside,
	copy::{CHUNK, SHORT_CHUNK, collapse},
	kept::BLOCK,
	library::{self, LIBRARIES},
	limits::SLACK,
	offset,
	offset::Shows,
	properties::{self, Properties},
	remap,
	witness::Ours,
};
use crate::{
	arena::{Arena, MAX_HOLES, MAX_RUNS, Run},
	never_seal::Reason,
	outcome::{Error, Outcome, Step},
	proc::{
		dump,
		headroom::Limits,
		lookup::{self, Wanted},
		pagemap::{Pagemap, Which},
		scan::Region,
		vma::Kind,
	},
	range::{Range, subtract},
	scratch,
	session::{self, Wait},
	state::STATE,
	sys::{self, Errno, HUGE, PAGE},
	threads::{alone, exclusive, pauses::Pauses, table},
};
use linux_raw_sys::general as k;

/// Makes the sealed memory within `range` anonymous again; returns how many bytes.
///
/// [`crate::unseal`] says what it needs, and what holds after an error.
pub fn unseal(range: Range) -> Result<u64, Error> {
	unseal_or_wait(range, Wait::Yes)
}

/// All of generations after this one and of those that no other process has, in the middle of a program's fork: waits
/// for no other thread. Not `at_once` it ends when the fork has waited for long, and says so ([`Outcome::late`]); at
/// least a step is made.
pub(crate) fn unseal_for_policy(at_once: bool, after: u64) -> Result<Outcome, Error> {
	let late_at = if at_once { 0 } else { sys::now_ns() + PART_NS };
	unseal_within(Range::ALL, after, Wait::No, late_at)
}

fn unseal_or_wait(range: Range, wait: Wait) -> Result<u64, Error> {
	unseal_within(range, 0, wait, 0).map(|outcome| outcome.sealed)
}

fn unseal_within(range: Range, after: u64, wait: Wait, late_at: u64) -> Result<Outcome, Error> {
	let done = session::run(wait, |arena| {
		(arena.hole_count, arena.unseals, arena.late_at) = (0, true, late_at);
		exclusive::run(arena, |arena, pauses| unseal_with(arena, range, after, pauses))
	});
	done.outcome
}

/// The same, but at once or not at all: in a process with other threads nothing is done.
pub(crate) fn unseal_alone(range: Range) -> Result<u64, Error> {
	let alone = match sys::unshare_memory() {
		// No look around where threads run: it would take a descriptor, for what is cheaper but no more right.
		Err(Errno::EINVAL) => Ok(false),
		_ => alone::alone_now(&mut [0; 1024]),
	};
	if table::may_be_shared() || !alone.map_err(|e| Error::System(Step::Look, e))? {
		return Err(Error::Refused(Reason::Threads));
	}
	let done = session::run(Wait::No, |arena| unseal_with(arena, range, 0, None));
	done.outcome.map(|o| o.sealed)
}

fn unseal_with(arena: &mut Arena, range: Range, after: u64, mut pauses: Option<Pauses>) -> Result<Outcome, Error> {
	let look = |e| Error::System(Step::Look, e);
	let mut outcome = Outcome::default();
	let (ours, all) = (Ours::find(after), Ours::find(0));
	let mut aside = Place::find(&pauses)?;
	// More VMAs than the arena has room for are done in batches, and so is what threads split or moved meanwhile.
	loop {
		let complete = find_sealed(arena, range, Parts::Of(ours)).map_err(look)?;
		if arena.run_count == 0 {
			break;
		}
		let Arena { text, small, .. } = &mut *arena;
		let memory = Limits::find(text, small).map_err(look)?;
		let before = outcome.sealed;
		for i in 0..arena.run_count {
			outcome.sealed += unseal_run(arena, i, &memory, &mut pauses, &mut aside)?;
			outcome.late = is_late(arena);
			if outcome.late {
				break;
			}
		}
		if outcome.late || complete && pauses.is_none() || outcome.sealed == before {
			break;
		}
	}
	// With a last look at what is kept.
	drop(aside);
	if range == Range::ALL {
		// Calls that discard memory ask the engine only while some is sealed: no thread may split or move any while it
		// is looked for.
		if let Some(pauses) = &mut pauses {
			pauses.stop(arena).map_err(Error::Refused)?;
		}
		let found = find_sealed(arena, range, Parts::Of(all)).map(|_| arena.run_count);
		if found == Ok(0) {
			STATE.all_unsealed();
			dump::all_unsealed();
		}
		if let Some(pauses) = &mut pauses {
			pauses.resume();
		}
		found.map_err(look)?;
	}
	if let Some(pauses) = pauses {
		(outcome.pauses, outcome.paused_ns, outcome.longest_pause_ns) =
			(pauses.count, pauses.paused_ns, pauses.longest_ns);
	}
	Ok(outcome)
}

/// Where old pages stay for a while; nowhere where threads run: a helper that is killed must leave no hole.
struct Place(Option<Aside>);

impl Place {
	fn find(pauses: &Option<Pauses>) -> Result<Place, Error> {
		match pauses {
			Some(_) => Ok(Place(None)),
			None => Aside::for_unseal().map(|aside| Place(Some(aside))).map_err(|e| Error::System(Step::Begin, e)),
		}
	}
}

/// Whether a fork has waited for long.
fn is_late(arena: &Arena) -> bool {
	arena.unseals && arena.late_at != 0 && sys::now_ns() > arena.late_at
}

/// Gives how many bytes it has made anonymous, from the run's beginning on: all, where it isn't [late](is_late) before.
fn unseal_run(
	arena: &mut Arena,
	index: usize,
	memory: &Limits,
	pauses: &mut Option<Pauses>,
	place: &mut Place,
) -> Result<u64, Error> {
	let run = arena.runs[index];
	let mut done = 0;
	let mut at = run.range.start;
	let hurry = arena.unseals && arena.late_at != 0;
	while at < run.range.end && !(done > 0 && is_late(arena)) {
		// Threads wait for 2 MB at most.
		let most = match pauses {
			Some(_) => HUGE - at % HUGE,
			None if hurry => SHORT_CHUNK,
			None => CHUNK,
		};
		let chunk = Range::new(at, run.range.end.min(at + most));
		if let Place(Some(aside)) = place {
			aside.settle();
		}
		let kept = place.0.as_ref().map_or(0, Aside::most);
		let free = memory.headroom(&mut arena.text).map_err(|e| Error::System(Step::Look, e))?;
		if free < (chunk.len() + kept) as u64 + SLACK {
			return Err(Error::Refused(Reason::LowMemory));
		}
		let mut result = Ok(());
		let mut prot = Some(run.prot);
		if let Some(pauses) = pauses {
			pauses.stop(arena).map_err(Error::Refused)?;
			// A thread may have discarded or unmapped it since.
			prot = pauses.check_sealed(chunk);
		}
		if let Some(prot) = prot {
			result = unseal_chunk(chunk, Run { prot, ..run }, arena, place);
			done += chunk.len() as u64;
		}
		if let Some(pauses) = pauses {
			pauses.resume();
		}
		result.map_err(|e| Error::System(Step::Unseal, e))?;
		at = chunk.end;
	}
	Ok(done)
}

/// Before everything sealed is sealed anew: makes anonymous what sealed memory has grown by. There is nothing to seal,
/// and it would keep its old memfd.
pub(crate) fn growth(arena: &mut Arena, pauses: &mut Option<Pauses>) -> Result<(), Error> {
	unseal_parts(arena, pauses, Parts::Growth)
}

/// Before a snapshot: the same, and what can't be sealed anew because it can't be read, is a library's or a hole of the
/// plan. Who unmaps that later couldn't get it back from its old memfd, of which no descriptor is left.
pub(crate) fn not_sealed_anew(arena: &mut Arena) -> Result<(), Error> {
	unseal_parts(arena, &mut None, Parts::NotSealedAnew)
}

/// Before a snapshot that seals nothing: all of it, for the same reason.
pub(crate) fn everything(arena: &mut Arena) -> Result<(), Error> {
	unseal_with(arena, Range::ALL, 0, None).map(drop)
}

fn unseal_parts(arena: &mut Arena, pauses: &mut Option<Pauses>, parts: Parts) -> Result<(), Error> {
	let look = |e| Error::System(Step::Look, e);
	find_sealed(arena, Range::ALL, parts).map_err(look)?;
	if arena.run_count > 0 {
		let Arena { text, small, .. } = &mut *arena;
		let memory = Limits::find(text, small).map_err(look)?;
		let mut place = Place::find(pauses)?;
		for i in 0..arena.run_count {
			unseal_run(arena, i, &memory, pauses, &mut place)?;
		}
	}
	Ok(())
}

const NO_HUGE_PAGE: Errno = Errno::ENODATA;

/// Makes whole blocks of sealed memory anonymous on huge pages, for [`super::dense`], and calls `done` with those for
/// which it could be done. False where there are none. No other thread runs.
pub(crate) fn to_huge(arena: &mut Arena, blocks: Range, mut done: impl FnMut(Range)) -> Result<bool, Error> {
	let look = |e| Error::System(Step::Look, e);
	find_sealed(arena, blocks, Parts::Of(Ours::find(0))).map_err(look)?;
	let Arena { text, small, .. } = &mut *arena;
	let memory = Limits::find(text, small).map_err(look)?;
	let mut place = Place::find(&None)?;
	for i in 0..arena.run_count {
		let range = arena.runs[i].range;
		if arena.runs[i].growth || !range.start.is_multiple_of(HUGE) || !range.end.is_multiple_of(HUGE) {
			continue;
		}
		arena.runs[i].huge = true;
		match unseal_run(arena, i, &memory, &mut None, &mut place) {
			Ok(_) => done(range),
			Err(Error::System(Step::Unseal, NO_HUGE_PAGE)) => return Ok(false),
			Err(Error::Refused(reason)) => return Err(Error::Refused(reason)),
			// It stays sealed; the others need not.
			Err(_) => {}
		}
	}
	Ok(true)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
	/// All these generations.
	Of(Ours),
	/// What they have grown by.
	Growth,
	/// That, what can't be read, the data of libraries, and what lies in the arena's holes.
	NotSealedAnew,
}

/// Lists the sealed parts of `range` as runs of the arena; false when there are more than it has room for.
fn find_sealed(arena: &mut Arena, range: Range, parts: Parts) -> sys::Result<bool> {
	arena.run_count = 0;
	let listed = lookup::for_each(range, Wanted::Files, |v| {
		if v.kind != Kind::Sealed {
			return Ok(());
		}
		let advice = offset::advice_of_sealed(v);
		// Mappings of a file that were made one by one never become one again, and mremap(2) moves one at a time.
		let part = if advice & offset::LIBRARY != 0 { v.range } else { v.range.intersect(range) };
		let mut at = part.start;
		while at < part.end {
			let (growth, len) = match offset::shows(v.offset + (at - v.range.start) as u64) {
				Shows::Run(len) => (false, len),
				Shows::Growth(len) => (true, len),
			};
			let end = at + (len as usize).min(part.end - at);
			let whole = Range::new(at, end);
			let wanted = match parts {
				Parts::Of(ours) => ours.has(v),
				Parts::Growth => growth,
				Parts::NotSealedAnew => growth || v.prot & sys::PROT_READ == 0 || advice & offset::LIBRARY != 0,
			};
			let run = Run { range: whole, prot: v.prot, advice, growth, ..Run::default() };
			match parts {
				_ if wanted => arena.push_run(run)?,
				Parts::NotSealedAnew => push_holes(arena, run)?,
				_ => {}
			}
			at = end;
		}
		Ok(())
	});
	match listed {
		Ok(()) => Ok(true),
		Err(Errno::E2BIG) if arena.run_count == MAX_RUNS => Ok(false),
		Err(e) => Err(e),
	}
}

fn push_holes(arena: &mut Arena, run: Run) -> sys::Result<()> {
	let mut holes = [Range::default(); MAX_HOLES];
	let count = arena.hole_count;
	holes[..count].copy_from_slice(&arena.holes[..count]);
	let mut at = run.range.start;
	let mut push = |range: Range| if range.is_empty() { Ok(()) } else { arena.push_run(Run { range, ..run }) };
	let mut result = Ok(());
	subtract(run.range, &holes[..count], |between| {
		result = result.and_then(|()| push(Range::new(at, between.start)));
		at = between.end;
	});
	result.and_then(|()| push(Range::new(at, run.range.end)))
}

fn unseal_chunk(chunk: Range, run: Run, arena: &mut Arena, place: &mut Place) -> sys::Result<()> {
	let len = chunk.len();
	let Arena { text: buf, regions, .. } = arena;
	let properties = match STATE.marked.touch(chunk) {
		true => Properties::at(chunk.start, buf)?,
		false => Properties { advice: run.advice, ..Properties::default() },
	};
	match properties.obstacle() {
		Some(Reason::Immutable) => return Err(Errno::EPERM),
		Some(_) => return Err(Errno::EBUSY),
		None => {}
	}
	if run.advice & offset::LIBRARY != 0 && !run.growth {
		// SAFETY: the same as below.
		match unsafe { give_file_back(chunk, run, &properties, regions, place) } {
			Err(Errno::ENOENT | Errno::EFAULT) => LIBRARIES.lose(chunk),
			other => return other,
		}
	}
	if run.huge && offset::advices(properties.advice).any(|advice| advice == k::MADV_NOHUGEPAGE) {
		return Err(Errno::EINVAL);
	}
	let reserved = len + HUGE;
	let base = match run.advice & offset::UNRESERVED {
		0 => scratch::temporary(reserved)?,
		_ => scratch::temporary_unreserved(reserved)?,
	};
	// Equal to the target modulo 2 MB: so that huge pages, where they are wanted, can move with it.
	let copy = base + (chunk.start.wrapping_sub(base) & (HUGE - 1));
	// SAFETY: the copy lies in the mapping just made; the source is readable (unreadable memory is never sealed, and
	// protection taken away since is given back for the copy); with no other thread running, on our own
	// stack and with signals blocked nobody writes to either.
	let result = unsafe {
		for advice in offset::advices(properties.advice) {
			// Advice is only that.
			let _ = sys::madvise(copy, len, advice);
		}
		let made = if run.huge { collapse(copy, len).map_err(|_| NO_HUGE_PAGE) } else { Ok(()) };
		let readable = run.prot & sys::PROT_READ != 0;
		let open = if readable { Ok(()) } else { sys::mprotect(chunk.start, len, sys::PROT_READ) };
		let copied = made.and(open).and_then(|()| match run.growth {
			false => copy_pages(chunk, copy, buf),
			true => copy_written(chunk, copy, buf, regions),
		});
		copied.and_then(|()| put_in_place(chunk, run.prot, copy, &properties, regions, place)).inspect_err(|_| {
			if !readable {
				remap::close(chunk, run.prot);
			}
		})
	};
	// SAFETY: what is left of the reservation is ours.
	let freed = unsafe { sys::munmap(base, reserved) };
	result.and(freed)
}

/// Makes the sealed data of a library its file's mapping again. `ENOENT` and `EFAULT`: the file is not to be had, or
/// has become shorter.
///
/// # Safety
/// No thread of this process uses the chunk.
unsafe fn give_file_back(
	chunk: Range,
	run: Run,
	properties: &Properties,
	regions: &mut [Region],
	place: &mut Place,
) -> sys::Result<()> {
	let copy = LIBRARIES.map(chunk)?;
	let readable = run.prot & sys::PROT_READ != 0;
	// SAFETY: the copy is new; the caller answers for the chunk.
	let result = unsafe {
		for advice in offset::advices(run.advice) {
			// Advice is only that.
			let _ = sys::madvise(copy, chunk.len(), advice);
		}
		let open = if readable { Ok(()) } else { sys::mprotect(chunk.start, chunk.len(), sys::PROT_READ) };
		open.and_then(|()| library::fill(copy, chunk))
			.and_then(|()| put_in_place(chunk, run.prot, copy, properties, regions, place))
			.inspect_err(|_| {
				if !readable {
					remap::close(chunk, run.prot);
				}
			})
	};
	if result.is_err() {
		// SAFETY: what has not been moved is ours. A failure would leak it, no more.
		let _ = unsafe { sys::munmap(copy, chunk.len()) };
	}
	result
}

/// Puts the copy of a chunk in its place.
///
/// # Safety
/// The copy is new memory, nobody else's, and holds what the chunk held a moment ago; no thread of this process uses
/// the chunk.
unsafe fn put_in_place(
	chunk: Range,
	prot: u32,
	copy: usize,
	properties: &Properties,
	regions: &mut [Region],
	place: &mut Place,
) -> sys::Result<()> {
	let Place(Some(aside)) = place else {
		properties.apply(copy, chunk.len(), prot)?;
		// SAFETY: the caller's; all threads are stopped.
		return unsafe { remap::unseal_range(chunk, prot, copy) };
	};
	// Not everybody may open it (after setuid(2)): then all pages are looked at.
	let mut pagemap = Pagemap::open(regions).ok();
	let mut at = chunk.start;
	while at < chunk.end {
		let step = Range::new(at, chunk.end.min(at + BLOCK - at % BLOCK));
		let from = copy + (at - chunk.start);
		// SAFETY: the caller's; the chunk is in one mapping and readable.
		unsafe { aside.exchange(step, prot, from, pagemap.as_mut(), || properties.apply(from, step.len(), prot)) }?;
		at = step.end;
	}
	Ok(())
}

/// Copies of what sealed memory has grown by what was written there. Reading the rest would take memory in the memfd
/// for good.
///
/// # Safety
/// As [`copy_pages`].
unsafe fn copy_written(from: Range, to: usize, buf: &mut [u8], regions: &mut [Region]) -> sys::Result<()> {
	let mut result = Ok(());
	let Ok(mut pagemap) = Pagemap::open(regions) else {
		// SAFETY: the caller's.
		return unsafe { copy_pages(from, to, buf) };
	};
	pagemap.for_each(from, Which::Written, |found| {
		let found = found.intersect(from);
		if result.is_ok() {
			// SAFETY: as above.
			result = unsafe { copy_pages(found, to + (found.start - from.start), buf) };
		}
	})?;
	result
}

/// Copies what isn't zero to new memory, and guards as guards. The kernel reads it: what can't be read is an error, no
/// signal.
///
/// # Safety
/// `to` is new memory of the same length.
pub(crate) unsafe fn copy_pages(from: Range, to: usize, buf: &mut [u8]) -> sys::Result<()> {
	let mut at = from.start;
	while at < from.end {
		let most = (buf.len() & !(PAGE - 1)).min(from.end - at);
		let read = match sys::read_memory(at, &mut buf[..most]) {
			Ok(n) => n & !(PAGE - 1),
			Err(Errno::EFAULT) => 0,
			Err(e) => return Err(e),
		};
		if read == 0 {
			let target = to + (at - from.start);
			if !properties::is_guard(at) {
				return Err(Errno::EFAULT);
			}
			// SAFETY: new memory, and nothing is written there.
			unsafe { sys::madvise(target, PAGE, k::MADV_GUARD_INSTALL) }?;
			at += PAGE;
		}
		for page in buf[..read].chunks_exact(PAGE) {
			if page.iter().any(|byte| *byte != 0) {
				// SAFETY: a page of the new memory, which is writable as yet.
				unsafe { sys::copy_bytes(page.as_ptr() as usize, to + (at - from.start), PAGE) };
			}
			at += PAGE;
		}
	}
	Ok(())
}

#[cfg(test)]
mod tests;
