//! Moves and grows a mapping piece by piece, as the kernel would move and grow a whole one.

use super::pieces::{End, by_any_means, list, with_scratch};
use crate::{
	arena::Run,
	proc::{
		lookup::{self, Wanted},
		vma::Kind,
	},
	range::Range,
	seal::remap::{self, ATTEMPTS},
	state::STATE,
	sys::{self, Errno, HUGE, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, Result},
	threads::alone,
};
use linux_raw_sys::general as k;

pub const MAYMOVE: usize = k::MREMAP_MAYMOVE as usize;
pub const FIXED: usize = k::MREMAP_FIXED as usize;
pub const DONTUNMAP: usize = k::MREMAP_DONTUNMAP as usize;

/// A mapping that is to grow, or to lie elsewhere.
pub struct Move {
	/// Where it is.
	pub whole: Range,
	/// New length.
	pub len: usize,
	/// Its last piece.
	pub end: End,
	/// As `mremap(2)` takes them.
	pub flags: usize,
}

impl Move {
	/// Moves or grows it, to an address if one is given; gives the new address.
	///
	/// # Safety
	/// As `mremap(2)`.
	pub unsafe fn run(self, to: Option<usize>) -> Result<usize> {
		if self.flags & (FIXED | DONTUNMAP) == 0 {
			// SAFETY: maps only where nothing is.
			if unsafe { self.grow_in_place() } {
				return Ok(self.whole.start);
			}
			if self.flags & MAYMOVE == 0 {
				return Err(Errno::ENOMEM);
			}
		}
		self.may_grow()?;
		let to = match to {
			Some(to) => {
				let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
				// SAFETY: MREMAP_FIXED replaces what is there.
				unsafe { sys::mmap(to, self.len, PROT_NONE, flags, -1, 0) }?
			}
			None => match reserve(self.len, self.whole.start) {
				// SAFETY: the caller's.
				Err(Errno::ENOMEM) if self.flags & DONTUNMAP == 0 => return unsafe { self.run_into_gap() },
				reserved => reserved?,
			},
		};
		// SAFETY: the destination is the program's, or reserved just now.
		unsafe { self.run_to(to) }
	}

	/// Whether the program may have more memory by what the mapping grows: where something is mapped already, as at the
	/// destination in the end, `RLIMIT_DATA` isn't asked.
	fn may_grow(&self) -> Result<()> {
		let more = self.len - self.whole.len();
		if more == 0 {
			return Ok(());
		}
		let flags = MAP_PRIVATE | MAP_ANONYMOUS | self.end.unreserved();
		// SAFETY: new memory that nobody uses.
		unsafe { sys::mmap(0, more, self.end.prot, flags, -1, 0).and_then(|at| sys::munmap(at, more)) }
	}

	/// Where the address space may only grow by what the mapping grows (`RLIMIT_AS`) nothing can be reserved: goes to
	/// addresses that nobody uses, as long as nobody else may come there.
	///
	/// # Safety
	/// As `mremap(2)`.
	unsafe fn run_into_gap(&self) -> Result<usize> {
		let mut buf = [0; 1024];
		let mask = sys::block_signals()?;
		let moved = alone::alone_now(&mut buf).and_then(|alone| {
			let to = if alone { by_any_means(|| gap(self.len, self.whole.start))? } else { None };
			// SAFETY: nothing is mapped there, and nobody else maps anything.
			to.map_or(Err(Errno::ENOMEM), |to| unsafe { self.run_to(to) })
		});
		sys::restore_signals(mask);
		moved
	}

	/// # Safety
	/// The destination is the program's to replace.
	unsafe fn run_to(&self, to: usize) -> Result<usize> {
		// SAFETY: as the caller says.
		let moved = with_scratch(|_, runs| unsafe {
			let (_, count) = list(self.whole, runs)?;
			self.add_tail(to + self.whole.len())?;
			self.move_to(to, &runs[..count])
		});
		if let Err(e) = moved {
			// SAFETY: nothing of the program's is left there.
			return unsafe { sys::munmap(to, self.len) }.and(Err(e));
		}
		Ok(to)
	}

