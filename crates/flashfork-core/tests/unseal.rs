//! Unseal, fold and renewal of memory that isn't all there, one test for each way in which they once went wrong.

#[macro_use]
mod common;
use common::{Child, intact, maps, maps_line, pattern, patterned};
use flashfork_core::{Pages, Range, seal, unseal};

const LEN: usize = 8 << 20;
const GROWN: usize = 500 << 20;

/// A field of `/proc/self/status`, in bytes.
fn status(field: &str) -> usize {
	let text = std::fs::read_to_string("/proc/self/status").unwrap();
	let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
	line.split_whitespace().next().unwrap().parse::<usize>().unwrap() << 10
}

/// Sealed memory that has grown into its memfd, as with an `mremap` that the engine did not see; two pages of the
/// growth are written.
fn sealed_and_grown(seed: u64) -> &'static mut [u64] {
	let words = patterned(LEN, seed);
	seal(Pages::Small).outcome.expect("seal");
	// SAFETY: memory of this test.
	let words = unsafe {
		// Not by libc, whose calls the engine follows.
		let may_move = libc::MREMAP_MAYMOVE as usize;
		let at = syscalls::syscall5(syscalls::Sysno::mremap, words.as_ptr() as usize, LEN, GROWN, may_move, 0).unwrap();
		std::slice::from_raw_parts_mut(at as *mut u64, GROWN / 8)
	};
	assert!(maps_line(&words[GROWN / 16]).contains("flashfork:"));
	(words[GROWN / 16], words[GROWN / 8 - 1]) = (41, 42);
	words
}

fn right(words: &[u64], seed: u64) -> bool {
	intact(&words[..LEN / 8], seed) && (words[GROWN / 16], words[GROWN / 8 - 1]) == (41, 42)
}

#[test]
fn what_sealed_memory_has_grown_by_takes_no_memory_when_it_becomes_anonymous() {
	in_child!();
	let words = sealed_and_grown(1);
	let before = status("RssAnon") + status("RssShmem");
	unseal(Range::ALL).unwrap();
	let after = status("RssAnon") + status("RssShmem");
	assert!(maps::sealed().is_empty());
	assert!(after < before + (64 << 20), "{before} {after}");
	assert!(right(words, 1));
	assert!(words[LEN / 8..GROWN / 16].iter().step_by(512).all(|w| *w == 0));
}

#[test]
fn what_sealed_memory_has_grown_by_takes_no_memory_when_all_is_sealed_anew() {
	in_child!();
	let words = sealed_and_grown(2);
	// More generations than there may be.
	for turn in 0..10 {
		words[512 * turn] = pattern(512 * turn, 2);
		let sealed = seal(Pages::Small).outcome.expect("seal").sealed;
		assert!(sealed < 64 << 20, "{sealed}");
	}
	assert!(right(words, 2));
	unseal(Range::ALL).unwrap();
	assert!(right(words, 2));
}

#[test]
fn zeros_take_no_memory_when_they_become_anonymous() {
	in_child!();
	let words = patterned(LEN, 3);
	words[LEN / 16..].fill(0);
	seal(Pages::Small).outcome.expect("seal");
	assert!(maps_line(&words[LEN / 8 - 1]).contains("flashfork:"));
	unseal(Range::ALL).unwrap();
	let mut resident = vec![0u8; LEN / 2 / 4096];
	// SAFETY: memory of this test and a vector of the right length.
	assert_eq!(unsafe { libc::mincore((&raw mut words[LEN / 16]).cast(), LEN / 2, resident.as_mut_ptr()) }, 0);
	assert!(resident.iter().all(|page| *page == 0));
	assert!(intact(&words[..LEN / 16], 3) && words[LEN / 16..].iter().all(|w| *w == 0));
}
