//! Restartable sequences (`rseq(2)`): the kernel writes a thread's area whenever it lets it run again, and ends the
//! process where nothing is mapped there. A seal takes memory away for some tens of microseconds while the calling
//! thread runs, so that thread's area must not be in it; the others are stopped.
//!
//! glibc's area lies near the thread pointer, which is left alone. What a program registers itself is taken down, and
//! left alone. Whether the area of the calling thread is one of these the kernel tells: it answers a second
//! registration in different ways.

use crate::{
	answers::anonymous::give_property,
	range::Range,
	sys::{self, Errno, PAGE, Result},
};
use core::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::SeqCst};
use syscalls::Sysno;

/// Bytes of an area, for all who don't ask for more (`ORIG_RSEQ_SIZE` in the kernel), and its alignment.
const SIZE: usize = 32;

/// `RSEQ_FLAG_UNREGISTER`.
const UNREGISTER: usize = 1;

/// Most sizes in use: a kernel with more to say makes glibc register more.
const SIZES: [usize; 3] = [SIZE, 2 * SIZE, 4 * SIZE];

/// Below and above the thread pointer: control block and thread-local variables.
const BELOW: usize = 16 * PAGE;
const ABOVE: usize = 2 * PAGE;

/// Most areas that are taken down. Of one more nothing is known, and its thread does not seal.
const MOST: usize = 16;

/// What the program has registered, whole pages.
static AREAS: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];

/// Where glibc's is, from the thread pointer: so in many builds since 2.35, and else it is found.
static OFFSET: AtomicIsize = AtomicIsize::new(0x9a0);

/// `rseq(2)`, for the program: the memory is made anonymous and stays so.
///
/// # Safety
/// As the call.
pub unsafe fn rseq(args: [usize; 6]) -> Result<usize> {
	// SAFETY: the program's own call.
	let call = || unsafe { sys::call(Sysno::rseq, args) };
	let [area, len, flags, ..] = args;
	// Each thread that glibc starts comes here: its area is found by the thread pointer when it seals.
	let usual =
		sys::thread_pointer().is_ok_and(|at| !near(at).intersect(Range::new(area, area.saturating_add(1))).is_empty());
	if flags & UNREGISTER != 0 || usual {
		return call();
	}
	// Before the call: a seal that another thread begins after it must know.
	let pages = Range::pages_of(area, len.min(PAGE));
	for page in (pages.start..pages.end).step_by(PAGE) {
		let takes = |slot: &AtomicUsize| {
			slot.compare_exchange(0, page, SeqCst, SeqCst).map_or_else(|held| held == page, |_| true)
		};
		// Without room for it, `is_known` knows nothing of it.
		let _taken = AREAS.iter().any(takes);
	}
	give_property(area, len.min(PAGE), call)
}

/// The pages that must stay as they are for what the program has registered.
pub fn areas() -> impl Iterator<Item = Range> {
	AREAS.iter().map(|page| page.load(SeqCst)).filter(|page| *page != 0).map(|page| Range::new(page, page + PAGE))
}

/// The surroundings of the thread pointer, which must stay as they are.
pub fn near(thread_pointer: usize) -> Range {
	let start = thread_pointer.saturating_sub(BELOW);
	Range::pages_of(start, thread_pointer.saturating_add(ABOVE) - start)
}

/// Whether the calling thread's area, if it has one, is near its thread pointer or among [`areas`].
pub fn is_known(thread_pointer: usize) -> bool {
	// Not an address of the program's: where nothing is registered the kernel says so, and else that it is another.
	const NOWHERE: usize = 1 << 63;
	if register(NOWHERE, SIZE) != Err(Errno::EINVAL) {
		return true;
	}
	let usual = thread_pointer.wrapping_add_signed(OFFSET.load(SeqCst));
	if is_at(usual) {
		return true;
	}
	// glibc's control block lies above the thread pointer, a static program's thread-local variables below.
	let (near, middle) = (near(thread_pointer), thread_pointer & !(SIZE - 1));
	let (above, below) = (Range::new(middle, near.end), Range::new(near.start, middle));
	if let Some(at) = found_in(above).or_else(|| found_in(below)) {
		OFFSET.store(at.wrapping_sub(thread_pointer) as isize, SeqCst);
		return true;
	}
	areas().any(|page| found_in(page).is_some())
}

fn found_in(range: Range) -> Option<usize> {
	// The usual size everywhere before a larger one anywhere: each question is a system call.
	SIZES.iter().find_map(|len| (range.start..range.end).step_by(SIZE).find(|at| holds(*at, *len)))
}

/// Whether this is what is registered. Something must be: else it is now.
fn is_at(area: usize) -> bool {
	SIZES.iter().any(|len| holds(area, *len))
}

fn holds(area: usize, len: usize) -> bool {
	matches!(register(area, len), Err(Errno::EPERM | Errno::EBUSY))
}

fn register(area: usize, len: usize) -> Result<usize> {
	// SAFETY: nothing is registered at an address that isn't the program's, and nothing where something is.
	unsafe { sys::call(Sysno::rseq, [area, len, 0, 0, 0, 0]) }
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_c_librarys_own_area_is_known() {
		let thread_pointer = sys::thread_pointer().unwrap();
		assert!(is_known(thread_pointer));
		// As of a C library that has it elsewhere.
		OFFSET.store(8, SeqCst);
		assert!(is_known(thread_pointer));
		let registered = register(1 << 63, SIZE) == Err(Errno::EINVAL);
		assert_eq!(registered, OFFSET.load(SeqCst) != 8, "where there is one it has been found");
	}
}
