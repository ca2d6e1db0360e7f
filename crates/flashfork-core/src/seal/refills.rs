//! Refills: pages of memfds that reads have put into page tables since.
//!
//! A fork skips a sealed mapping while nothing was written in it. From then on it copies all the page tables of that
//! mapping, with whatever reads have put into them: sixteen pages for each that is read. And so it does with the rest
//! of the mapping when what was written is sealed anew. Dropped, such pages come back when they are read again, from
//! the memfd, with the same bytes.
//!
//! Only `MADV_DONTNEED` drops them, and it would drop written pages as well. Other processes write without asking
//! ([`super::aside`]), to a page that was found clean a moment ago. So pages are moved aside, where nobody can reach
//! them, and looked at there. Whoever has got hold of a page before, to write to it, has made it the mapping's own by
//! that: what is the memfd's there has no writer.

use super::{
	aside::{Aside, MOST},
	generations::GENERATIONS,
	plan,
};
use crate::{
	arena::{Arena, Run},
	kernel_writers,
	never_seal::Reason,
	outcome::{Error, Outcome, Step},
	proc::{
		lookup::{self, Wanted},
		pagemap::{Pagemap, Which},
		scan::{self, Ask},
		vma::Kind,
	},
	range::{Range, subtract},
	session::{self, Wait},
	state::STATE,
	sys::{self, Errno, HUGE, PAGE, Result},
	threads::exclusive,
};
use linux_raw_sys::general as k;

/// Fewer pages in a row stay: the call takes a microsecond, as long as several forks and clones' ends take for them.
const RUN: usize = 4 * PAGE;

/// Nanoseconds in which something is dropped, however long it was looked for.
const SHORT: u64 = 3_000_000;

/// Of which mappings refills are dropped, as far as forks copy their page tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mappings {
	All,
	/// Those of which it is known that something was written in them.
	KnownWritten,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
	/// Bytes that are no longer in page tables.
	pub bytes: u64,
	/// Nanoseconds that it took.
	pub ns: u64,
	/// Where to go on, if it ended early because a fork would have waited too long; otherwise 0.
	pub next: usize,
}

/// Drops all refills of mappings whose page tables a fork copies. Beside other threads nothing is dropped.
pub fn drop_refills() -> core::result::Result<u64, Error> {
	begin(0, Mappings::All, Wait::Yes, None).map(|dropped| dropped.bytes)
}

/// The same when everything was sealed that can be: of the mappings from which that was taken.
pub fn drop_left() {
	if GENERATIONS.is_any_written() {
		// What can't be dropped is no harm.
		let _ = begin(0, Mappings::KnownWritten, Wait::No, None);
	}
}

/// The same in the middle of a program's fork, from an address on, as far as there is time for it.
pub(crate) fn drop_for_policy(from: usize) -> core::result::Result<Dropped, Error> {
	begin(from, Mappings::All, Wait::No, Some(super::PART_NS))
}

fn begin(from: usize, of: Mappings, wait: Wait, within: Option<u64>) -> core::result::Result<Dropped, Error> {
	let here = 0u8;
	let caller_stack = &raw const here as usize;
	let done = session::run(wait, |arena| {
		let start = sys::now_ns();
		arena.late_at = within.map_or(u64::MAX, |ns| start + ns);
		// Nobody may use memory that is aside: what the calling thread and the kernel use for it stays where it is.
		plan::set_holes(arena, caller_stack).map_err(looking)?;
		let mut outcome = exclusive::run_alone(arena, wait == Wait::Yes, |arena| drop_all(arena, from, of))?;
		outcome.elapsed_ns = sys::now_ns() - start;
		Ok(outcome)
	});
	let Outcome { sealed: bytes, elapsed_ns: ns, filled: next, .. } = done.outcome?;
	Ok(Dropped { bytes, ns, next: next as usize })
}

/// The same; gives the bytes as what was sealed, and where to go on as what was filled.
fn drop_all(arena: &mut Arena, from: usize, of: Mappings) -> core::result::Result<Outcome, Error> {
	if let Some(reason) = find_mappings(arena, from, of).map_err(looking)? {
		return Err(Error::Refused(reason));
	}
	let Arena { regions, runs, run_count, holes, hole_count, late_at, .. } = arena;
	let pagemap = Pagemap::open(regions).map_err(looking)?;
	if !pagemap.has_scan() {
		// Nothing else tells pages of 2 MB, which a fork doesn't copy, from small ones.
		return Ok(Outcome::default());
	}
	let aside = Aside::reserve().map_err(looking)?;
	let mut walk = Walk { pagemap, aside, late_at: *late_at, bytes: 0, next: 0 };
	for run in &runs[..*run_count] {
		if walk.next == 0 && walk.aside.holds_blocks() {
			walk.mapping(run, &holes[..*hole_count]).map_err(looking)?;
		}
	}
	Ok(Outcome { sealed: walk.bytes, filled: walk.next, ..Outcome::default() })
}

