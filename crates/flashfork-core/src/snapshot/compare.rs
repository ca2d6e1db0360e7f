//! Compares the mappings there are with those that were there: lists what a restore must change, or says why it can't.
//! Changes nothing.

use super::{
	Error, Step,
	hands_off::hands_off,
	table::{Change, Entry, Lock, Needs, Table},
};
use crate::{
	never_seal::Reason,
	proc::vma::{self, Kind, Vma},
	range::{Range, subtract},
	sys::{self, ADDRESSES, Errno, PAGE, PROT_READ, PROT_WRITE},
};

/// Fills the table's changes. `nothing_came`: no memory has been made immutable since.
pub fn compare(table: &mut Table, nothing_came: bool) -> Result<(), Error> {
	table.change_count = 0;
	table.needs = Needs::default();
	table.entries[..table.entry_count].iter_mut().for_each(|entry| entry.in_pieces = false);
	let (hands_off, own) = hands_off(table);
	let grown = grown_heap(table);
	let text = core::ptr::slice_from_raw_parts_mut(table.arena.text.as_mut_ptr(), table.arena.text.len());
	// SAFETY: nothing below uses this buffer of the arena in another way.
	let text = unsafe { &mut *text };
	let mut walk = Walk {
		table,
		nothing_came,
		next: 0,
		error: None,
		heap: 0,
		must_yield: (Range::default(), 0),
		begun: (0, 0),
		gone: 0,
	};
	let mut at = 0;
	// What is locked only smaps tells, which takes longer. Where nothing was, whatever is locked now is unlocked
	// unasked.
	let list = if walk.table.locks { c"/proc/thread-self/smaps" } else { c"/proc/thread-self/maps" };
	let done = vma::for_each(list, text, |v| {
		walk.part(Range::new(at, v.range.start), None)?;
		at = v.range.end;
		walk.begin_mapping(v);
		walk.heap += v.range.intersect(grown).len();
		let mut result = Ok(());
		subtract(v.range, &hands_off[..own], |piece| {
			if result.is_ok() {
				result = walk.part(piece, Some(v));
			}
		});
		result.and_then(|()| walk.end_mapping(v))
	})
	.and_then(|()| walk.part(Range::new(at, usize::MAX), None))
	.and_then(|()| walk.try_pending());
	match (walk.error, done) {
		(Some(error), _) => return Err(error),
		(None, Err(Errno::E2BIG)) => return Err(Error::TooMany),
		(None, Err(e)) => return Err(Error::System(Step::Look, e)),
		(None, Ok(())) => {}
	}
	if walk.heap < grown.len() {
		// The break can't be moved over a hole.
		return Err(Error::Changed(grown));
	}
	Ok(())
}

/// What is needed beside the changes: the break may rise, and memory that isn't writable is opened to be copied back.
pub fn add_needs(table: &mut Table) {
	let Table { entries, saved, saved_count, needs, .. } = table;
	let is_opened = |e: &Entry| e.unknown && e.prot & PROT_WRITE == 0;
	let opened = saved[..*saved_count].iter().filter(|s| is_opened(&entries[s.entry as usize]));
	let most = opened.map(|s| s.range.len()).max().unwrap_or(0);
	needs.data += most;
	needs.asked |= most > 0 || sys::program_break() < table.program_break;
}

/// What lies between the break that was and the break that is, when it is higher.
fn grown_heap(table: &Table) -> Range {
	Range::new(table.program_break.next_multiple_of(PAGE), sys::program_break().next_multiple_of(PAGE))
}

/// Whether `RLIMIT_DATA` is about it.
fn is_data(v: &Vma) -> bool {
	v.prot & PROT_WRITE != 0 && !v.shared && v.kind != Kind::Stack
}

/// Counts a mapping that stays.
pub fn count(needs: &mut Needs, v: &Vma, is_stack: bool) {
	// The kernel counts no vsyscall page.
	if v.range.end <= ADDRESSES {
		needs.addresses += v.range.len();
	}
	if is_data(v) && !is_stack {
		needs.data += v.range.len();
	}
}

/// Where the mappings are known to be what they were.
pub fn nothing_changed(table: &mut Table) {
	table.change_count = 0;
	table.needs = table.noted;
	table.entries[..table.entry_count].iter_mut().for_each(|entry| entry.in_pieces = false);
}

struct Walk<'a> {
	table: &'a mut Table,
	nothing_came: bool,
	/// The first entry that does not lie wholly behind us.
	next: usize,
	error: Option<Error>,
	/// Bytes of the grown heap that are mapped.
	heap: usize,
	/// A range, protected so, that the restore unmaps, replaces, protects otherwise, or drops pages of while it can't
	/// be written.
	must_yield: (Range, u32),
	/// Changes there were, and bytes of mappings that stay no longer, when the mapping looked at began.
	begun: (usize, usize),
	gone: usize,
}

