//! Blocks that are written all over lie on anonymous huge pages again, where the engine `seal` seals anew.

#[macro_use]
mod common;
use common::{
	Child, is_linux,
	maps::flags_of,
	memory::{ANONYMOUS, BOTH, advise, advised, map_over},
	pattern, patterned, wait,
};
use flashfork_core::{
	MEMFD_PREFIX,
	fork::{Engine, configure, fork},
};
use std::cell::Cell;

const LEN: usize = 32 << 20;
const BLOCK: usize = (2 << 20) / 8;
/// Words of a page.
const PAGE: usize = 4096 / 8;

/// Memory of whole blocks, and with which seed each page was written.
struct Memory {
	words: &'static mut [u64],
	seeds: Vec<u64>,
}

impl Memory {
	fn new() -> Memory {
		let words = patterned(LEN + (2 << 20), 1);
		let odd = (words.as_ptr() as usize).next_multiple_of(2 << 20) - words.as_ptr() as usize;
		let words = &mut words[odd / 8..][..LEN / 8];
		let mut memory = Memory { seeds: vec![0; LEN / 4096], words };
		memory.write(0..LEN / 4096, 1);
		memory
	}

	fn write(&mut self, pages: std::ops::Range<usize>, seed: u64) {
		for page in pages {
			(page * PAGE..(page + 1) * PAGE).for_each(|i| self.words[i] = pattern(i, seed));
			self.seeds[page] = seed;
		}
	}

	fn is_right(&self) -> bool {
		self.words.iter().enumerate().all(|(i, word)| *word == pattern(i, self.seeds[i / PAGE]))
	}

	/// Forks; the clone looks at its memory and ends. It took so long, as the engine is told, that the next fork is
	/// worth sealing anew.
	fn fork(&self) {
		let now = Cell::new(0);
		// SAFETY: one thread; the clone only reads, and ends.
		let pid = fork(|| unsafe { libc::fork() }, || now.replace(now.get() + (1 << 50)));
		if pid == 0 {
			// SAFETY: ends the clone.
			unsafe { libc::_exit(i32::from(!self.is_right())) };
		}
		assert_eq!(wait(pid), 0, "the clone saw other bytes");
		assert!(self.is_right());
	}

	/// Bytes of these blocks that are sealed, and that lie on anonymous huge pages.
	fn lies(&self, blocks: std::ops::Range<usize>) -> (usize, usize) {
		let words = &self.words[blocks.start * BLOCK..blocks.end * BLOCK];
		let (start, end) = (words.as_ptr() as usize, words.as_ptr_range().end as usize);
		let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
		let (mut sealed, mut huge, mut here) = (0, 0, 0);
		for line in smaps.lines() {
			if let Some((from, to)) = line.split(' ').next().and_then(|word| word.split_once('-')) {
				let [from, to] = [from, to].map(|n| usize::from_str_radix(n, 16).unwrap_or(0));
				here = to.min(end).saturating_sub(from.max(start));
				if line.contains(std::str::from_utf8(MEMFD_PREFIX).unwrap()) {
					(sealed, here) = (sealed + here, 0);
				}
			} else if let Some(rest) = line.strip_prefix("AnonHugePages:") {
				let bytes = rest.split_whitespace().next().unwrap().parse::<usize>().unwrap() << 10;
				huge += bytes.min(here);
			}
		}
		(sealed, huge)
	}

	fn fork_until(&self, mut done: impl FnMut() -> bool) {
		let found = (0..100).any(|_| {
			self.fork();
			done()
		});
		assert!(found, "blocks are sealed, and on huge pages: {:?}", self.lies(0..LEN / (2 << 20)));
	}
}

/// Whether this kernel makes huge pages when it is asked to, and says which pages are.
fn can_be_made() -> bool {
	let block = (patterned(4 << 20, 1).as_ptr() as usize).next_multiple_of(2 << 20);
	is_linux(6, 7) && advised(block as *const u8, 2 << 20, libc::MADV_COLLAPSE) == 0
}

