//! Which generations no other process has mapped: the kernel tells.
//!
//! Each place in the table of generations has its own page, which is written when a generation begins there, never
//! after, and given back when nothing of the generation is mapped any more. Clones have the page in common with the
//! process they were forked from, as any memory that nobody writes: while it is mapped in one process alone, no other
//! has that generation. A page swapped out tells nothing, and is left there: who reads it would seem to be alone.

use super::generations::{GENERATIONS, PLACES};
use crate::{
	apart::Apart,
	proc::{
		pagemap,
		vma::{Kind, Vma},
	},
	sys::{self, PAGE},
};
use core::sync::atomic::{AtomicU8, Ordering::SeqCst};
use linux_raw_sys::general as k;

/// The pages.
pub(crate) static WITNESSES: Apart<[Witness; PLACES]> = Apart::new([const { Witness(AtomicU8::new(0)) }; PLACES]);

#[repr(align(4096))]
pub(crate) struct Witness(AtomicU8);

const _: () = assert!(size_of::<Witness>() == PAGE);

/// A generation begins at this place.
pub fn begin(place: usize) {
	WITNESSES[place].0.store(1, SeqCst);
}

/// Nothing of the generation at this place is mapped any more. If that can't be told, others take it for in use.
pub fn end(place: usize) {
	// SAFETY: its own page, of which the contents mean nothing.
	let _ = unsafe { sys::madvise(&raw const WITNESSES[place] as usize, PAGE, k::MADV_DONTNEED) };
}

/// The generations after a certain one, and those before it that no other process had, if only for a moment since this
/// process began: who has them since is its clone. After 0, all of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ours {
	after: u64,
}

impl Ours {
	/// Asks the kernel. Where it doesn't answer, as to a process that has changed its user, nothing is new.
	pub fn find(after: u64) -> Ours {
		if after != 0 {
			let pages = WITNESSES.pages();
			let note = |page| GENERATIONS.note_alone((page - pages.start) / PAGE);
			let _ = pagemap::for_each_exclusive(pages, note);
		}
		Ours { after }
	}

	/// Whether this is sealed memory of one of them.
	pub fn has(&self, v: &Vma) -> bool {
		let is_ours = || v.generation() > self.after || GENERATIONS.was_alone(v.identity());
		v.kind == Kind::Sealed && (self.after == 0 || is_ours())
	}
}
