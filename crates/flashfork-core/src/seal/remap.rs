//! Remap: puts the copy in place of the original, and back.
//!
//! Before Linux 6.12 an `mmap(MAP_FIXED)` may fail after it has unmapped what was there (`mmap_region`), and so may an
//! `mremap` to a fixed address. The bytes are safe in the copy, so the hole is filled again: first the same call, then
//! anonymous memory and a copy. If even that fails for a second, the process has lost memory and must not go on.

use crate::{
	range::Range,
	state::STATE,
	sys::{self, Errno, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, Result},
};

/// How often a step that must not fail is tried, a millisecond apart.
pub const ATTEMPTS: usize = 1000;

/// Maps the memfd at `offset` privately at `range`, where nothing is mapped.
///
/// # Safety
/// The memfd must hold the bytes that belong there.
pub unsafe fn map_sealed(range: Range, prot: u32, fd: i32, offset: u64) -> Result<()> {
	let flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
	// SAFETY: the caller vouches for it.
	unsafe { sys::mmap(range.start, range.len(), prot, flags, fd, offset) }.map(drop)
}

/// Maps the memfd at `offset` privately over `range`.
///
/// On an error the old memory is there, byte for byte.
///
/// # Safety
/// The memfd must hold exactly the bytes of `range` at `offset`, and nobody may write to `range` meanwhile.
pub unsafe fn seal_range(range: Range, prot: u32, fd: i32, offset: u64) -> Result<()> {
	// SAFETY: the caller vouches that the new mapping holds the same bytes.
	let map = || unsafe { map_sealed(range, prot, fd, offset) };
	let Err(error) = map() else { return Ok(()) };
	if sys::is_mapped(range.start, range.len()) {
		return Err(error);
	}
	for _ in 0..ATTEMPTS {
		if map().is_ok() {
			return Ok(());
		}
		// SAFETY: the hole is ours to fill; the bytes come from the copy.
		let filled = unsafe {
			fresh(range, prot | PROT_WRITE)
				.and_then(|()| sys::pread_all(fd, range.start, range.len(), offset))
				.and_then(|()| sys::mprotect(range.start, range.len(), prot))
		};
		if filled.is_ok() {
			return Err(error);
		}
		sys::pause_briefly();
	}
	STATE.die()
}

/// Moves the anonymous copy at `copy` over `range`.
///
/// On an error the old memory is there, byte for byte, and the copy is still mapped.
///
/// # Safety
/// `copy` must be a mapping of the same length that holds exactly the bytes of `range` with protection `prot`, and
/// nobody may write to `range` meanwhile.
pub unsafe fn unseal_range(range: Range, prot: u32, copy: usize) -> Result<()> {
	// SAFETY: the caller vouches that the moved mapping holds the same bytes.
	let shift = || unsafe { sys::mremap_fixed(copy, range.len(), range.start) };
	let Err(error) = shift() else { return Ok(()) };
	if sys::is_mapped(range.start, range.len()) {
		return Err(error);
	}
	for _ in 0..ATTEMPTS {
		if shift().is_ok() {
			return Ok(());
		}
		// SAFETY: the hole is ours to fill; the bytes come from the copy, made readable for that: it has the protection
		// of memory that the program may have closed after the seal.
		let filled = unsafe {
			fresh(range, prot | PROT_WRITE).and_then(|()| sys::mprotect(copy, range.len(), PROT_READ)).and_then(|()| {
				sys::copy_bytes(copy, range.start, range.len());
				sys::mprotect(range.start, range.len(), prot)
			})
		};
		if filled.is_ok() {
			// The memory is anonymous again, which is what was wanted; only the copy has to go.
			// SAFETY: the copy is ours and no longer needed.
			return unsafe { sys::munmap(copy, range.len()) };
		}
		sys::pause_briefly();
	}
	STATE.die()
}

/// Takes back protection lifted for a moment. Where memory is so short that this fails for a second, the range stays
/// open; its bytes are what they were.
///
/// # Safety
/// As `mprotect(2)`.
pub unsafe fn close(range: Range, prot: u32) {
	for _ in 0..ATTEMPTS {
		// SAFETY: the protection that the program gave it.
		if unsafe { sys::mprotect(range.start, range.len(), prot) }.is_ok() {
			return;
		}
		sys::pause_briefly();
	}
}

/// Maps fresh anonymous memory, all zeros, over `range`.
///
/// # Safety
/// What was there is lost.
pub unsafe fn fresh(range: Range, prot: u32) -> Result<()> {
	// SAFETY: the caller's.
	unsafe { fresh_with(range, prot, 0) }
}

/// The same with `more` flags of `mmap(2)`.
///
/// # Safety
/// What was there is lost.
pub unsafe fn fresh_with(range: Range, prot: u32, more: u32) -> Result<()> {
	let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | more;
	// SAFETY: the caller gave the range up.
	match unsafe { sys::mmap(range.start, range.len(), prot, flags, -1, 0) } {
		Ok(_) => Ok(()),
		Err(e) if sys::is_mapped(range.start, range.len()) => Err(e),
		Err(_) => {
			for _ in 0..ATTEMPTS {
				// SAFETY: as above.
				match unsafe { sys::mmap(range.start, range.len(), prot, flags, -1, 0) } {
					Ok(_) => return Ok(()),
					Err(_) => sys::pause_briefly(),
				}
			}
			Err(Errno::ENOMEM)
		}
	}
}
