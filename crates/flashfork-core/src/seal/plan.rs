//! Plan: which runs of pages are worth sealing.
//!
//! A VMA less what is excluded falls into 2 MB blocks (its ends into smaller ones). A block that is at least three
//! quarters populated is sealed whole; the rest stays anonymous. Neighbouring blocks form a run; runs under 2 MB stay
//! too, unless sealed memory ends where they begin: then they are what a seal that failed has left of a block. Where
//! nobody writes to the memory any more smaller runs are sealed as well: heaps may consist of them (V8's does). Of
//! memory sealed already, blocks written since are sealed anew.

use super::{
	dense::{self, DENSE},
	generations::{GENERATIONS, Identity, Memfds, PLACES},
	offset,
	vetted::VETTED,
	witness::Ours,
};
use crate::{
	arena::{Arena, MAX_HOLES, MAX_RUNS, Run, VmaRecord},
	calls::object::Reader,
	kernel_writers,
	never_seal::{Reason, judge},
	own_pages,
	proc::{
		pagemap::{Pagemap, Which},
		vma::{self, Kind, Vma},
	},
	range::{Range, subtract},
	restartable, snapshot,
	state::{MAX_EXCLUDED, STATE},
	sys::{Errno, HUGE, PAGE, Result},
};

/// Least bytes of a run where small ones are sealed. A fork copies no entry for each of its pages then (0.1 µs), and a
/// clone that reads there has a fault for every sixteenth (1 µs): what is smaller is mostly in use.
const SMALL_RUN: usize = 256 << 10;

/// Least bytes of all of them. A program that has fewer reads most of them in every clone.
pub const SMALL_BYTES: u64 = 16 << 20;

/// Bytes of which the page map is asked at a time: part of a seal needs to know of no more than that part.
const WINDOW: usize = 64 << 20;

/// Most runs in a plan with small ones: there is room for large ones behind them.
const SMALL_RUNS: usize = MAX_RUNS / 2;

const _: () = assert!(MAX_EXCLUDED + own_pages::COUNT + 11 < MAX_HOLES);

const NONE: Identity = (0, 0);

/// What the plan found besides the runs.
#[derive(Clone, Copy, Default)]
pub struct Facts {
	/// VMAs of the process.
	pub vmas: usize,
	/// Generations mapped now.
	pub generations: usize,
	/// A reason to refuse the whole process.
	pub refused: Option<Reason>,
	/// Bytes of runs planned.
	pub bytes: u64,
	/// Those of small runs among them.
	pub small: u64,
}

/// Fills the arena's runs and records. `fold`: seal anew everything sealed before, written or not.
///
/// The holes in the arena must be set.
pub fn make(arena: &mut Arena, fold: bool) -> Result<Facts> {
	plan(arena, fold, false)
}

/// The same for part of what isn't sealed yet: of memory alone that was judged before ([`super::vetted`]).
pub fn make_of_vetted(arena: &mut Arena) -> Result<Facts> {
	plan(arena, false, true)
}

fn plan(arena: &mut Arena, fold: bool, vetted: bool) -> Result<Facts> {
	arena.run_count = 0;
	arena.record_count = 0;
	let own = arena.range();
	let mut facts = Facts::default();
	let mut files = [(0u64, 0u64); PLACES];
	// The text buffer is read while the rest of the arena is written: take it out for the time being.
	let text = core::ptr::slice_from_raw_parts_mut(arena.text.as_mut_ptr(), arena.text.len());
	let regions = core::ptr::slice_from_raw_parts_mut(arena.regions.as_mut_ptr(), arena.regions.len());
	// SAFETY: `push_run` and `push_record` touch neither buffer, and no other reference to them exists meanwhile.
	let (text, regions) = unsafe { (&mut *text, &mut *regions) };
	let mut pagemap = Pagemap::open(regions)?;
	let mut sealed_to = 0;
	if arena.most != 0 && !vetted {
		VETTED.begin();
	}
	arena.seen.clear();
	let reader = Reader::default();
	let list = if vetted { c"/proc/thread-self/maps" } else { c"/proc/thread-self/smaps" };
	vma::for_each(list, text, |v| {
		facts.vmas += 1;
		facts.refused = kernel_writers::of_mapping(v).or(facts.refused);
		if v.range.intersect(own).len() == own.len() && v.flags.has(b"lo") {
			facts.refused = Some(Reason::LocksFuture);
		}
		if v.kind == Kind::Sealed && !files[..facts.generations.min(PLACES)].contains(&v.identity()) {
			if let Some(place) = files.get_mut(facts.generations) {
				*place = v.identity();
			}
			facts.generations += 1;
		}
		let known = if vetted { VETTED.advice_of(v) } else { None };
		if known.is_some() || !vetted {
			facts.bytes += plan_vma(arena, &mut pagemap, v, fold, sealed_to, known)?;
		}
		if arena.libraries {
			arena.seen.see(v, arena.record_count.saturating_sub(1) as u32, &reader);
		}
		if v.kind == Kind::Sealed {
			sealed_to = v.range.end;
		}
		Ok(())
	})?;
	let small = arena.runs[..arena.run_count].iter().filter(|run| run.range.len() < HUGE);
	facts.small = small.map(|run| run.range.len() as u64).sum();
	Ok(facts)
}

