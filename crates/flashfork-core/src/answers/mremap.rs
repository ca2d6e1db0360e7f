//! `mremap(2)` on sealed memory.
//!
//! What is one mapping to the program lies in several pieces after a seal, some sealed and some not, and the kernel
//! grows and moves one piece at a time (`EFAULT`). And a sealed piece must not grow into its memfd: its clones would
//! leave pages there, and after a shrink the old bytes would come back. So where sealed memory grows, or a mapping in
//! pieces moves, this does what the kernel does for a whole one: new memory behind the end, each piece moved by itself.

use super::{
	anonymous::{self, Need},
	moving::{DONTUNMAP, FIXED, MAYMOVE, Move},
	pieces::{End, by_any_means, differ, list, with_scratch},
};
use crate::{
	range::Range,
	scratch,
	seal::{properties::Properties, unseal::copy_pages, vetted::VETTED},
	stack::{reserved, roomy},
	state::{Inside, STATE},
	sys::{self, ADDRESSES, Errno, PAGE, PROT_READ, PROT_WRITE, Result},
};
use linux_raw_sys::general as k;

/// `mremap(2)` with the meaning it has on anonymous memory. On an error everything is where it was.
///
/// # Safety
/// As `mremap(2)`.
pub unsafe fn mremap(from: usize, old: usize, new: usize, flags: usize, to: usize) -> Result<usize> {
	// SAFETY: the program's own call.
	let moved = unsafe { move_or_grow(from, old, new, flags, to) };
	if let Ok(to) = moved {
		VETTED.forget(Range::pages_of(to, new));
		if STATE.sealed() {
			STATE.moved(Range::pages_of(from, old), Range::pages_of(to, new));
		}
	}
	// Also where it was moved and moved back.
	STATE.unsealed.forget();
	moved
}

unsafe fn move_or_grow(from: usize, old: usize, new: usize, flags: usize, to: usize) -> Result<usize> {
	// SAFETY: the program's own call.
	let real = || unsafe { sys::mremap(from, old, new, flags, to) };
	let Some(len) = new.checked_next_multiple_of(PAGE) else { return real() };
	let _quiet = STATE.quiet();
	// What is done here takes several steps, between which no other thread may seal.
	let inside = STATE.inside();
	let whole = Range::pages_of(from, old);
	let wrong = flags & !(MAYMOVE | FIXED | DONTUNMAP) != 0
		|| flags & (FIXED | DONTUNMAP) != 0 && flags & MAYMOVE == 0
		|| flags & FIXED != 0
			&& (!to.is_multiple_of(PAGE)
				|| !whole.intersect(Range::pages_of(to, len)).is_empty()
				|| to.checked_add(len).is_none_or(|end| end > ADDRESSES));
	if !STATE.sealed() || wrong || whole.start != from || whole.is_empty() || len == 0 {
		return real();
	}
	if len > ADDRESSES {
		// Nothing is that large, in pieces or in one.
		return real().map_err(|e| if e == Errno::EFAULT { Errno::ENOMEM } else { e });
	}
	let inside = anonymous::give_files_back(whole, inside, false)?;
	// SAFETY: the program's own call.
	let moved = roomy(|| unsafe { in_steps(whole, len, flags, to, real, inside) });
	if moved != Err(Errno::ENOMEM) || len <= whole.len() {
		return moved;
	}
	// There may have been room for it, but not for the stack besides (`RLIMIT_AS`, `RLIMIT_DATA`).
	// SAFETY: the same; everything is where it was.
	let again = reserved(|| unsafe { in_steps(whole, len, flags, to, real, STATE.inside()) });
	again.unwrap_or(moved)
}

