//! Memory calls on sealed memory, one test for each way in which they once went wrong.

#[macro_use]
mod common;
use common::{Child, intact, maps, maps_line, memory, pattern, patterned};
use flashfork_core::{
	Errno, Pages,
	answers::{advise, mremap::mremap},
	seal,
};

const LEN: usize = 8 << 20;

fn sealed(seed: u64) -> &'static mut [u64] {
	let words = patterned(LEN, seed);
	seal(Pages::Small).outcome.expect("seal");
	assert!(maps_line(&words[LEN / 16]).contains("flashfork:"));
	words
}

#[test]
fn a_length_that_wraps_discards_nothing() {
	in_child!();
	let words = sealed(1);
	let at = words.as_ptr() as usize;
	for len in [usize::MAX, LEN.wrapping_neg(), usize::MAX - at + 1] {
		for advice in [libc::MADV_DONTNEED, libc::MADV_FREE, 24 /* MADV_DONTNEED_LOCKED */] {
			// SAFETY: the kernel refuses the call.
			let result = unsafe { advise::madvise(at, len, advice as u32) };
			assert_eq!(result, Err(Errno::EINVAL), "{len:#x} {advice}");
		}
	}
	assert!(intact(words, 1));
}

#[test]
fn a_discard_that_fails_leaves_what_lies_behind() {
	in_child!();
	let words = sealed(2);
	let at = words.as_ptr() as usize;
	let lock = at + LEN / 2;
	let discard = |advice: i32| {
		// SAFETY: memory of this test.
		let result = unsafe { advise::madvise(at, LEN, advice as u32) };
		assert_eq!(result, Err(Errno::EINVAL), "a locked page stops it");
		let behind = (lock - at) / 8 + 512;
		assert!((behind..LEN / 8).all(|i| words[i] == pattern(i, 2)), "{advice}");
	};
	// SAFETY: locking changes no contents.
	assert_eq!(unsafe { libc::mlock(lock as *const _, 4096) }, 0);
	assert!(maps_line((lock + 4096) as *const u64).contains("flashfork:"), "sealed behind the locked page");
	discard(libc::MADV_FREE);
	discard(libc::MADV_DONTNEED);
	assert!(words[..LEN / 16].iter().all(|w| *w == 0), "what lies before is discarded");
}

#[test]
fn a_discard_over_a_gap_goes_on_behind_it() {
	in_child!();
	let words = sealed(3);
	let at = words.as_ptr() as usize;
	let gap = at + LEN / 2;
	memory::unmap(gap as *const u8, 4096);
	// SAFETY: memory of this test.
	let result = unsafe { advise::madvise(at, LEN, libc::MADV_DONTNEED as u32) };
	assert_eq!(result, Err(Errno::ENOMEM));
	let behind = (gap + 4096 - at) / 8;
	assert!(words[..LEN / 16].iter().chain(&words[behind..]).all(|w| *w == 0));
}

#[test]
fn what_was_asked_for_a_mapping_in_pieces_holds_for_what_it_grows_by() {
	in_child!();
	let words = sealed(4);
	let at = words.as_ptr() as usize;
	let grow = 3 << 20;
	// SAFETY: memory of this test; its halves turn anonymous in pieces of their own.
	let moved = unsafe {
		advise::madvise(at + LEN / 2, LEN / 2, libc::MADV_DONTFORK as u32).unwrap();
		advise::madvise(at + LEN / 2, LEN / 2, libc::MADV_DONTDUMP as u32).unwrap();
		let grown = || mremap(at, LEN, LEN + grow, libc::MREMAP_MAYMOVE as usize, 0);
		assert_eq!(grown(), Err(Errno::EFAULT), "one half of plain memory is another mapping, too");
		advise::madvise(at, LEN, libc::MADV_DONTFORK as u32).unwrap();
		advise::madvise(at, LEN, libc::MADV_DONTDUMP as u32).unwrap();
		grown().unwrap()
	};
	let tail = maps::flags_of((moved + LEN + grow / 2) as *const u8);
	assert!(tail.contains(" dc ") && tail.contains(" dd "), "{tail}");
	// SAFETY: as long as the mapping now is.
	let words = unsafe { std::slice::from_raw_parts(moved as *const u64, (LEN + grow) / 8) };
	assert!(intact(&words[..LEN / 8], 4));
	assert!(words[LEN / 8..].iter().all(|w| *w == 0));
}

#[test]
fn discards_page_by_page_leave_room_for_other_mappings() {
	in_child!();
	let words = sealed(5);
	let at = words.as_ptr() as usize;
	let before = maps::mappings().len();
	let pages = 514..1000; // within one block of 2 MB wherever the mapping lies, or two
	for page in pages.clone().step_by(2) {
		// SAFETY: memory of this test.
		unsafe { advise::madvise(at + page * 4096, 4096, libc::MADV_DONTNEED as u32) }.unwrap();
		assert!(words[page * 512..][..512].iter().all(|w| *w == 0));
	}
	let after = maps::mappings().len();
	assert!(after <= before + 4, "{} more", after - before);
	assert!(pages.skip(1).step_by(2).all(|page| words[page * 512] == pattern(page * 512, 5)), "what lies between");
}
