//! Discards sealed memory: the next read gives zeros, as that of anonymous memory would.
//!
//! The kernel's own `MADV_DONTNEED` would give the sealed bytes back. So new memory takes the place of the old, with
//! all that the program has asked for it; where that can't be had zeros are written, which keeps the mapping and all
//! that holds for it.

use crate::{
	arena::Arena,
	never_seal::Reason,
	proc::{
		lookup::{Wanted, for_each},
		vma::Kind,
	},
	range::Range,
	region::watch::WATCHED,
	scratch,
	seal::{
		limits, offset,
		properties::{self, Properties},
		remap,
		unseal::unseal_alone,
	},
	state::STATE,
	sys::{self, Errno, HUGE, PAGE, PROT_WRITE, Result},
	threads::errand,
};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use linux_raw_sys::general as k;

/// Sealed memory in a range: part of one VMA.
#[derive(Clone, Copy, Default)]
struct Part {
	range: Range,
	vma: Range,
	/// None where only the engine's memory tells of it.
	prot: Option<u32>,
	advice: u8,
}

/// The first parts of a range.
#[derive(Default)]
struct Found {
	parts: [Part; 24],
	count: usize,
	/// Whether there may be more.
	full: bool,
}

impl Found {
	fn push(&mut self, part: Part) -> Result<()> {
		let Some(place) = self.parts.get_mut(self.count) else {
			self.full = true;
			return Err(Errno::ECANCELED);
		};
		*place = part;
		self.count += 1;
		Ok(())
	}

	fn ask(&mut self, range: Range) -> Result<()> {
		(self.count, self.full) = (0, false);
		let asked = for_each(range, Wanted::Files, |v| {
			let part = v.range.intersect(range);
			if v.kind != Kind::Sealed {
				return Ok(());
			}
			self.push(Part { range: part, vma: v.range, prot: Some(v.prot), advice: offset::advice_of_sealed(v) })
		});
		if self.full { Ok(()) } else { asked }
	}

	/// Takes what the engine has sealed or seen moved for sealed, as far as it isn't anonymous.
	fn remember(&mut self, range: Range) {
		(self.count, self.full) = (0, false);
		let mut rest = range;
		while let Some(part) = STATE.places.first_in(rest) {
			rest.start = part.end;
			// Emptied first: MADV_FREE must not mark pages that a child has, too (`madvise` in advise.rs).
			// SAFETY: the contents are given up.
			let _ = unsafe { sys::madvise(part.start, part.len(), k::MADV_DONTNEED) };
			// SAFETY: as above.
			if unsafe { sys::madvise(part.start, part.len(), k::MADV_FREE) } == Err(Errno::EINVAL)
				&& self.push(Part { range: part, vma: part, prot: None, advice: 0 }).is_err()
			{
				return;
			}
		}
	}
}

/// The sealed parts of a range whose contents are given up.
fn look(range: Range) -> Found {
	let mut found = Found::default();
	if !STATE.holds_sealed() {
		return found;
	}
	if errand::ask(|| found.ask(range)).is_err() {
		found.remember(range);
	}
	found
}

/// Drops the contents of a range; the next read gives zeros, or a file's bytes where a file is mapped. Pages that are
/// only to be freed may be gone at once, so zeros are right there too.
///
/// It goes through the range in order, as the kernel does, because an error ends it there: what lies behind is not
/// discarded.
///
/// # Safety
/// The program asked for it.
pub unsafe fn discard(range: Range, advice: u32) -> Result<()> {
	let mut at = range.start;
	let mut gaps = Ok(());
	let mut plain = |part: Range| {
		// SAFETY: the program's own call, on the part of it that is not sealed.
		match unsafe { sys::madvise(part.start, part.len(), advice) } {
			// Some of it isn't mapped; the rest was done, and so will be what follows.
			Err(Errno::ENOMEM) => gaps = Err(Errno::ENOMEM),
			other => other?,
		}
		Ok(())
	};
	loop {
		let found = look(Range::new(at, range.end));
		for part in &found.parts[..found.count] {
			plain(Range::new(at, part.range.start))?;
			at = part.range.end;
			// SAFETY: the program gave these pages up.
			let left = unsafe { discard_part(part, advice) }?;
			STATE.discard(part.range.len());
			if left == Left::Anonymous {
				plain(part.range)?;
			}
		}
		if !found.full {
			break;
		}
	}
	plain(Range::new(at, range.end))?;
	gaps
}

