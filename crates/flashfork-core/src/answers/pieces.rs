//! What a mapping of the program's consists of, where it lies in pieces since a seal.

use crate::{
	arena::{Arena, Run},
	proc::{
		lookup::{self, Wanted},
		vma::Kind,
	},
	range::Range,
	seal::{library::LIBRARIES, offset, properties::Properties},
	sys::{Errno, MAP_NORESERVE, Result},
	threads::errand,
};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The last piece of a mapping: new memory behind it is like it.
#[derive(Clone, Copy)]
pub struct End {
	pub prot: u32,
	pub sealed: bool,
	/// Whether it is memory of a file: what is anonymous can't be behind it.
	pub of_file: bool,
	pub properties: Properties,
}

impl End {
	/// The flag of `mmap(2)` that new memory behind it has in common with it, if it has.
	pub(super) fn unreserved(&self) -> u32 {
		if self.properties.advice & offset::UNRESERVED != 0 { MAP_NORESERVE } else { 0 }
	}

	/// Gives new memory what holds for this piece.
	pub fn apply(&self, at: usize, len: usize) -> Result<()> {
		self.properties.apply(at, len, self.prot)
	}
}

/// Lists the pieces of a range as runs; returns what the last one is like. `EFAULT`, as the kernel would say, unless
/// they are one mapping to the program: private memory without a gap, of one protection; or of one file, as a library's
/// data is that was sealed in pieces. Gives their number too.
fn pieces(runs: &mut [Run], whole: Range) -> Result<(End, usize)> {
	let (mut at, mut count) = (whole.start, 0);
	let mut last = None;
	// Inode and device of the first piece, and where its file would begin in memory; zeros for anonymous memory.
	let mut file = None;
	lookup::for_each(whole, Wanted::All, |v| {
		let range = v.range.intersect(whole);
		if range.is_empty() {
			return Ok(());
		}
		let sealed = v.kind == Kind::Sealed;
		let of_file = v.kind == Kind::File && !v.shared && LIBRARIES.may_have_been(range);
		let ours = sealed || of_file || v.kind == Kind::Anonymous && !v.shared;
		let this = if of_file { (v.inode, v.device, v.range.start as u64 - v.offset) } else { Default::default() };
		if !ours
			|| *file.get_or_insert(this) != this
			|| range.start != at
			|| last.is_some_and(|l: End| l.prot != v.prot)
		{
			return Err(Errno::EFAULT);
		}
		*runs.get_mut(count).ok_or(Errno::E2BIG)? = Run { range, ..Run::default() };
		count += 1;
		at = range.end;
		let advice = if sealed { offset::advice_of_sealed(v) } else { 0 };
		let properties = Properties { advice, ..Properties::default() };
		last = Some(End { prot: v.prot, sealed, of_file, properties });
		Ok(())
	})?;
	last.filter(|_| at == whole.end).map(|end| (end, count)).ok_or(Errno::EFAULT)
}

/// Runs `f` with room for text and a list: less of it where no more memory may be mapped (`RLIMIT_AS`).
pub fn with_scratch<T>(f: impl FnOnce(&mut [u8], &mut [Run]) -> Result<T>) -> Result<T> {
	match Arena::map() {
		Ok(arena) => {
			let result = f(&mut arena.text, &mut arena.runs);
			arena.unmap();
			result
		}
		Err(e) => {
			let Some(mut spare) = Spare::take() else { return Err(e) };
			let Scratch { text, runs } = spare.scratch();
			f(text, runs)
		}
	}
}

struct Scratch {
	text: [u8; 16 << 10],
	runs: [Run; 512],
}

/// The one there is for when none can be mapped, in the hands of whoever has taken it.
struct Spare(());

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Spare {
	fn take() -> Option<Spare> {
		TAKEN.compare_exchange(false, true, SeqCst, SeqCst).ok().map(|_| Spare(()))
	}

	fn scratch(&mut self) -> &mut Scratch {
		const NONE: Run = Run {
			range: Range { start: 0, end: 0 },
			prot: 0,
			advice: 0,
			record: 0,
			resealed: false,
			file: (0, 0),
			growth: false,
			huge: false,
			filled: 0,
			present: false,
		};
		static mut SCRATCH: Scratch = Scratch { text: [0; 16 << 10], runs: [NONE; 512] };
		let scratch = &raw mut SCRATCH;
		// SAFETY: there is one `Spare` at a time, and it is borrowed while the scratch is used.
		unsafe { &mut *scratch }
	}
}

impl Drop for Spare {
	fn drop(&mut self) {
		TAKEN.store(false, SeqCst);
	}
}

/// [`errand::ask`], for an answer.
pub fn by_any_means<T>(mut ask: impl FnMut() -> Result<T>) -> Result<T> {
	let mut answer = Err(Errno::ESRCH);
	errand::ask(|| {
		answer = ask();
		match answer {
			// That is an answer.
			Err(e) if ![Errno::EFAULT, Errno::E2BIG].contains(&e) => Err(e),
			_ => Ok(()),
		}
	})?;
	answer
}

/// [`pieces`], by any means.
pub fn list(whole: Range, runs: &mut [Run]) -> Result<(End, usize)> {
	by_any_means(|| pieces(runs, whole))
}

/// Whether the program asked for something on part of a range only: then it is more than one mapping without any seal.
pub fn differ(whole: Range, text: &mut [u8], runs: &mut [Run]) -> Result<bool> {
	let (_, count) = list(whole, runs)?;
	let mut first = None;
	for run in &runs[..count] {
		let properties = by_any_means(|| Properties::at(run.range.start, text))?;
		if !properties.is_like(first.get_or_insert(properties)) {
			return Ok(true);
		}
	}
	Ok(false)
}
