//! What the tests of the core share.

use flashfork_core::{
	fork::{Engine, configure},
	snapshot::{Way, go_back_by},
};
use std::cell::Cell;

#[macro_use]
mod child;
#[allow(unused_imports)] // each test program uses a part
pub use child::{Child, holds_in_fork, in_child, wait};
pub mod maps;
pub mod memory;
#[allow(unused_imports)] // as above
pub use memory::{PAGE, anonymous, counter};

/// Children that do a test, one for each way to go back to a snapshot.
#[allow(dead_code)] // as above
pub fn by_each_way() -> Option<Child> {
	let mut ways = [Way::Drop, Way::Copy].into_iter();
	ways.find_map(|way| Child::fork().inspect(|_| go_back_by(Some(way))))
}

#[allow(dead_code)] // as above
pub fn in_children(body: impl FnOnce()) {
	in_child!(by_each_way());
	body();
}

/// Goes back to the snapshot, which returns this there: that is no return here.
#[allow(dead_code)] // as above
pub fn back(value: u64) -> ! {
	panic!("{:?}", flashfork_core::snapshot::restore(value))
}

/// Anonymous memory filled with a pattern that depends on the address and the seed.
pub fn patterned(len: usize, seed: u64) -> &'static mut [u64] {
	// SAFETY: a fresh mapping, never unmapped by the tests that use it.
	let words = unsafe { std::slice::from_raw_parts_mut(anonymous(len).cast::<u64>(), len / 8) };
	fill(words, seed);
	words
}

/// Writes all of it anew.
pub fn fill(words: &mut [u64], seed: u64) {
	words.iter_mut().enumerate().for_each(|(i, word)| *word = pattern(i, seed));
}

pub fn pattern(i: usize, seed: u64) -> u64 {
	(i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed | 1
}

#[allow(dead_code)] // as above
pub fn intact(words: &[u64], seed: u64) -> bool {
	words.iter().enumerate().all(|(i, w)| *w == pattern(i, seed))
}

/// The maps line of the mapping that holds an address; empty where nothing is mapped.
#[allow(dead_code)] // as above
pub fn maps_line<T>(at: *const T) -> String {
	maps::mapping(at).map(|mapping| mapping.line).unwrap_or_default()
}

/// Memory with its pattern, 8 MiB, which is sealed.
#[allow(dead_code)] // as above
pub fn sealed_pattern() -> &'static mut [u64] {
	let words = patterned(8 << 20, 1);
	flashfork_core::seal(flashfork_core::Pages::Auto).outcome.unwrap();
	assert!(maps_line(words.as_ptr()).contains("flashfork"));
	words
}

#[allow(dead_code)] // as above
pub fn is_linux(major: u32, minor: u32) -> bool {
	let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
	let mut numbers = release.split(['.', '-']).map(|n| n.parse().unwrap_or(0));
	(numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// Begins the policy `auto`; whether it seals: where forks are on demand nothing is.
#[allow(dead_code)] // as above
pub fn auto_seals() -> bool {
	configure(Engine::Auto, false).unwrap();
	flashfork_core::odf::is_enabled() != Ok(true)
}

/// Forks; the clone checks the memory, all of it or one word of each page. The parent is told that it took so long.
#[allow(dead_code)] // as above
pub fn forked(words: &[u64], seed: u64, ns: u64, all: bool) {
	let now = Cell::new(0);
	// SAFETY: one thread; the clone only reads, and ends.
	let real = || unsafe { libc::fork() };
	let pid = flashfork_core::fork::fork(real, || now.replace(now.get() + ns));
	if pid == 0 {
		let right =
			if all { intact(words, seed) } else { (0..words.len()).step_by(512).all(|i| words[i] == pattern(i, seed)) };
		// SAFETY: ends the clone.
		unsafe { libc::_exit(i32::from(!right)) };
	}
	assert_eq!(wait(pid), 0, "the clone saw other bytes");
}

#[allow(dead_code)] // as above
#[track_caller]
pub fn until(most: usize, mut done: impl FnMut() -> bool) {
	assert!((0..most).any(|_| done()), "not within {most} forks");
}
