//! What the program's own memory calls mean on sealed memory: the shim passes them here.
//!
//! On anonymous memory `MADV_DONTNEED` reads back zeros; on a private file mapping it would give the sealed bytes back.
//! Whether a range holds sealed memory is asked of the kernel each time, because memory moves without our knowing
//! (glibc's realloc calls its own mremap).

use super::{
	anonymous::{Need, for_good, give_files_back, make_anonymous},
	discard::discard,
};
use crate::{
	range::Range,
	region::watch::WATCHED,
	seal::{library::LIBRARIES, vetted::VETTED},
	sealed::{discards_sealed, holds_sealed},
	stack::roomy,
	state::STATE,
	sys::{self, ADDRESSES, Errno, PAGE, Result},
};
use linux_raw_sys::general as k;
use syscalls::Sysno;

/// `madvise(2)` with the meaning it has on anonymous memory.
///
/// # Safety
/// As `madvise(2)`: some advice discards contents.
pub unsafe fn madvise(addr: usize, len: usize, advice: u32) -> Result<()> {
	// SAFETY: the program's own call.
	let real = || unsafe { sys::madvise(addr, len, advice) };
	if advice == k::MADV_FREE {
		STATE.note_free();
	}
	// It may take long (MADV_POPULATE_WRITE), and means the same on sealed memory.
	if !DIFFERENT.contains(&advice) && !PROPERTIES.contains(&advice) {
		return real();
	}
	let _quiet = STATE.quiet();
	// Between what is asked here and what is done upon it no other thread may seal.
	let inside = STATE.inside();
	before_guards(advice);
	// What the kernel refuses, or need not do, before it looks at memory (madvise_should_skip).
	let wraps = len.checked_next_multiple_of(PAGE).and_then(|len| addr.checked_add(len)).is_none();
	let plain = !STATE.holds_sealed() && !LIBRARIES.any_lost();
	if plain || !addr.is_multiple_of(PAGE) || len == 0 || wraps {
		return told(advice, real());
	}
	let range = Range::pages_of(addr, len);
	let inside = match advice {
		k::MADV_DONTNEED | k::MADV_DONTNEED_LOCKED | k::MADV_FREE | k::MADV_REMOVE => {
			let inside = give_files_back(range, inside, advice != k::MADV_REMOVE)?;
			// Just now.
			if LIBRARIES.is_lost(range) {
				return Err(Errno::EAGAIN);
			}
			inside
		}
		_ => inside,
	};
	match advice {
		// Of sealed memory, refused.
		k::MADV_FREE => match real() {
			Ok(()) => Ok(()),
			// SAFETY: the program asked for it.
			Err(_) => roomy(|| unsafe { discard(range, advice) }),
		},
		// MADV_FREE would tell in one call whether any is sealed. But it marks pages that a child has, too, and the
		// kernel takes those from the child where somebody has pinned them to read, which leaves them clean (O_DIRECT,
		// process_vm_readv(2); madvise_free_pte_range, wp_page_copy).
		k::MADV_DONTNEED | k::MADV_DONTNEED_LOCKED => {
			match discards_sealed(range) {
				false => real(),
				// SAFETY: as above.
				true => roomy(|| unsafe { discard(range, advice) }),
			}
		}
		// A file private to the process can't be punched; anonymous memory answers EINVAL (madvise_remove).
		k::MADV_REMOVE if roomy(|| holds_sealed(range)) => Err(Errno::EINVAL),
		// Wiping works on anonymous memory only, and protects secrets: it must not seem to have been done.
		k::MADV_WIPEONFORK => {
			let _inside = make_anonymous(range, inside, Need::Must)?;
			told(advice, real())
		}
		// Of sealed memory only what was not written to can be collapsed where it is.
		k::MADV_COLLAPSE => {
			// Nor what is watched.
			WATCHED.end_process();
			let collapsed = real();
			if collapsed != Err(Errno::EINVAL) || !holds_sealed(range) {
				return collapsed;
			}
			let _inside = make_anonymous(range, inside, Need::Must).map_err(|_| Errno::EINVAL)?;
			real()
		}
		// These work on sealed memory too, only less well: where it can't be made anonymous the kernel decides.
		k::MADV_DONTFORK | k::MADV_DONTDUMP | k::MADV_MERGEABLE | k::MADV_GUARD_INSTALL => {
			let _inside = make_anonymous(range, inside, Need::Better).unwrap_or_else(|_| {
				STATE.marked.add(range);
				STATE.inside()
			});
			told(advice, real())
		}
		// A discard and an unseal have to look for what was asked for since the seal.
		k::MADV_HUGEPAGE | k::MADV_NOHUGEPAGE => {
			if holds_sealed(range) {
				STATE.marked.add(range);
			}
			let done = real();
			VETTED.forget(range);
			done
		}
		_ => told(advice, real()),
	}
}