fn looking(e: Errno) -> Error {
	Error::System(Step::Look, e)
}

/// Lists sealed mappings from an address on as runs of the arena, without those of which the program may have asked
/// something since: they may be locked or immutable. What there is no room for is left out. Gives what is mapped by
/// which somebody else might write.
fn find_mappings(arena: &mut Arena, from: usize, of: Mappings) -> Result<Option<Reason>> {
	arena.run_count = 0;
	let mut writer = None;
	lookup::for_each(Range::ALL, Wanted::Files, |v| {
		writer = writer.or(kernel_writers::of_mapping(v));
		let range = v.range.intersect(Range::new(from, Range::ALL.end));
		let wanted = of == Mappings::All || GENERATIONS.is_written(v.identity());
		if v.kind == Kind::Sealed && wanted && !range.is_empty() && !STATE.marked.touch(v.range) {
			match arena.push_run(Run { range, prot: v.prot, file: v.identity(), ..Run::default() }) {
				Err(e) if e != Errno::E2BIG => return Err(e),
				_ => {}
			}
		}
		Ok(())
	})?;
	Ok(writer)
}

/// The whole blocks of a range, as many at a time as are moved aside: page tables move as such then, and 2 MB pages as
/// what they are.
fn parts(range: Range) -> impl Iterator<Item = Range> {
	let (start, end) = (range.start.next_multiple_of(HUGE), range.end & !(HUGE - 1));
	(start..end).step_by(MOST).map(move |at| Range::new(at, end.min(at + MOST)))
}

/// A walk through sealed memory, as far as there is time.
struct Walk<'a> {
	pagemap: Pagemap<'a>,
	aside: Aside,
	late_at: u64,
	bytes: u64,
	/// See [`Dropped::next`].
	next: u64,
}

impl Walk<'_> {
	/// Drops the refills of a mapping, or of the rest of one, if something was written there: otherwise a fork copies
	/// nothing of it.
	fn mapping(&mut self, run: &Run, holes: &[Range]) -> Result<()> {
		let mut written = GENERATIONS.is_written(run.file);
		for part in parts(run.range) {
			written = written || self.pagemap.has_any(part, Which::Written)?;
			if written || self.is_late_behind(part) {
				break;
			}
		}
		if !written {
			return Ok(());
		}
		GENERATIONS.note_written(run.file);
		// However long it was looked for.
		self.late_at = self.late_at.max(sys::now_ns() + SHORT);
		let mut result = Ok(());
		subtract(run.range, holes, |piece| {
			for part in parts(piece) {
				if result.is_err() || self.next != 0 || !self.aside.holds_blocks() {
					break;
				}
				// SAFETY: no other thread is there, and what this one uses lies in the holes; a run is in one mapping.
				result = unsafe { self.part(part, run.prot) };
				self.is_late_behind(part);
			}
		});
		result
	}

	/// Whether time is over; then it goes on behind this part.
	fn is_late_behind(&mut self, part: Range) -> bool {
		let late = sys::now_ns() >= self.late_at;
		if late {
			self.next = part.end as u64;
		}
		late
	}

	/// Drops the refills of a part.
	///
	/// # Safety
	/// As [`Aside::take`].
	unsafe fn part(&mut self, part: Range, prot: u32) -> Result<()> {
		// SAFETY: the caller's.
		let old = unsafe { self.aside.take(part) }?;
		let refills = Ask { all: scan::PRESENT | scan::FILE, none: scan::HUGE_PAGE, ..Ask::default() };
		let done = self.pagemap.scan(Range::new(old, old + part.len()), refills, |found| {
			let range = found.range();
			if range.len() >= RUN {
				// SAFETY: pages of the memfd, which nobody can write to, at addresses that are the engine's own.
				unsafe { sys::madvise(range.start, range.len(), k::MADV_DONTNEED) }?;
				self.bytes += range.len() as u64;
			}
			Ok(())
		});
		// SAFETY: taken from there just now.
		unsafe { self.aside.put_back(part, prot, old) };
		done
	}
}
