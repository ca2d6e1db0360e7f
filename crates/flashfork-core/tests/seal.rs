//! Seal, fork, reseal, unseal on this machine's kernel.

#[macro_use]
mod common;
use common::{
	Child, holds_in_fork, in_child, intact, maps, maps_line,
	memory::{advise, advised},
	patterned,
};
use flashfork_core::{Pages, has_sealed, never_seal::Reason, seal, unseal};
use std::fs;

const LEN: usize = 96 << 20;

fn sealed_bytes(pages: Pages) -> u64 {
	seal(pages).outcome.expect("seal").sealed
}

#[test]
fn sealed_memory_keeps_its_bytes_and_clones_are_independent() {
	for pages in [Pages::Auto, Pages::Small] {
		in_child(|| {
			let words = patterned(LEN, 1);
			assert!(sealed_bytes(pages) >= (LEN - (4 << 20)) as u64);
			assert!(maps_line(&words[LEN / 16]).contains("flashfork:"), "{}", maps_line(&words[LEN / 16]));
			assert!(intact(words, 1));
			holds_in_fork("it has the bytes, and its writes", || {
				let same = intact(words, 1);
				words[LEN / 16] = 7;
				same && words[LEN / 16] == 7
			});
			assert!(intact(words, 1), "the clone's write came through");
		});
	}
}

/// Bytes that page tables map as huge pages of the memfd.
fn mapped_whole() -> u64 {
	let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
	let kilobytes = smaps.lines().filter_map(|line| line.strip_prefix("ShmemPmdMapped:")?.trim().strip_suffix(" kB"));
	kilobytes.map(|n| n.parse::<u64>().unwrap() << 10).sum()
}

/// Read in small pages, it would have page tables that a fork copies as soon as one page is written.
#[test]
fn memory_on_huge_pages_is_mapped_by_them() {
	in_child!();
	let words = patterned(LEN, 6);
	let outcome = seal(Pages::Auto).outcome.expect("seal");
	assert!(intact(words, 6));
	assert_eq!(mapped_whole(), outcome.huge, "of {}", outcome.sealed);
	// A slow host, such as an emulated one, gives few of them, and perhaps not here.
	words[LEN / 16] ^= 5;
	assert!(mapped_whole() + (2 << 20) >= outcome.huge);
}

/// A handler that jumps away, or another thread's fork, would leave addresses behind.
#[test]
fn scratch_memory_is_held_with_signals_blocked_and_clones_have_none_of_it() {
	let blocked = || {
		let status = fs::read_to_string("/proc/thread-self/status").unwrap();
		let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim().to_owned();
		u64::from_str_radix(&mask, 16).unwrap()
	};
	in_child!();
	patterned(LEN, 7);
	let before = blocked();
	let sealed = seal(Pages::Auto);
	assert!(sealed.outcome.is_ok());
	let scratch = sealed.records().as_ptr() as usize;
	let held = blocked();
	let page = (scratch & !4095) as *const u8;
	holds_in_fork("it has none of the scratch memory", || advised(page, 4096, libc::MADV_NORMAL) == libc::ENOMEM);
	drop(sealed);
	assert_eq!(blocked(), before);
	// SIGTERM
	assert_ne!(held & 1 << 14, 0, "{held:x}");
}

/// Both are kept out of clones, but a program asks about its own.
#[test]
fn scratch_memory_is_not_told_of_as_the_programs() {
	in_child!();
	let theirs = patterned(LEN, 7).as_ptr();
	advise(theirs, LEN, libc::MADV_DONTFORK);
	let sealed = seal(Pages::Auto);
	assert!(sealed.outcome.is_ok());
	let told = sealed.records().iter().filter(|record| record.reason == Some(Reason::DontFork));
	assert_eq!(told.map(|record| record.range.start).collect::<Vec<_>>(), [theirs as usize]);
}

#[test]
fn a_second_seal_folds_in_what_was_written_and_only_that() {
	in_child!();
	let words = patterned(LEN, 2);
	sealed_bytes(Pages::Auto);
	assert_eq!(sealed_bytes(Pages::Auto), 0, "nothing was written since");
	words[LEN / 16] ^= 5;
	let again = seal(Pages::Auto).outcome.unwrap();
	assert_eq!(again.sealed, 2 << 20, "one block was written");
	assert_eq!(again.generation, 2);
	assert!(again.write_sealed);
	words[LEN / 16] ^= 5;
	assert!(intact(words, 2));
}

#[test]
fn generations_are_capped_by_folding_them_into_one() {
	in_child!();
	let words = patterned(LEN, 3);
	for i in 0..40 {
		words[i << 18] ^= 9;
		sealed_bytes(Pages::Small);
		words[i << 18] ^= 9;
		assert!(maps::sealed_files() <= 8, "{}", maps::sealed_files());
	}
	assert!(intact(words, 3));
}

#[test]
fn unseal_makes_it_anonymous_again() {
	in_child!();
	let words = patterned(LEN, 4);
	let sealed = sealed_bytes(Pages::Auto);
	words[12345] ^= 3;
	assert_eq!(unseal(flashfork_core::Range::new(0, usize::MAX)), Ok(sealed));
	words[12345] ^= 3;
	assert!(intact(words, 4));
	assert!(maps::sealed().is_empty());
	assert!(has_sealed());
}

#[test]
fn excluded_ranges_stay_anonymous() {
	in_child!();
	let words = patterned(LEN, 5);
	let inside = &words[LEN / 16] as *const u64 as usize;
	flashfork_core::exclude(inside, 8).unwrap();
	sealed_bytes(Pages::Auto);
	assert!(!maps_line(inside as *const u64).contains("flashfork:"));
	assert!(maps_line((inside + 4096) as *const u64).contains("flashfork:"));
	let later = inside + (8 << 20);
	flashfork_core::exclude(later, 4096).unwrap();
	assert!(!maps_line(later as *const u64).contains("flashfork:"));
	assert!(intact(words, 5));
}
