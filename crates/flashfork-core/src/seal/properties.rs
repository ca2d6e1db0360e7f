//! What a program has asked for a mapping besides its protection: what takes the mapping's place must have it too.

use super::offset;
use crate::{
	never_seal::Reason,
	proc::{
		pagemap,
		vma::{self, Flags},
	},
	range::Range,
	sys::{self, Errno, PAGE, Result},
};
use linux_raw_sys::general as k;

/// Advice that is a promise: new memory without it would not be like the old.
const PROMISES: [(&[u8; 2], u32); 4] =
	[(b"dc", k::MADV_DONTFORK), (b"wf", k::MADV_WIPEONFORK), (b"dd", k::MADV_DONTDUMP), (b"mg", k::MADV_MERGEABLE)];

/// See the module.
#[derive(Clone, Copy, Default)]
pub struct Properties {
	/// [`offset::advices`].
	pub advice: u8,
	/// Of the VMA; none where nothing can have been asked for since it was sealed.
	pub flags: Flags,
	/// Memory protection key.
	pub pkey: u32,
}

impl Properties {
	/// Of the mapping that holds an address. This walks page tables: for memory known to have some.
	pub fn at(at: usize, text: &mut [u8]) -> Result<Properties> {
		let mut found = None;
		let listed = vma::for_each(c"/proc/thread-self/smaps", text, |v| {
			if v.range.end <= at {
				return Ok(());
			}
			if v.range.start <= at {
				found = Some(Properties { advice: offset::advice_of(v), flags: v.flags, pkey: v.pkey });
			}
			// The rest is of no interest.
			Err(Errno::ECANCELED)
		});
		match listed {
			Ok(()) | Err(Errno::ECANCELED) => found.ok_or(Errno::ENOMEM),
			Err(e) => Err(e),
		}
	}

	/// Whether the program has asked for the same, but for advice that is only that.
	pub fn is_like(&self, other: &Properties) -> bool {
		let same = |letters| self.flags.has(letters) == other.flags.has(letters);
		self.pkey == other.pkey && same(b"lo") && same(b"lf") && PROMISES.iter().all(|(letters, _)| same(letters))
	}

	/// What new memory can't be given.
	pub fn obstacle(&self) -> Option<Reason> {
		let is = |letters: &[&[u8; 2]]| letters.iter().any(|l| self.flags.has(l));
		if is(&[b"um", b"uw", b"ui"]) {
			return Some(Reason::UserfaultRange);
		}
		is(&[b"sl"]).then_some(Reason::Immutable)
	}

	/// Gives them to new memory, `prot` included. Where that fails it is of no use.
	pub fn apply(&self, at: usize, len: usize, prot: u32) -> Result<()> {
		for advice in offset::advices(self.advice) {
			// SAFETY: none of these discards. Advice is only that.
			let _ = unsafe { sys::madvise(at, len, advice) };
		}
		for (_, advice) in PROMISES.iter().filter(|(letters, _)| self.flags.has(letters)) {
			// SAFETY: none of these discards.
			unsafe { sys::madvise(at, len, *advice) }?;
		}
		if self.flags.has(b"lo") {
			sys::mlock(at, len, self.flags.has(b"lf"))?;
		}
		// SAFETY: new memory of the caller's.
		unsafe {
			if self.pkey == 0 { sys::mprotect(at, len, prot) } else { sys::pkey_mprotect(at, len, prot, self.pkey) }
		}
	}
}

/// Installs the guards of `range` in new memory at `to` (`MADV_GUARD_INSTALL`, Linux 6.13). No flag tells of them, the
/// page map does.
pub fn copy_guards(range: Range, to: usize) -> Result<()> {
	pagemap::for_each_guard(range, |guards| {
		// SAFETY: new memory of the caller's.
		unsafe { sys::madvise(to + (guards.start - range.start), guards.len(), k::MADV_GUARD_INSTALL) }
	})
}

/// Whether a page that is mapped, and may be read, is a guard: nothing else faults like that. The page map would tell
/// too, but not everybody can open it.
pub fn is_guard(page: usize) -> bool {
	// SAFETY: reads.
	let read = unsafe { sys::madvise(page, PAGE, k::MADV_POPULATE_READ) };
	read == Err(Errno::EFAULT)
}