impl Walk<'_> {
	fn begin_mapping(&mut self, v: &Vma) {
		self.begun = (self.table.change_count, self.gone);
		count(&mut self.table.needs, v, false);
	}

	/// Of a mapping of which nothing stays all goes in one, and first: part of one on huge pages can't.
	fn end_mapping(&mut self, v: &Vma) -> sys::Result<()> {
		let (changes, gone) = self.begun;
		if self.table.change_count - changes > 1 && self.gone - gone == v.range.len() {
			self.table.push_change(Change::Unmap(v.range))?;
			self.table.changes.swap(changes, self.table.change_count - 1);
		}
		Ok(())
	}

	/// Compares part of the address space that is a piece of one mapping now, or of none.
	fn part(&mut self, range: Range, now: Option<&Vma>) -> sys::Result<()> {
		let mut at = range.start;
		while at < range.end {
			let entries = &self.table.entries[..self.table.entry_count];
			while entries.get(self.next).is_some_and(|e| e.range.end <= at) {
				self.next += 1;
			}
			let end = match entries.get(self.next).map(|e| e.range) {
				Some(was) if was.start <= at => {
					let piece = Range::new(at, was.end.min(range.end));
					self.was_there(piece, now)?;
					piece.end
				}
				was => {
					let end = was.map_or(range.end, |was| was.start.min(range.end));
					self.was_not_there(Range::new(at, end), now)?;
					end
				}
			};
			at = end;
		}
		Ok(())
	}

	fn was_not_there(&mut self, piece: Range, now: Option<&Vma>) -> sys::Result<()> {
		match now {
			// The main stack has grown: dead memory.
			Some(v) if matches!(v.kind, Kind::Kernel | Kind::Stack) => self.lock(piece, v, Lock::None),
			Some(v) if v.kind == Kind::AioRing => self.refuse(Error::Refused(Reason::AsyncIo)),
			Some(v) if v.name().starts_with(b"anon_inode:[io_uring]") => self.refuse(Error::Refused(Reason::IoUring)),
			Some(v) => {
				self.gone += piece.len();
				self.table.needs.addresses -= piece.len();
				if is_data(v) {
					self.table.needs.data -= piece.len();
				}
				self.must_yield(piece, v).and_then(|()| self.table.push_change(Change::Unmap(piece)))
			}
			None => Ok(()),
		}
	}

	fn was_there(&mut self, piece: Range, now: Option<&Vma>) -> sys::Result<()> {
		const BOTH: u32 = PROT_READ | PROT_WRITE;
		let entry = &mut self.table.entries[self.next];
		entry.in_pieces = piece != entry.range;
		let entry = *entry;
		let change = match now {
			Some(v) if entry.is(v, piece.start) && v.prot == entry.prot => {
				self.lock(piece, v, entry.lock)?;
				return if entry.contents && v.prot & BOTH != BOTH { self.must_yield(piece, v) } else { Ok(()) };
			}
			Some(v) if entry.is(v, piece.start) => {
				self.lock(piece, v, entry.lock)?;
				Change::Protect(piece, entry.prot)
			}
			Some(v) if v.kind == Kind::Kernel => return self.refuse(Error::Changed(piece)),
			_ if !entry.renewable => return self.refuse(Error::Changed(piece)),
			_ if entry.kind == Kind::Sealed && !self.memfd_is_there() => return self.refuse(Error::MemfdClosed),
			_ => Change::Map(piece, self.next as u32),
		};
		let needs = &mut self.table.needs;
		needs.asked = true;
		if entry.prot & PROT_WRITE != 0 && !now.is_some_and(is_data) {
			needs.data += piece.len();
		}
		match now {
			Some(v) => {
				if matches!(change, Change::Map(..)) {
					self.gone += piece.len();
				}
				self.must_yield(piece, v)?;
			}
			None => needs.addresses += piece.len(),
		}
		self.table.push_change(change)
	}

	/// A piece of a mapping was locked in some way when the snapshot was taken. A lock that is gone might not be had
	/// again.
	fn lock(&mut self, piece: Range, v: &Vma, was: Lock) -> sys::Result<()> {
		match Lock::of(&v.flags) {
			_ if !self.table.locks => Ok(()),
			is if is == was => Ok(()),
			_ if was == Lock::None => self.table.push_change(Change::Unlock(piece)),
			_ => self.refuse(Error::Changed(piece)),
		}
	}

	/// Finds out whether a piece of a mapping may be changed (`mseal(2)`). Pieces that touch are tried together.
	fn must_yield(&mut self, piece: Range, v: &Vma) -> sys::Result<()> {
		let (pending, prot) = &mut self.must_yield;
		if pending.end == piece.start && *prot == v.prot {
			pending.end = piece.end;
			return Ok(());
		}
		self.try_pending()?;
		self.must_yield = (piece, v.prot);
		Ok(())
	}

	/// Protects what is pending as it is: no change, and refused where changes are (`mprotect_fixup`, mm/mprotect.c).
	fn try_pending(&mut self) -> sys::Result<()> {
		let (range, prot) = core::mem::take(&mut self.must_yield);
		if self.nothing_came || range.is_empty() {
			return Ok(());
		}
		// SAFETY: the protection stays as it is.
		match unsafe { sys::mprotect(range.start, range.len(), prot) } {
			Err(Errno::EPERM) => self.refuse(Error::Refused(Reason::Immutable)),
			// Other answers, a security module's, say nothing about that.
			_ => Ok(()),
		}
	}

	fn memfd_is_there(&self) -> bool {
		self.table.fd.is_some_and(|fd| sys::identity(fd) == Ok(self.table.identity))
	}

	fn refuse(&mut self, error: Error) -> sys::Result<()> {
		self.error = Some(error);
		Err(Errno::ECANCELED)
	}
}