	/// Grows where it is; false, with nothing done, where that can't be.
	///
	/// # Safety
	/// As `mremap(2)`.
	pub unsafe fn grow_in_place(&self) -> bool {
		let Range { start, end } = Range::new(self.whole.end, self.whole.start + self.len);
		if start == end {
			return true;
		}
		let flags = MAP_PRIVATE | MAP_ANONYMOUS | k::MAP_FIXED_NOREPLACE;
		let flags = flags | self.end.unreserved();
		// SAFETY: replaces nothing.
		match unsafe { sys::mmap(start, end - start, self.end.prot, flags, -1, 0) } {
			Ok(at) if at == start && self.end.apply(start, end - start).is_ok() => true,
			Ok(elsewhere) => {
				// It can't be like the rest; or before Linux 4.17, where the address is only a hint.
				// SAFETY: mapped just now.
				let _ = unsafe { sys::munmap(elsewhere, end - start) };
				false
			}
			Err(_) => false,
		}
	}

	unsafe fn add_tail(&self, at: usize) -> Result<()> {
		let len = self.len - self.whole.len();
		if len > 0 {
			// SAFETY: the caller's destination.
			unsafe { remap::fresh_with(Range::new(at, at + len), self.end.prot, self.end.unreserved()) }?;
			self.end.apply(at, len)?;
		}
		Ok(())
	}

	/// Moves every piece; when one can't be moved, all are back where they were.
	///
	/// With `MREMAP_DONTUNMAP` the kernel leaves each piece's mapping behind as it moves the pages, empty and not
	/// locked: its addresses are free at no moment, or another thread's new memory might come there.
	unsafe fn move_to(&self, to: usize, pieces: &[Run]) -> Result<()> {
		let flags = MAYMOVE | FIXED | self.flags & DONTUNMAP;
		for (done, piece) in pieces.iter().enumerate() {
			let (Range { start, .. }, len) = (piece.range, piece.range.len());
			// SAFETY: the target is reserved for this piece.
			if let Err(e) = unsafe { sys::mremap(start, len, len, flags, self.target(to, piece)) } {
				// SAFETY: they came from there a moment ago.
				unsafe { self.move_back(to, &pieces[..done]) };
				return Err(e);
			}
		}
		Ok(())
	}

	/// # Safety
	/// The pieces have been moved to `to`.
	unsafe fn move_back(&self, to: usize, pieces: &[Run]) {
		for piece in pieces {
			// SAFETY: see above.
			let back = || unsafe { sys::mremap_fixed(self.target(to, piece), piece.range.len(), piece.range.start) };
			let mut attempts = 0;
			while back().is_err() {
				attempts += 1;
				if attempts == ATTEMPTS {
					STATE.die();
				}
				sys::pause_briefly();
			}
		}
	}

	fn target(&self, to: usize, piece: &Run) -> usize {
		to + (piece.range.start - self.whole.start)
	}
}

/// The highest addresses for `len` bytes where nothing is mapped nor grows to, equal to `like` modulo 2 MB; none if
/// there are none.
fn gap(len: usize, like: usize) -> Result<Option<usize>> {
	const TOP: usize = 1 << 47;
	let (mut before, mut found) = (HUGE, None);
	lookup::for_each(Range::ALL, Wanted::All, |v| {
		if v.kind != Kind::Stack && v.range.start < TOP {
			let highest = v.range.start.saturating_sub(len.saturating_add(2 * HUGE));
			let at = (highest & !(HUGE - 1)) + (like & (HUGE - 1));
			found = if at >= before + HUGE { Some(at) } else { found };
		}
		before = v.range.end;
		Ok(())
	})?;
	Ok(found)
}

/// Addresses for `len` bytes, equal to `like` modulo 2 MB so that huge pages stay huge.
fn reserve(len: usize, like: usize) -> Result<usize> {
	let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	let most = len.checked_add(HUGE).ok_or(Errno::ENOMEM)?;
	// SAFETY: a fresh mapping, cut to size.
	unsafe {
		let base = sys::mmap(0, most, PROT_NONE, flags, -1, 0)?;
		let at = base + (like.wrapping_sub(base) & (HUGE - 1));
		if at > base {
			sys::munmap(base, at - base)?;
		}
		sys::munmap(at + len, base + most - (at + len))?;
		Ok(at)
	}
}