/// Advice that means something else on sealed memory, or must be minded later, beside [`PROPERTIES`].
const DIFFERENT: [u32; 7] = [
	k::MADV_DONTNEED,
	k::MADV_DONTNEED_LOCKED,
	k::MADV_FREE,
	k::MADV_REMOVE,
	k::MADV_HUGEPAGE,
	k::MADV_NOHUGEPAGE,
	k::MADV_COLLAPSE,
];

/// `process_madvise(2)`: advice to this process itself means what [`madvise`] makes of it.
///
/// # Safety
/// As `madvise(2)`.
pub unsafe fn process_madvise(args: [usize; 6]) -> Result<usize> {
	/// What may be advised to other processes (`process_madvise_remote_valid`), but for `MADV_COLLAPSE`. It means the
	/// same on sealed memory.
	const TO_OTHERS: [u32; 3] = [k::MADV_COLD, k::MADV_PAGEOUT, k::MADV_WILLNEED];
	let [pidfd, vec, count, advice, flags, _] = args;
	// SAFETY: the program's own call, or one without any memory to advise on.
	let call = |count, advice| unsafe { sys::call(Sysno::process_madvise, [pidfd, vec, count, advice, flags, 0]) };
	// Whether the kernel takes this advice for that process; other processes can't be given any but the above, and
	// before Linux 6.13 nor can this one.
	let own = |advice| call(0, advice).is_ok();
	let for_others = match advice as u32 {
		k::MADV_COLLAPSE => !own(k::MADV_DONTNEED as usize),
		known => TO_OTHERS.contains(&known),
	};
	let _quiet = STATE.quiet();
	if !STATE.holds_sealed() || for_others || !own(advice) {
		let _inside = STATE.inside();
		before_guards(advice as u32);
		return told(advice as u32, call(count, advice));
	}
	// SAFETY: the program's own call.
	roomy(|| unsafe { madvise_each(vec, count, advice as u32) })
}

/// # Safety
/// As `madvise(2)`.
unsafe fn madvise_each(vec: usize, count: usize, advice: u32) -> Result<usize> {
	/// The most that the kernel takes (`UIO_MAXIOV`).
	const MOST: usize = 1024;
	/// Bytes of which one call can speak.
	const MAX_RW_COUNT: usize = 0x7fff_f000;
	// struct iovec, address and length. A copy: the vector may lie in what is discarded.
	let mut copy = [[0_u8; 16]; MOST];
	let copy = copy.get_mut(..count).ok_or(Errno::EINVAL)?;
	sys::read_own(vec, copy.as_flattened_mut())?;
	let word = |bytes: &[u8]| bytes.try_into().map_or(0, usize::from_ne_bytes);
	let parts = copy.iter().map(|part| [word(&part[..8]), word(&part[8..])]);
	// What the kernel refuses before it advises on anything (import_iovec), and where it stops.
	if parts.clone().any(|[_, len]| isize::try_from(len).is_err()) {
		return Err(Errno::EINVAL);
	}
	if parts.clone().any(|[base, len]| base.checked_add(len).is_none_or(|end| end > ADDRESSES)) {
		return Err(Errno::EFAULT);
	}
	let (mut done, mut most) = (0, MAX_RW_COUNT);
	for [base, len] in parts {
		let len = len.min(most);
		most -= len;
		// SAFETY: the program's own call.
		match unsafe { madvise(base, len, advice) } {
			Ok(()) => done += len,
			// An error that comes later is not told (vector_madvise).
			Err(e) => return if done == 0 { Err(e) } else { Ok(done) },
		}
	}
	Ok(done)
}

