use super::*;
// In children: addresses are free for moments, in which another test's thread would map something there.
use crate::child::Child;

fn filled(len: usize, byte: u8) -> Range {
	// SAFETY: a fresh mapping.
	let at = unsafe { sys::mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) }.unwrap();
	// SAFETY: all of it is ours.
	unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len) }.fill(byte);
	Range::new(at, at + len)
}

fn byte(at: usize) -> &'static mut u8 {
	// SAFETY: the tests pass addresses in memory of their own, which stays.
	unsafe { &mut *(at as *mut u8) }
}

/// Replaces memory by its copy, as a seal does, with a write between copy and remap.
fn replaced(aside: &mut Aside, prot: u32) -> (Range, usize, usize) {
	let (range, copy) = (filled(4 * PAGE, 1), filled(4 * PAGE, 1).start);
	*byte(range.start + PAGE + 7) = 2;
	// SAFETY: only this test uses these.
	let old = unsafe {
		let old = aside.take(range).unwrap();
		assert!(!sys::is_mapped(range.start, PAGE));
		aside.amend(old, copy, range.len());
		sys::mmap(range.start, range.len(), prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0).unwrap();
		sys::mprotect(range.start, range.len(), PROT_READ | PROT_WRITE).unwrap();
		sys::copy_bytes(copy, range.start, range.len());
		sys::mprotect(range.start, range.len(), prot).unwrap();
		old
	};
	aside.keep(range, prot, old, copy);
	(range, old, copy)
}

#[test]
fn what_was_written_before_the_remap_is_in_the_copy_and_what_comes_later_follows() {
	in_child!();
	for prot in [PROT_READ | PROT_WRITE, PROT_READ] {
		let mut aside = Aside::reserve().unwrap();
		let (range, old, _) = replaced(&mut aside, prot);
		assert_eq!((*byte(range.start + PAGE + 7), *byte(range.start)), (2, 1));
		// Somebody had the page in hand, and writes now.
		*byte(old + 3 * PAGE) = 3;
		assert!(aside.look());
		assert_eq!((*byte(range.start + 3 * PAGE), *byte(range.start + 3 * PAGE + 1)), (3, 1));
		assert!(!aside.look());
		if prot & PROT_WRITE != 0 {
			// What the new page got meanwhile is younger.
			*byte(range.start + 9) = 4;
			(*byte(old + 9), *byte(old + 10)) = (5, 5);
			aside.settle();
			assert_eq!((*byte(range.start + 9), *byte(range.start + 10)), (4, 5));
		}
		assert_eq!(aside.kept(), if prot & PROT_WRITE != 0 { 0 } else { range.len() });
	}
}

/// Nothing is compared when pages are copied after they were moved, so a writer shows only in the new ones.
#[test]
fn who_writes_to_what_was_moved_and_then_copied_is_noticed() {
	in_child!();
	let mut aside = Aside::reserve().unwrap();
	for writes in [false, true] {
		let (range, copy) = (filled(BLOCK, 1), filled(BLOCK, 0).start);
		let fd = sys::memfd_create(c"aside").unwrap();
		// SAFETY: only this test uses these.
		unsafe {
			let old = aside.take(range).unwrap();
			assert!(old.is_multiple_of(BLOCK));
			aside.transfer(old, copy, BLOCK);
			sys::ftruncate(fd, BLOCK as u64).unwrap();
			sys::pwrite_all(fd, copy, BLOCK, 0).unwrap();
			remap::map_sealed(range, PROT_READ | PROT_WRITE, fd, 0).unwrap();
			aside.keep(range, PROT_READ | PROT_WRITE, old, copy);
		}
		assert_eq!((*byte(range.start), *byte(range.end - 1)), (1, 1));
		if writes {
			*byte(range.start + 70 * PAGE) = 2;
		}
		aside.settle();
		assert_eq!((aside.somebody_writes, aside.kept()), (writes, 0));
		sys::close(fd);
	}
}

/// A block's private mapping of a file of its own.
fn block_of_file() -> (i32, usize) {
	let fd = sys::memfd_create(c"aside").unwrap();
	sys::ftruncate(fd, BLOCK as u64).unwrap();
	// SAFETY: a fresh mapping.
	(fd, unsafe { sys::mmap(0, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) }.unwrap())
}

