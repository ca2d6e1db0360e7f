//! In children: other tests fork and close descriptors meanwhile, and then regions drop.

use super::*;
use crate::{child::Child, kernel_writers, never_seal::Reason, outcome::Purpose};
use std::os::unix::fs::FileExt;

/// The ways there are here: before Linux 6.7, and where userfaultfd is forbidden, pages are only dropped.
fn ways() -> Vec<Way> {
	let mut region = filled(Pages::Small, Way::Copy);
	region.seal().unwrap();
	region.rollback().unwrap();
	if region.next_way() == Way::Copy { vec![Way::Drop, Way::Copy] } else { vec![Way::Drop] }
}

fn bytes(region: &mut Region) -> &mut [u8] {
	let Range { start, .. } = region.range();
	// SAFETY: the region is mapped and ours.
	unsafe { core::slice::from_raw_parts_mut(start as *mut u8, region.range().len()) }
}

fn filled(pages: Pages, way: Way) -> Region {
	let mut region = Region::map(3 * HUGE - 5, pages).unwrap();
	region.go_back_by(Some(way));
	assert_eq!(region.range().len(), 3 * HUGE);
	assert!(region.range().start.is_multiple_of(HUGE));
	assert!(bytes(&mut region).iter().all(|b| *b == 0));
	for (i, page) in bytes(&mut region).chunks_exact_mut(PAGE).enumerate() {
		page.fill(i as u8);
	}
	region
}

/// A region on small pages that has gone back once.
fn turned(way: Way) -> Region {
	let mut region = filled(Pages::Small, way);
	region.seal().unwrap();
	bytes(&mut region)[5 * PAGE] = 0xee;
	region.rollback().unwrap();
	assert_eq!(region.next_way(), way);
	region
}

fn intact(region: &mut Region) -> bool {
	bytes(region).chunks_exact(PAGE).enumerate().all(|(i, page)| page.iter().all(|b| *b == i as u8))
}

/// Has it go back, and be what it was.
#[track_caller]
fn goes_back(region: &mut Region, context: &str) {
	region.rollback().unwrap();
	assert!(intact(region), "{context}: it is not what it was");
}

/// Writes to that byte of each page, after which it is another.
fn change_all(region: &mut Region, byte: usize) {
	bytes(region).chunks_exact_mut(PAGE).for_each(|page| page[byte] ^= 0xff);
}

/// Likewise to the first byte of one page.
fn change(region: &mut Region, page: usize) {
	bytes(region)[page * PAGE] ^= 0xff;
}

/// Runs `f` in a clone that libc and the fork path know nothing of; whether it says yes there.
fn in_clone(f: impl FnOnce() -> bool) -> bool {
	// SAFETY: the child touches only memory of its own.
	let child = unsafe { sys::fork_in_silence() }.unwrap();
	if child == 0 {
		sys::exit(i32::from(!f()));
	}
	matches!(sys::wait(child, 0x8000_0000), Ok((_, 0)))
}

#[test]
fn goes_back_to_what_it_was_as_often_as_wanted() {
	in_child!();
	for way in ways() {
		for pages in [Pages::Auto, Pages::Small] {
			let mut region = filled(pages, way);
			assert!(pages == Pages::Auto || region.huge() == 0);
			region.seal().unwrap();
			assert!(region.is_sealed() && intact(&mut region));
			for turn in (1..50).chain((1..50).rev()) {
				for page in bytes(&mut region).chunks_exact_mut(PAGE).skip(turn).step_by(turn) {
					page.fill(0xee);
				}
				assert!(!intact(&mut region));
				region.rollback().unwrap();
				assert_eq!(region.next_way(), way);
				assert!(intact(&mut region), "turn {turn}");
			}
		}
	}
}

#[test]
fn pages_that_were_written_once_are_protected_anew() {
	in_child!();
	for way in ways() {
		let mut region = turned(way);
		change_all(&mut region, 0);
		region.rollback().unwrap();
		for turn in 0..100 {
			bytes(&mut region)[turn * PAGE + turn] ^= 0xff;
			goes_back(&mut region, &format!("turn {turn}"));
		}
		// What is written after that is seen.
		change_all(&mut region, PAGE - 1);
		goes_back(&mut region, "");
	}
}