/// Plans one VMA; returns the bytes of its runs. `sealed_to`: where the last sealed VMA before it ends; `known`: its
/// advice, where it was judged before and nothing is known but what maps says.
fn plan_vma(
	arena: &mut Arena,
	pagemap: &mut Pagemap,
	v: &Vma,
	fold: bool,
	sealed_to: usize,
	known: Option<u8>,
) -> Result<u64> {
	let mut name = [0; 32];
	name[..v.name().len()].copy_from_slice(v.name());
	let sealed_before = v.kind == Kind::Sealed;
	if sealed_before && v.anonymous + v.swapped > 0 {
		GENERATIONS.note_written(v.identity());
	}
	if arena.only != 0 && !(sealed_before && v.generation() == arena.only) || arena.most != 0 && sealed_before {
		return Ok(0);
	}
	let holes = &arena.holes[..arena.hole_count];
	let excluded = holes.iter().any(|hole| hole.intersect(v.range).len() == v.range.len());
	let record = VmaRecord {
		range: v.range,
		prot: v.prot,
		name,
		sealed: 0,
		kept: if sealed_before { v.range.len() as u64 } else { 0 },
		reason: judge(v, pagemap.has_scan()).err().map(|reason| match reason {
			// The engine's scratch memory is kept out of clones, too: nothing of the program's is left out for that.
			Reason::DontFork if excluded => Reason::Excluded,
			reason => reason,
		}),
	};
	let index = arena.push_record(record);
	let first_run = arena.run_count;
	if record.reason.is_some() {
		return Ok(0);
	}
	if !sealed_before && v.anonymous + v.swapped == 0 && known.is_none() {
		// Nothing was ever written here: nothing to seal and nothing to explain.
		return Ok(0);
	}
	if arena.most != 0 && known.is_none() && pagemap.has_scan() {
		VETTED.add(v);
	}
	if arena.most != 0 && arena.planned() >= arena.most {
		// The next part has it.
		return Ok(0);
	}
	let mut holes = [Range::default(); MAX_HOLES];
	let count = arena.hole_count;
	holes[..count].copy_from_slice(&arena.holes[..count]);
	let mut blocks = Blocks {
		which: if sealed_before && !fold { Which::Written } else { Which::Populated },
		keep_any: sealed_before,
		// A fold takes a sealed VMA whole: what isn't present in the page table is still in the memfd.
		whole: sealed_before && fold,
		sealed_to,
		sparse: 0,
		small: 0,
		run: Run {
			prot: v.prot,
			advice: known.unwrap_or_else(|| offset::advice_of(v)),
			record: index,
			resealed: sealed_before,
			..Run::default()
		},
		// What isn't in the page table of sealed memory is in the memfd, or swapped out.
		tells_present: pagemap.has_scan() && !sealed_before,
		bytes: 0,
	};
	let mut result = Ok(());
	let mut uncovered = 0;
	subtract(v.range, &holes[..count], |piece| {
		uncovered += piece.len();
		if result.is_ok() {
			result = blocks.plan(arena, pagemap, piece);
		}
	});
	result?;
	if !pagemap.has_scan() && !sealed_before && known.is_none() && v.anonymous + v.swapped < blocks.bytes / 4 * 3 {
		// Without PAGEMAP_SCAN the zero page counts as populated; smaps knows better. Sealing it would take memory.
		blocks.sparse += blocks.bytes as usize;
		blocks.bytes = 0;
		arena.run_count = first_run;
	}
	let reason = if blocks.sparse > 0 {
		Some(Reason::Sparse)
	} else if blocks.small > 0 {
		Some(Reason::Small)
	} else if uncovered < v.range.len() {
		Some(Reason::Excluded)
	} else {
		None
	};
	arena.records[index as usize].reason = reason;
	Ok(blocks.bytes)
}

/// Collects populated pages into blocks and blocks into runs.
struct Blocks {
	which: Which,
	keep_any: bool,
	whole: bool,
	sealed_to: usize,
	sparse: usize,
	small: usize,
	run: Run,
	/// Whether the page map tells of all pages that are not in memory.
	tells_present: bool,
	bytes: u64,
}