#[derive(PartialEq, Eq)]
enum Left {
	Zeros,
	Anonymous,
}

unsafe fn discard_part(part: &Part, advice: u32) -> Result<Left> {
	let zeros = |()| Left::Zeros;
	let range = part.range;
	// Advice that changes nothing is refused for locked memory as a discard is (can_madv_lru_vma).
	// SAFETY: the contents stay.
	if unsafe { sys::madvise(range.start, PAGE, k::MADV_COLD) } == Err(Errno::EINVAL) {
		// SAFETY: the program gave the pages up.
		return if advice == k::MADV_DONTNEED_LOCKED { unsafe { zero(part) }.map(zeros) } else { Err(Errno::EINVAL) };
	}
	let Some(prot) = part.prot else {
		// SAFETY: as above.
		return unsafe { zero(part) }.map(zeros);
	};
	if STATE.marked.touch(range) {
		// SAFETY: as above.
		return unsafe { discard_marked(part, prot) }.map(zeros);
	}
	if range.len() < HUGE && unseal_alone(blocks_around(range, part.vma)).is_ok() {
		// A hole in the middle of sealed memory makes three VMAs of one; a block of anonymous memory takes any number.
		return Ok(Left::Anonymous);
	}
	let replaced = match is_crowded() {
		true => Err(Errno::ENOMEM),
		// SAFETY: as above.
		false => STATE.unsealed.learn(|| unsafe { remap::fresh(range, prot) }.map(|()| range)),
	};
	match replaced {
		// No more VMAs, or immutable (mseal(2)).
		// SAFETY: as above.
		Err(_) => unsafe { zero(part) }?,
		Ok(()) => {
			for advice in offset::advices(part.advice) {
				// SAFETY: none of these discards. Advice is only that.
				let _ = unsafe { sys::madvise(range.start, range.len(), advice) };
			}
		}
	}
	Ok(Left::Zeros)
}

/// Whether more than half of all VMAs that a process may have are in use: the rest is for the program. Looked at now
/// and then, as holes are made.
fn is_crowded() -> bool {
	const OFTEN: u32 = 1024;
	static HOLES: AtomicU32 = AtomicU32::new(0);
	static CROWDED: AtomicBool = AtomicBool::new(false);
	if HOLES.fetch_add(1, SeqCst) % OFTEN == OFTEN - 1 {
		let (mut count, mut room) = (0, usize::MAX);
		let _ = errand::ask(|| {
			count = 0;
			for_each(Range::ALL, Wanted::All, |_| {
				count += 1;
				Ok(())
			})?;
			room = limits::vma_room(&mut [0; 64], count)?;
			Ok(())
		});
		CROWDED.store(room < count, SeqCst);
	}
	CROWDED.load(SeqCst)
}

/// Discards memory for which the program may have asked something since it was sealed.
unsafe fn discard_marked(part: &Part, prot: u32) -> Result<()> {
	// Nobody waits for faults there.
	WATCHED.end_process();
	let arena = Arena::map();
	let replaced = arena.and_then(|arena| {
		let found = Properties::at(part.range.start, &mut arena.text);
		arena.unmap();
		let properties = found?;
		match properties.obstacle() {
			// SAFETY: the program gave the pages up.
			None => unsafe { replace(part.range, prot, &properties) }.map(|()| None),
			reason => Ok(reason),
		}
	});
	match replaced {
		Ok(None) => Ok(()),
		// Whoever has the userfaultfd would wait for faults that don't come: zeros are there, and an error says that
		// this isn't all. SAFETY: the program gave the pages up.
		Ok(Some(Reason::UserfaultRange)) => unsafe { zero(part) }.and(Err(Errno::EINVAL)),
		// SAFETY: as above.
		Ok(Some(_)) | Err(_) => unsafe { zero(part) },
	}
}