/// Memory that the engine has sealed before a fork; none without huge pages to be had.
fn sealed() -> Option<Memory> {
	let memory = can_be_made().then(Memory::new)?;
	configure(Engine::Seal, false).unwrap();
	memory.fork();
	Some(memory)
}

#[test]
fn a_block_that_is_written_all_over_lies_on_a_huge_page_until_a_clone_s_parent_writes_there() {
	in_child!();
	let Some(mut memory) = sealed() else { return };
	assert_eq!(memory.lies(0..16), (LEN, 0), "all is sealed before the first fork");

	// Three blocks in a row, half of another one, and one page.
	let page = |block: usize| block * 512;
	memory.write(page(2)..page(5), 2);
	memory.write(page(9)..page(9) + 256, 3);
	memory.write(page(12)..page(12) + 1, 4);
	memory.fork_until(|| memory.lies(2..5) == (0, 6 << 20) && memory.lies(9..10) == (0, 2 << 20));
	assert_eq!(memory.lies(0..16), (LEN - (8 << 20), 8 << 20), "the page's block was sealed anew");

	// They stay, while others are sealed anew.
	for turn in 0..5 {
		memory.write(page(2)..page(5), 10 + turn);
		memory.write(page(12)..page(12) + 1, 10 + turn);
		memory.fork();
		memory.fork();
		assert_eq!(memory.lies(0..16), (LEN - (8 << 20), 8 << 20));
	}

	// A write while a clone shares a page splits it.
	// SAFETY: one thread; the clone waits to be killed.
	let clone = unsafe { libc::fork() };
	if clone == 0 {
		loop {
			// SAFETY: waits.
			unsafe { libc::pause() };
		}
	}
	memory.write(page(3)..page(3) + 1, 20);
	// SAFETY: the clone just made.
	assert_eq!(unsafe { libc::kill(clone, libc::SIGKILL) }, 0);
	assert_eq!(wait(clone), 128 + libc::SIGKILL);
	memory.fork_until(|| memory.lies(2..5) == (6 << 20, 0));
	assert_eq!(memory.lies(9..10), (0, 2 << 20));
}

#[test]
fn a_seal_that_the_program_asks_for_takes_such_blocks_too() {
	in_child!();
	let Some(mut memory) = sealed() else { return };
	memory.write(0..1024, 2);
	memory.fork_until(|| memory.lies(0..2) == (0, 4 << 20));
	assert!(flashfork_core::seal(flashfork_core::Pages::Auto).outcome.unwrap().sealed >= 4 << 20);
	assert_eq!(memory.lies(0..16), (LEN, 0));
	memory.write(0..1, 3);
	memory.fork_until(|| memory.lies(0..2) == (4 << 20, 0));
}

#[test]
fn what_the_program_has_asked_for_a_block_stays_and_its_neighbours_lie_on_huge_pages() {
	in_child!();
	let Some(mut memory) = sealed() else { return };
	memory.write(0..3 * 512, 2);
	let second = &raw const memory.words[BLOCK];
	advise(second, 2 << 20, libc::MADV_NOHUGEPAGE);
	memory.fork_until(|| memory.lies(0..3).1 == 4 << 20);
	(0..5).for_each(|_| memory.fork());
	assert_eq!([0, 1, 2].map(|i| memory.lies(i..i + 1).1), [2 << 20, 0, 2 << 20]);
	assert!(flags_of(second).contains(" nh "));
}

#[test]
fn memory_that_is_not_charged_is_not_charged_on_huge_pages_either() {
	in_child!();
	if !can_be_made() {
		return;
	}
	let mut memory = Memory::new();
	let at = memory.words.as_mut_ptr();
	map_over(at, 4 << 20, BOTH, ANONYMOUS | libc::MAP_NORESERVE, -1);
	memory.write(0..1024, 1);
	let before = flags_of(at).contains(" nr ");
	configure(Engine::Seal, false).unwrap();
	memory.fork();
	memory.write(0..1024, 2);
	memory.fork_until(|| memory.lies(0..2) == (0, 4 << 20));
	// Where the host commits no more than there is, all memory is charged.
	assert_eq!(flags_of(at).contains(" nr "), before);
}