#[test]
fn a_part_goes_back_and_the_rest_does_not() {
	in_child!();
	for way in ways() {
		let mut region = turned(way);
		for turn in 0..3 {
			for part in [0..1, 7..9, 500..520, 0..1024, 512..1024, 1535..1536, 3..3] {
				change_all(&mut region, 0);
				region.rollback_range(part.start * PAGE, part.len() * PAGE).unwrap();
				for (i, page) in bytes(&mut region).chunks_exact(PAGE).enumerate() {
					let same = part.contains(&i);
					assert_eq!(page[0] == i as u8, same, "turn {turn}, {part:?}, page {i}");
				}
				goes_back(&mut region, "");
			}
		}
		let len = region.range().len();
		for (offset, wanted) in [(1, PAGE), (PAGE, 1), (len, PAGE), (0, len + PAGE), (PAGE, usize::MAX - PAGE + 1)] {
			assert_eq!(region.rollback_range(offset, wanted), Err(Error::Range), "{offset}, {wanted}");
		}
		assert_eq!(region.rollback_range(len, 0), Ok(()));
	}
	assert_eq!(filled(Pages::Small, Way::Drop).rollback_range(0, PAGE), Err(Error::NotSealed));
}

#[test]
fn misuse_is_told() {
	in_child!();
	assert_eq!(Region::map(0, Pages::Auto).unwrap_err(), Error::Length);
	assert_eq!(Region::map(usize::MAX - 5, Pages::Auto).unwrap_err(), Error::Length);
	assert_eq!(Region::map(1 << 60, Pages::Small).unwrap_err(), Error::System(Step::Reserve, Errno::ENOMEM));
	let mut region = filled(Pages::Small, Way::Drop);
	assert_eq!(region.rollback(), Err(Error::NotSealed));
	region.seal().unwrap();
	assert_eq!(region.seal(), Err(Error::Sealed));
}

#[test]
fn a_region_that_something_else_maps_to_write_stays_unsealed() {
	in_child!();
	let mut region = filled(Pages::Small, Way::Drop);
	let fd = region.fd.unwrap();
	// SAFETY: a second mapping of the same memfd.
	let other = unsafe { sys::mmap(0, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0).unwrap() };
	assert_eq!(region.seal(), Err(Error::System(Step::AddSeals, Errno::EBUSY)));
	assert!(!region.is_sealed() && intact(&mut region));
	// SAFETY: the mapping just made.
	unsafe { sys::munmap(other, HUGE).unwrap() };
	region.seal().unwrap();
	assert!(intact(&mut region));
}

/// The kernel puts a clone's memory where its parent has a region that isn't sealed.
#[test]
fn a_clone_keeps_its_own_memory_in_the_place_of_an_unsealed_region() {
	in_child!();
	let mut region = Some(filled(Pages::Small, Way::Drop));
	let range = region.as_ref().unwrap().range();
	let kept = in_clone(|| {
		let flags = MAP_PRIVATE | MAP_ANONYMOUS | k::MAP_FIXED_NOREPLACE;
		// SAFETY: nothing is there in the clone.
		let own = unsafe { sys::mmap(range.start, range.len(), PROT_READ | PROT_WRITE, flags, -1, 0) };
		// SAFETY: the mapping just made, if it was.
		let byte = own.map(|at| unsafe { &mut *(at as *mut u8) });
		let Ok(byte) = byte else { return false };
		*byte = 77;
		let refused = region.as_mut().unwrap().seal() == Err(Error::Elsewhere);
		let is_kept = *byte == 77;
		*byte = 78;
		region = None;
		refused && is_kept && *byte == 78
	});
	assert!(kept);
	let mut region = region.unwrap();
	assert!(intact(&mut region));
	region.seal().unwrap();
	assert!(intact(&mut region));
}

#[test]
fn locked_memory_rolls_back_and_a_hole_is_an_error() {
	in_child!();
	for way in ways() {
		let mut region = turned(way);
		sys::mlock(region.range().start, 4 * PAGE, false).unwrap();
		bytes(&mut region)[0] = 77;
		goes_back(&mut region, "");
		assert_eq!(region.next_way(), way, "locks split the mapping, and that is all");
		bytes(&mut region)[0] = 77;
		// SAFETY: nobody uses the page any more.
		unsafe { sys::munmap(region.range().start + HUGE, PAGE).unwrap() };
		assert_eq!(region.rollback(), Err(Error::System(Step::Drop, Errno::ENOMEM)));
		assert_eq!(bytes(&mut region)[0], 0);
	}
}