impl Blocks {
	fn plan(&mut self, arena: &mut Arena, pagemap: &mut Pagemap, piece: Range) -> Result<()> {
		if self.whole {
			self.run.range = piece;
			self.run.filled = 0;
			return self.flush(arena);
		}
		self.begin(piece.start);
		let mut block = block_at(piece.start, piece);
		let (mut populated, mut present) = (0, self.tells_present);
		let mut at = piece.start;
		while at < piece.end && !self.is_enough(arena) {
			let window = Range::new(at, piece.end.min((at & !(HUGE - 1)) + WINDOW));
			let mut result = Ok(());
			pagemap.for_each_told(window, self.which, |found, out| {
				let mut at = found.start;
				while at < found.end && result.is_ok() {
					if at >= block.end {
						result = self.close(arena, block, populated, present);
						block = block_at(at, piece);
						(populated, present) = (0, self.tells_present);
					}
					let end = found.end.min(block.end);
					populated += end - at;
					present &= !out;
					at = end;
				}
			})?;
			result?;
			at = window.end;
		}
		self.close(arena, block, populated, present)?;
		self.flush(arena)
	}

	fn is_enough(&self, arena: &Arena) -> bool {
		arena.most != 0 && arena.planned() + self.run.range.len() >= arena.most
	}

	fn begin(&mut self, at: usize) {
		self.run = Run { range: Range::new(at, at), filled: 0, present: self.tells_present, ..self.run };
	}

	/// Decides on one block: it joins the run, starts a new one, or stays anonymous.
	fn close(&mut self, arena: &mut Arena, block: Range, populated: usize, present: bool) -> Result<()> {
		if arena.leave_dense && !self.keep_any && DENSE.has(block) {
			return Ok(());
		}
		let wanted = if self.keep_any {
			populated > 0 && !(arena.leave_dense && dense::is_dense(populated, block))
		} else {
			populated * 4 >= block.len() * 3
		};
		if !wanted {
			self.sparse += usize::from(populated > 0) * populated;
			return Ok(());
		}
		if self.run.range.end != block.start {
			self.flush(arena)?;
			self.begin(block.start);
		}
		self.run.range.end = block.end;
		self.run.present &= present;
		if !self.keep_any {
			self.run.filled += block.len() - populated;
		}
		Ok(())
	}

	fn flush(&mut self, arena: &mut Arena) -> Result<()> {
		let len = self.run.range.len();
		if len == 0 {
			return Ok(());
		}
		let least = if arena.small_runs && arena.run_count < SMALL_RUNS { SMALL_RUN } else { HUGE };
		if len < least && !self.keep_any && self.run.range.start != self.sealed_to {
			self.small += len;
			return Ok(());
		}
		let run = if arena.most == 0 { self.run } else { within(self.run, arena.most - arena.planned()) };
		// A plan that is full is carried out as it is; the next seal goes on from there.
		if !run.range.is_empty() && arena.push_run(run).is_ok() {
			self.bytes += run.range.len() as u64;
		}
		Ok(())
	}
}

/// As much of a run as may still be planned: whole blocks.
fn within(mut run: Run, left: usize) -> Run {
	let whole = run.range.len();
	if whole > left {
		let end = (run.range.start + left) & !(HUGE - 1);
		run.range.end = end.max(run.range.start);
		run.filled = share_of(run.filled, whole, run.range.len());
	}
	run
}

/// Of `bytes` spread over a run of `whole` bytes, those in part of it.
pub fn share_of(bytes: usize, whole: usize, part: usize) -> usize {
	(bytes as u128 * part as u128 / whole.max(1) as u128) as usize
}

/// The number of the generation, of `ours`, of which most exists in vain: written since it was sealed, or mapped no
/// more; none when nothing is.
pub fn most_written(ours: &Ours, arena: &mut Arena) -> Result<Option<u64>> {
	let mut generations = [(0, 0u64); PLACES];
	let mut add = |generation, bytes| {
		if let Some(place) = generations.iter_mut().find(|(known, _)| [0, generation].contains(known)) {
			*place = (generation, place.1 + bytes);
		}
	};
	for_each_file(&mut arena.small, |v| ours.has(v), |file, memfd| add(file.generation, memfd.gone))?;
	vma::for_each(c"/proc/thread-self/smaps", &mut arena.text, |v| {
		if ours.has(v) {
			add(v.generation(), v.anonymous + v.swapped);
		}
		Ok(())
	})?;
	let most = generations.iter().max_by_key(|(_, written)| *written);
	Ok(most.filter(|(_, written)| *written > 0).map(|(generation, _)| *generation))
}

/// A file of sealed memory, and how much of it is mapped.
#[derive(Clone, Copy)]
struct Mapped {
	identity: Identity,
	generation: u64,
	bytes: u64,
	wanted: bool,
}