/// # Safety
/// As `mremap(2)`, which `real` is.
unsafe fn in_steps(
	mut whole: Range,
	len: usize,
	flags: usize,
	to: usize,
	real: impl Fn() -> Result<usize>,
	mut inside: Inside<'static>,
) -> Result<usize> {
	if flags & DONTUNMAP != 0 {
		inside = anonymous::make_anonymous(whole, inside, Need::Must)?;
	}
	let moves = flags & FIXED != 0;
	// What shrinks where it is lies in no pieces that matter.
	if len < whole.len() && (!moves || flags & DONTUNMAP != 0) {
		return real();
	}
	// Of a range that shrinks the kernel cuts off the end, whatever lies there, and asks about the rest alone.
	let cut_off = Range::new(whole.start + len.min(whole.len()), whole.end);
	whole.end = cut_off.start;
	// The scratch memory must be gone before anything grows: it may lie in the very place.
	let look = || with_scratch(|_, runs| list(whole, runs));
	let end = if len == whole.len() && cut_off.is_empty() { Err(Errno::EFAULT) } else { look() };
	match end {
		// It is cut off once, here or by the kernel: another thread's new memory may come there at once.
		Ok((_, pieces)) if !cut_off.is_empty() && pieces > 1 => {}
		Ok(_) | Err(Errno::EFAULT) if !cut_off.is_empty() => return real(),
		Ok((end, _)) if end.sealed => {}
		Ok(_) | Err(Errno::EFAULT) => match real() {
			Err(Errno::EFAULT) => {}
			other => return other,
		},
		Err(e) => {
			whole.end = cut_off.end;
			// SAFETY: the program's own call.
			return unsafe { unseen(whole, len, flags, to, e) };
		}
	}
	let mut end = match end.or_else(|_| look()) {
		Err(e) if e != Errno::EFAULT => {
			// SAFETY: the program's own call.
			return unsafe { unseen(whole, len, flags, to, e) };
		}
		end => end?.0,
	};
	if end.of_file && len > whole.len() {
		return Err(Errno::EFAULT);
	}
	// A sealed piece has been asked for nothing: it would not have been sealed.
	if !end.sealed || STATE.marked.touch(whole) {
		end.properties = with_scratch(|text, _| by_any_means(|| Properties::at(whole.end - PAGE, text)))?;
	}
	if STATE.properties() != 0 && with_scratch(|text, runs| differ(whole, text, runs))? {
		return if cut_off.is_empty() { Err(Errno::EFAULT) } else { real() };
	}
	if !cut_off.is_empty() {
		// SAFETY: the program gives it up.
		unsafe { sys::munmap(cut_off.start, cut_off.len()) }?;
	}
	let to = moves.then_some(to);
	// SAFETY: the program's own call; what it meets is the same as on one anonymous mapping.
	let moved = unsafe { Move { whole, len, end, flags }.run(to) };
	drop(inside);
	moved
}

/// `mremap(2)` where nobody can tell what is mapped, for the reason `e`. What was sealed once moves to new memory, byte
/// by byte.
///
/// # Safety
/// As `mremap(2)`.
unsafe fn unseen(whole: Range, len: usize, flags: usize, to: usize, e: Errno) -> Result<usize> {
	if !STATE.holds_sealed() || !STATE.places.touch(whole) {
		// SAFETY: the program's own call.
		let moved = unsafe { sys::mremap(whole.start, whole.len(), len, flags, to) };
		// Anonymous memory in pieces since it was sealed.
		let in_pieces = moved == Err(Errno::EFAULT) && STATE.places.touch(whole) && is_plain(whole);
		if !in_pieces {
			return moved;
		}
	}
	if len < whole.len() || flags & DONTUNMAP != 0 || STATE.marked.touch(whole) || STATE.is_sandboxed() {
		return Err(e);
	}
	let last = whole.end - PAGE;
	// SAFETY: changes no contents.
	let writable = unsafe { sys::madvise(last, PAGE, k::MADV_POPULATE_WRITE) }.is_ok();
	let prot = PROT_READ | if writable { PROT_WRITE } else { 0 };
	let end = End { prot, sealed: true, of_file: false, properties: Properties::default() };
	let tail = Move { whole, len, end, flags };
	// SAFETY: maps only where nothing is.
	if flags & FIXED == 0 && unsafe { tail.grow_in_place() } {
		return Ok(whole.start);
	}
	if flags & MAYMOVE == 0 {
		return Err(Errno::ENOMEM);
	}
	let new = scratch::temporary(len)?;
	// SAFETY: the copy is new; the program gives the old addresses up, and those at `to` with MREMAP_FIXED.
	let moved = unsafe {
		with_scratch(|text, _| copy_pages(whole, new, text)).and_then(|()| sys::mprotect(new, len, prot)).and_then(
			|()| match flags & FIXED {
				0 => Ok(new),
				_ => sys::mremap_fixed(new, len, to).map(|()| to),
			},
		)
	};
	// SAFETY: see above; either is nobody's any more. A failure would leak it, no more.
	unsafe {
		let _ = match moved {
			Ok(_) => sys::munmap(whole.start, whole.len()),
			Err(_) => sys::munmap(new, len),
		};
	}
	moved
}

/// Whether a range is anonymous memory for which nothing was asked, by what the kernel allows there; no where a clone
/// that another thread makes might notice the question.
fn is_plain(whole: Range) -> bool {
	if STATE.properties() != 0 || sys::unshare_memory().is_err() {
		return false;
	}
	// SAFETY: changes what clones get, and back before there can be one.
	unsafe {
		let anonymous = sys::madvise(whole.start, whole.len(), k::MADV_WIPEONFORK).is_ok();
		sys::madvise(whole.start, whole.len(), k::MADV_KEEPONFORK).is_ok() && anonymous
	}
}