/// An unseal has put its copy in the block's place.
fn exchanged(at: usize, copy: usize) -> Aside {
	let mut regions = [crate::proc::scan::Region::default(); 8];
	let mut aside = Aside::for_unseal().unwrap();
	let mut map = Pagemap::open(&mut regions).unwrap();
	let range = Range::new(at, at + BLOCK);
	// SAFETY: only the test uses these.
	unsafe { aside.exchange(range, PROT_READ | PROT_WRITE, copy, Some(&mut map), || Ok(())) }.unwrap();
	aside
}

fn pages_to_read(aside: &Aside) -> Vec<usize> {
	let mut seen = Vec::new();
	aside.kept[0].pages.for_each(|at| seen.push(at / PAGE));
	seen
}

#[test]
fn an_unseal_takes_over_what_was_written_since_the_copy_and_later_and_reads_nothing_else() {
	in_child!();
	let (fd, at) = block_of_file();
	for page in [3, 70, 511] {
		*byte(at + page * PAGE) = 1;
	}
	let copy = filled(BLOCK, 0).start;
	(*byte(copy + 3 * PAGE), *byte(copy + 70 * PAGE)) = (1, 1);
	// Page 511 was written behind the copy's back.
	let mut aside = exchanged(at, copy);
	assert_eq!([3, 4, 70, 511].map(|page| *byte(at + page * PAGE)), [1, 0, 1, 1]);
	let old = aside.kept[0].old;
	*byte(old + 70 * PAGE + 5) = 2;
	assert_eq!(pages_to_read(&aside), [3, 70, 511]);
	aside.settle();
	assert_eq!((*byte(at + 70 * PAGE), *byte(at + 70 * PAGE + 5), aside.kept()), (1, 2, 0));
	sys::close(fd);
}

/// The kernel counts them among what is swapped out.
#[test]
fn an_unseal_reads_no_guards() {
	in_child!();
	let (fd, at) = block_of_file();
	*byte(at + 3 * PAGE) = 1;
	// SAFETY: a page of it, which nobody reads.
	if unsafe { sys::madvise(at + 4 * PAGE, PAGE, k::MADV_GUARD_INSTALL) }.is_err() {
		return; // before Linux 6.15 files have none
	}
	let copy = filled(BLOCK, 0).start;
	let mut aside = exchanged(at, copy);
	assert_eq!((pages_to_read(&aside), *byte(at + 3 * PAGE)), (vec![3], 1));
	aside.settle();
	sys::close(fd);
}

#[test]
fn an_exchange_that_fails_leaves_everything_as_it_was() {
	in_child!();
	let (range, copy) = (filled(4 * PAGE, 1), filled(4 * PAGE, 1).start);
	let mut regions = [crate::proc::scan::Region::default(); 8];
	let mut map = Pagemap::open(&mut regions).unwrap();
	let mut aside = Aside::for_unseal().unwrap();
	// SAFETY: only this test uses these.
	let failed = unsafe { aside.exchange(range, PROT_READ | PROT_WRITE, copy, Some(&mut map), || Err(Errno::ENOMEM)) };
	assert_eq!((failed, *byte(range.start), *byte(range.end - 1)), (Err(Errno::ENOMEM), 1, 1));
	*byte(range.start) = 3;
	drop(aside);
	assert_eq!(*byte(range.start), 3);
}

#[test]
fn old_pages_go_back_and_places_are_used_again() {
	in_child!();
	let mut aside = Aside::reserve().unwrap();
	let range = filled(STEP, 7);
	for _ in 0..3 * MOST / STEP {
		// SAFETY: only this test uses it.
		unsafe {
			let old = aside.take(range).unwrap();
			aside.put_back(range, PROT_READ | PROT_WRITE, old);
		}
		assert_eq!((*byte(range.start), *byte(range.end - 1)), (7, 7));
		assert!(aside.used == 0 && sys::is_mapped(aside.place.start, aside.place.len()), "no hole is left");
	}
	for _ in 0..2 * STEPS {
		replaced(&mut aside, PROT_READ | PROT_WRITE);
	}
	assert!(aside.kept() <= MOST && aside.count <= STEPS && aside.somebody_writes);
}

#[test]
fn pages_are_compared_to_the_last_byte() {
	let (one, other) = (filled(PAGE, 1).start, filled(PAGE, 1).start);
	// SAFETY: both are whole pages of ours.
	assert!(unsafe { sys::same_page(one, other) });
	for at in [0, 1, 15, 16, 31, 33, 47, 48, 63, 64, 2000, PAGE - 1] {
		*byte(other + at) = 2;
		// SAFETY: as above.
		assert!(!unsafe { sys::same_page(one, other) }, "{at}");
		*byte(other + at) = 1;
	}
}