/// Calls `each` with the wanted files of which something is mapped, and what is in them. Those of which nothing is are
/// known no more afterwards. `buf` is scratch.
fn for_each_file(buf: &mut [u8], wanted: impl Fn(&Vma) -> bool, mut each: impl FnMut(Mapped, Memfds)) -> Result<()> {
	let mut mapped = [Mapped { identity: NONE, generation: 0, bytes: 0, wanted: false }; PLACES];
	vma::for_each(c"/proc/thread-self/maps", buf, |v| {
		let identity = v.identity();
		if v.kind == Kind::Sealed
			&& let Some(place) = mapped.iter_mut().find(|file| [NONE, identity].contains(&file.identity))
		{
			let bytes = place.bytes + v.range.len() as u64;
			*place = Mapped { identity, generation: v.generation(), bytes, wanted: wanted(v) };
		}
		Ok(())
	})?;
	// Not when there are more files than there is room for.
	if mapped.iter().any(|file| file.identity == NONE) {
		GENERATIONS.keep(|known| mapped.iter().any(|file| file.identity == known));
	}
	for file in mapped.iter().filter(|file| file.wanted) {
		each(*file, GENERATIONS.of(file.identity, file.bytes));
	}
	Ok(())
}

/// What is in the memfds of `ours` of which something is mapped. `buf` is scratch.
pub fn memfds(ours: &Ours, buf: &mut [u8]) -> Result<Memfds> {
	let mut all = Memfds::default();
	for_each_file(
		buf,
		|v| ours.has(v),
		|_, memfd| {
			all = Memfds { bytes: all.bytes + memfd.bytes, gone: all.gone + memfd.gone };
		},
	)?;
	Ok(all)
}

/// Notes what was put into a new generation. `buf` is scratch.
pub fn note_generation(file: Identity, bytes: u64, buf: &mut [u8]) {
	let mut mapped = [NONE; PLACES];
	let listed = for_each_file(
		buf,
		|_| true,
		|file, _| {
			if let Some(place) = mapped.iter_mut().find(|known| **known == NONE) {
				*place = file.identity;
			}
		},
	);
	// Without the list none may be forgotten.
	GENERATIONS.add(file, bytes, |other| listed.is_err() || mapped.contains(&other));
}

/// Bytes of sealed memory, in `ours`, that were written since: the page and its sealed original both exist.
pub fn written(ours: &Ours, arena: &mut Arena) -> Result<u64> {
	let mut written = 0;
	vma::for_each(c"/proc/thread-self/smaps", &mut arena.text, |v| {
		written += if ours.has(v) { v.anonymous + v.swapped } else { 0 };
		Ok(())
	})?;
	Ok(written)
}

/// The part of the 2 MB block around `at` in `piece`.
fn block_at(at: usize, piece: Range) -> Range {
	let start = at & !(HUGE - 1);
	Range::new(start, start + HUGE).intersect(piece)
}

/// Fills the arena's holes: the engine's own pages, what the program excluded, and the addresses the kernel writes for
/// the calling thread. Whole VMAs won't do: a kernel may have merged them with a heap.
pub fn set_holes(arena: &mut Arena, caller_stack: usize) -> Result<()> {
	use crate::sys;
	arena.hole_count = 0;
	let own = arena.range();
	arena.push_hole(own)?;
	for range in own_pages::all().into_iter().chain(snapshot::current::own()).chain(STATE.excluded()) {
		arena.push_hole(range)?;
	}
	arena.push_hole(around(caller_stack, 64 * PAGE, 256 * PAGE))?;
	// glibc's control block, rseq area included, lies from the thread pointer up; thread-local variables below it.
	arena.push_hole(restartable::near(sys::thread_pointer()?))?;
	for page in restartable::areas() {
		arena.push_hole(page)?;
	}
	for (start, len) in [sys::alternate_stack(), sys::robust_list()].into_iter().flatten() {
		arena.push_hole(Range::pages_of(start, len))?;
	}
	if arena.hole_count > arena.holes.len() {
		return Err(Errno::E2BIG);
	}
	Ok(())
}

fn around(addr: usize, below: usize, above: usize) -> Range {
	let start = addr.saturating_sub(below);
	Range::pages_of(start, addr.saturating_add(above) - start)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_run_that_is_cut_counts_its_own_holes_only() {
		let whole = Run { range: Range::new(HUGE, 101 * HUGE), filled: 10 * HUGE, ..Run::default() };
		let part = within(whole, 25 * HUGE + HUGE / 2);
		assert_eq!((part.range, part.filled), (Range::new(HUGE, 26 * HUGE), 10 * HUGE / 4));
		assert_eq!(within(whole, 100 * HUGE).filled, 10 * HUGE);
		assert!(within(whole, HUGE / 2).range.is_empty());
		assert_eq!(share_of(1 << 45, 1 << 46, 1 << 46), 1 << 45);
	}
}