/// Where writes to a file's mapping are noted the kernel tries for ever to make a guard: a page that it drops there
/// stays marked, and it looks again until nothing is there.
fn before_guards(advice: u32) {
	if advice == k::MADV_GUARD_INSTALL {
		WATCHED.end_all();
	}
}

/// A seal may be planned at this moment, before anything is sealed: it hears of advice when that is given, and before
/// it can go on.
fn told<T>(advice: u32, result: T) -> T {
	if PROPERTIES.contains(&advice) {
		STATE.properties_change();
	}
	result
}

/// Advice that gives memory a property which [`crate::never_seal`] minds, or which goes back at a restore
/// ([`crate::snapshot`]), or takes it away.
const PROPERTIES: [u32; 12] = [
	k::MADV_NORMAL,
	k::MADV_RANDOM,
	k::MADV_SEQUENTIAL,
	k::MADV_DONTFORK,
	k::MADV_DOFORK,
	k::MADV_WIPEONFORK,
	k::MADV_KEEPONFORK,
	k::MADV_DONTDUMP,
	k::MADV_DODUMP,
	k::MADV_MERGEABLE,
	k::MADV_UNMERGEABLE,
	k::MADV_GUARD_INSTALL,
];

/// `PR_SET_VMA` of `prctl(2)` gives memory a name, in whose place maps would no longer show that it is sealed. Where it
/// can't be made anonymous: `EINVAL`, as where the kernel has no names.
///
/// `real` makes the call.
///
/// # Safety
/// As the call.
pub unsafe fn name(args: [usize; 6], real: impl FnOnce() -> Result<usize>) -> Result<usize> {
	let [option, what, addr, len, name, _] = args;
	// SAFETY: a call about no memory.
	let is_known = || unsafe { sys::call(Sysno::prctl, [option, what, 0, 0, name, 0]) }.is_ok();
	let _quiet = STATE.quiet();
	let mut inside = STATE.inside();
	let range = Range::pages_of(addr, len);
	// What a kernel without names says to any.
	if holds_sealed(range) && is_known() {
		inside = make_anonymous(range, inside, Need::Must)?;
	}
	let result = real();
	drop(inside);
	result
}

/// Before something that must find all memory anonymous, now and later: a userfaultfd. `EPERM`, as where it isn't
/// allowed, when sealed memory can't be made anonymous: faults on it would mean something else.
pub fn before_userfaultfd() -> Result<()> {
	WATCHED.stop();
	STATE.properties_change();
	for_good().map_err(|_| Errno::EPERM)
}

/// Before an object by which the kernel or a device writes or discards memory later (`io_setup(2)`,
/// `io_uring_setup(2)`, whatever a driver's `ioctl(2)` does): it must find all memory anonymous; while it is there the
/// process is not sealed. `ENOMEM` when sealed memory can't be made anonymous.
pub fn before_later_writes() -> Result<()> {
	STATE.properties_change();
	for_good()
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::answers::anonymous::give_property;

	#[test]
	fn a_seal_that_is_planned_hears_of_properties_before_anything_is_sealed() {
		let at = crate::scratch::temporary(PAGE).unwrap();
		for advice in PROPERTIES.into_iter().filter(|advice| *advice != k::MADV_GUARD_INSTALL) {
			let before = STATE.properties();
			// SAFETY: the mapping just made; no contents are lost.
			unsafe { madvise(at, PAGE, advice) }.unwrap();
			assert_ne!(STATE.properties(), before, "{advice}");
			let before = STATE.properties();
			let part = [at, PAGE];
			// SAFETY: as above. Where the kernel doesn't take it, that is told for nothing.
			let _ = unsafe { process_madvise([usize::MAX, part.as_ptr() as usize, 1, advice as usize, 0, 0]) };
			assert_ne!(STATE.properties(), before, "{advice} by process_madvise");
		}
		let before = STATE.properties();
		assert_eq!(give_property(at, PAGE, || STATE.properties()), before, "it is told when it is done");
		assert_ne!(STATE.properties(), before);
		// SAFETY: nobody has it.
		unsafe { sys::munmap(at, PAGE) }.unwrap();
	}
}
