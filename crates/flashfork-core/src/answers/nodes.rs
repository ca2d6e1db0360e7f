//! `move_pages(2)` on sealed memory: it speaks of pages that are in the page table, where those of a sealed piece come
//! when they are touched first. Anonymous ones are there from their first write on, in clones too.

use crate::{
	range::Range,
	state::STATE,
	sys::{self, PAGE, Result},
};
use linux_raw_sys::general as k;
use syscalls::Sysno;

/// `move_pages(2)`: of this process's own sealed pages those that have contents are touched first.
///
/// # Safety
/// As `move_pages(2)`, with the kernel's arguments.
pub unsafe fn move_pages(args: &[usize; 6]) -> Result<usize> {
	let [pid, count, pages, ..] = *args;
	// Between what is asked here and what is done upon it no other thread may seal.
	let _quiet = STATE.quiet();
	let _inside = STATE.inside();
	// A sandbox might end a program for calls that it has never heard of.
	if STATE.holds_sealed() && !STATE.is_sandboxed() && (pid == 0 || pid == sys::getpid() as usize) {
		touch(pages, count);
	}
	// SAFETY: the program's own call.
	unsafe { sys::call(Sysno::move_pages, *args) }
}

/// The first page that can't be read of, and all behind it, are the kernel's to refuse.
fn touch(pages: usize, count: usize) {
	for index in 0..count {
		let mut word = [0; size_of::<usize>()];
		let Some(place) = index.checked_mul(word.len()).and_then(|at| pages.checked_add(at)) else { return };
		if sys::read_own(place, &mut word).is_err() {
			return;
		}
		let page = usize::from_ne_bytes(word) & !(PAGE - 1);
		// Of a memfd the kernel tells what is in its page cache, of anonymous memory what is in the page table.
		if STATE.places.touch(Range::new(page, page.saturating_add(PAGE))) && sys::has_page(page) {
			// SAFETY: changes no contents. Where it fails the page stays as it is.
			let _ = unsafe { sys::madvise(page, PAGE, k::MADV_POPULATE_READ) };
		}
	}
}