/// New memory like the old: made elsewhere, then moved into its place.
unsafe fn replace(range: Range, prot: u32, properties: &Properties) -> Result<()> {
	let new = scratch::temporary(range.len())?;
	// SAFETY: the new memory is ours; the program gave the old pages up.
	let moved = unsafe {
		properties::copy_guards(range, new)
			.and_then(|()| properties.apply(new, range.len(), prot))
			.and_then(|()| remap::unseal_range(range, prot, new))
	};
	if moved.is_err() {
		// SAFETY: it has not been moved and is still ours. A failure would leak the mapping, no more.
		let _ = unsafe { sys::munmap(new, range.len()) };
	}
	moved
}

/// Writes zeros, as far as the program itself might. What is not writable is made so for a moment; immutable memory of
/// that kind refuses a discard (`EPERM`), and so does this.
unsafe fn zero(part: &Part) -> Result<()> {
	let range = part.range;
	let writable = part.prot.is_none_or(|prot| prot & PROT_WRITE != 0);
	if let (false, Some(prot)) = (writable, part.prot) {
		// SAFETY: the program gave the pages up; the protection comes back at once.
		return unsafe {
			sys::mprotect(range.start, range.len(), prot | PROT_WRITE)?;
			let zeroed = write_zeros(range);
			remap::close(range, prot);
			zeroed
		};
	}
	// SAFETY: the program gave the pages up.
	unsafe { write_zeros(range) }
}

unsafe fn write_zeros(range: Range) -> Result<()> {
	let mut at = range.start;
	while at < range.end {
		// A sandbox might end a program that makes a call it has never heard of.
		let written = match STATE.is_sandboxed() {
			true => Err(Errno::EPERM),
			// SAFETY: the program gave the pages up.
			false => unsafe { sys::zero_memory(at, range.end - at) },
		};
		match written {
			Ok(n) if n >= PAGE => at += n & !(PAGE - 1),
			// A guard stays what it is.
			Ok(_) | Err(Errno::EFAULT) if !sys::is_mapped(at, PAGE) || properties::is_guard(at) => at += PAGE,
			Ok(_) => return Err(Errno::EFAULT),
			Err(Errno::EPERM | Errno::ENOSYS) => {
				// SAFETY: the program gave the pages up.
				at += unsafe { write_zeros_here(Range::new(at, range.end.min(at + HUGE))) }?;
			}
			Err(e) => return Err(e),
		}
	}
	Ok(())
}

/// The same where only this process itself can write: of the whole range, or of its first page where there is a guard
/// in it. Says how many bytes were done.
unsafe fn write_zeros_here(range: Range) -> Result<usize> {
	// SAFETY: where the kernel could make all pages writable a write is no signal.
	let zero = |len| unsafe {
		sys::madvise(range.start, len, k::MADV_POPULATE_WRITE)?;
		sys::zero_bytes(range.start, len);
		Ok(len)
	};
	match zero(range.len()) {
		Err(Errno::EFAULT) => zero(PAGE).or_else(|e| if e == Errno::EFAULT { Ok(PAGE) } else { Err(e) }),
		done => done,
	}
}

/// The 2 MB blocks that part of a VMA touches, as far as they lie in it.
fn blocks_around(part: Range, vma: Range) -> Range {
	Range::new(part.start & !(HUGE - 1), part.end.next_multiple_of(HUGE)).intersect(vma)
}