#[test]
fn parent_and_clone_go_back_each_for_itself() {
	in_child!();
	for way in ways() {
		let mut region = turned(way);
		bytes(&mut region)[7 * PAGE] = 0xee;
		let child = in_clone(|| {
			(0..5).all(|turn| {
				change(&mut region, turn);
				region.rollback().is_ok() && intact(&mut region)
			}) && region.next_way() == way
		});
		assert!(child);
		assert_eq!(bytes(&mut region)[7 * PAGE], 0xee, "the clone's turns are its own");
		for turn in 0..5 {
			bytes(&mut region)[turn * HUGE / 2] ^= 0xff;
			goes_back(&mut region, "");
		}
		assert_eq!(region.next_way(), way);
	}
}

#[test]
fn what_others_write_goes_back_too() {
	in_child!();
	for way in ways() {
		let mut region = turned(way);
		let start = region.range().start;
		for page in [0, 5, 511, 600, 1535] {
			// Through /proc/self/mem, as a debugger does.
			let memory = std::fs::OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
			memory.write_all_at(&[0xdd; 5000], (start + page * PAGE) as u64).unwrap_or_else(|_| assert_eq!(page, 1535));
			// By the kernel, which reads a file into it.
			let file = std::fs::File::open("/dev/zero").unwrap();
			file.read_exact_at(&mut bytes(&mut region)[page * PAGE..][..4000], 0).unwrap();
			// By another process.
			let (from, parent) = ([0xcc_u8; 3000], sys::getpid());
			assert!(in_clone(|| {
				let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
				let remote = libc::iovec { iov_base: (start + page * PAGE) as *mut _, iov_len: from.len() };
				// SAFETY: it writes to the parent's region.
				unsafe { libc::process_vm_writev(parent, &local, 1, &remote, 1, 0) == from.len() as isize }
			}));
			assert_eq!(bytes(&mut region)[page * PAGE], 0xcc);
			goes_back(&mut region, &format!("page {page}"));
		}
		assert_eq!(region.next_way(), way);
		std::thread::scope(|scope| {
			let all = bytes(&mut region);
			for part in all.chunks_mut(HUGE) {
				scope.spawn(move || part.iter_mut().step_by(3 * PAGE).for_each(|byte| *byte ^= 0xff));
			}
		});
		goes_back(&mut region, "");
	}
}

#[test]
fn what_the_program_does_to_parts_of_it_is_as_by_dropping() {
	in_child!();
	const READ_WRITE: u32 = PROT_READ | PROT_WRITE;
	for way in ways() {
		let mut region = turned(way);
		let start = region.range().start;
		let page = |i: usize| start + i * PAGE;
		// Dropped by the program.
		change_all(&mut region, 0);
		// SAFETY: here and below: parts of the region, used by nobody meanwhile.
		unsafe { sys::madvise(page(3), 5 * PAGE, k::MADV_DONTNEED).unwrap() };
		assert!(
			bytes(&mut region)[3 * PAGE..8 * PAGE].chunks_exact(PAGE).enumerate().all(|(i, p)| p[0] == i as u8 + 3)
		);
		goes_back(&mut region, "");
		assert_eq!(region.next_way(), way);
		// Not to be written, or not even read.
		for prot in [PROT_READ, PROT_NONE] {
			change(&mut region, 4);
			// SAFETY: see above.
			unsafe { sys::mprotect(page(4), PAGE, prot).unwrap() };
			region.rollback().unwrap();
			// SAFETY: see above.
			unsafe { sys::mprotect(page(4), PAGE, READ_WRITE).unwrap() };
			assert!(intact(&mut region));
			region.rollback().unwrap();
			assert_eq!(region.next_way(), way);
		}
		// Guards, which stay.
		change(&mut region, 5);
		// SAFETY: see above.
		if unsafe { sys::madvise(page(5), PAGE, k::MADV_GUARD_INSTALL) }.is_ok() {
			change(&mut region, 6);
			region.rollback().unwrap();
			// SAFETY: see above.
			unsafe { sys::madvise(page(5), PAGE, k::MADV_GUARD_REMOVE).unwrap() };
			assert!(intact(&mut region));
		}
		// Its addresses made something else's.
		let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
		// SAFETY: see above.
		unsafe { sys::mmap(page(600), PAGE, READ_WRITE, flags, -1, 0).unwrap() };
		bytes(&mut region)[600 * PAGE] = 9;
		change(&mut region, 601);
		region.rollback().unwrap();
		assert_eq!(bytes(&mut region)[600 * PAGE..][..PAGE], [0; PAGE], "anonymous memory");
		assert_eq!(bytes(&mut region)[601 * PAGE], 601_usize as u8);
		// Moved away.
		// SAFETY: see above.
		unsafe { sys::mremap(page(700), PAGE, PAGE, k::MREMAP_MAYMOVE as usize | k::MREMAP_FIXED as usize, page(600)) }
			.unwrap();
		assert_eq!(region.rollback(), Err(Error::System(Step::Drop, Errno::ENOMEM)));
		assert_eq!(bytes(&mut region)[600 * PAGE], 700_usize as u8);
	}
}

#[test]
fn what_is_swapped_out_goes_back() {
	in_child!();
	for way in ways() {
		let mut region = turned(way);
		for turn in 0..6 {
			bytes(&mut region).chunks_exact_mut(PAGE).step_by(1 + turn).for_each(|page| page[turn] ^= 0xff);
			// Without swap space this does nothing. SAFETY: changes no contents.
			unsafe { sys::madvise(region.range().start, region.range().len(), k::MADV_PAGEOUT).unwrap() };
			bytes(&mut region)[turn * 3 * PAGE] ^= 0x55;
			region.rollback().unwrap();
			// SAFETY: as above: what is protected, too.
			unsafe { sys::madvise(region.range().start, region.range().len() / 2, k::MADV_PAGEOUT).unwrap() };
			assert!(intact(&mut region), "turn {turn}");
		}
		assert_eq!(region.next_way(), way);
	}
}

#[test]
fn its_userfaultfd_is_not_taken_for_the_program_s() {
	in_child!();
	if ways().contains(&Way::Copy) {
		let region = turned(Way::Copy);
		let fd = WATCHED.descriptor(region.range()).unwrap();
		let info = std::fs::read(format!("/proc/self/fdinfo/{fd}")).unwrap();
		assert!(watch::is_watch(&info), "{}", String::from_utf8_lossy(&info));
		let found = kernel_writers::descriptors(Purpose::Seal, &mut [0; 4096]).unwrap();
		assert_ne!(found, Some(Reason::Userfaultfd));
	}
}

#[test]
fn a_descriptor_that_is_gone_or_another_file_is_noticed() {
	in_child!();
	for way in ways() {
		let mut region = turned(way);
		for turn in 0..4 {
			if let Some(fd) = WATCHED.descriptor(region.range()) {
				// SAFETY: a descriptor of the engine's own.
				assert!(unsafe { if turn % 2 == 0 { libc::close(fd) == 0 } else { libc::dup2(1, fd) == fd } });
			}
			change(&mut region, turn);
			goes_back(&mut region, "");
			change(&mut region, turn);
			goes_back(&mut region, "");
			assert_eq!(region.next_way(), way);
		}
	}
}

/// The kernel would try for ever (`before_guards` of `answers/advise.rs`).
#[test]
fn guards_in_a_region_come_to_an_end_while_writes_are_noted() {
	in_child!();
	let limit = libc::rlimit { rlim_cur: 30, rlim_max: 30 };
	// SAFETY: of a process of the test's own, which the kernel ends if it tries for ever.
	assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) }, 0);
	for way in ways() {
		let mut region = turned(way);
		for _ in 0..3 {
			assert!(intact(&mut region));
			bytes(&mut region)[5 * PAGE] = 1;
			region.rollback().unwrap();
		}
		assert!(intact(&mut region));
		let at = region.range().start;
		// Before Linux 6.15 files have no guards.
		// SAFETY: the region is the test's own.
		let _ = unsafe { crate::answers::advise::madvise(at + 4 * PAGE, 4 * PAGE, k::MADV_GUARD_INSTALL) };
		// SAFETY: as above.
		let _ = unsafe { sys::madvise(at + 4 * PAGE, 4 * PAGE, k::MADV_GUARD_REMOVE) };
		goes_back(&mut region, "");
	}
}
