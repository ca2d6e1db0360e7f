//! Rounds that make next to no calls, as a fuzzer's do: only what was written is looked for then, and each of these
//! does what might hide a page from that.

#[macro_use]
#[path = "common/child.rs"]
mod child;
#[path = "common/maps.rs"]
mod maps;
#[path = "common/memory.rs"]
mod memory;
#[path = "common/other.rs"]
mod other;
use child::{Child, in_child, wait};
use flashfork_core::snapshot::{Options, Way, calls_tell_of_mappings, go_back_by, restore, snapshot};
use maps::{mapping, mappings};
use memory::{
	ANONYMOUS, BOTH, PAGE, advise, anonymous, are, counter, cut, map, move_break, page, protect, read, set, unmap,
	write,
};
use other::Other;
use std::{
	fs,
	os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
	sync::atomic::Ordering::SeqCst,
};

/// Rounds before what a test is about, so that what is written each time is known.
const QUIET: u64 = 8;

fn pages(count: usize) -> *mut u8 {
	anonymous(count * PAGE)
}

/// A file of some pages without a name.
fn file(pages: usize) -> i32 {
	memory::file(c"quiet", pages * PAGE)
}

/// Has a file of four pages lose its end for a moment, from this page on.
fn lose_end(file: i32, from: usize) {
	cut(file, from * PAGE);
	cut(file, 4 * PAGE);
}

fn fill(at: *mut u8, pages: usize) {
	(0..pages).for_each(|number| set(page(at, number), number as u8 + 1, PAGE));
}

/// That all pages are as they were filled. Reads all of them.
fn assert_filled(at: *mut u8, pages: usize, round: u64) {
	let changed: Vec<usize> = (0..pages).filter(|number| !are(page(at, *number), *number as u8 + 1, PAGE)).collect();
	assert_eq!(changed, [0; 0], "round {round}");
}

/// Takes a snapshot and goes back to it, after quiet rounds and then one for each of `special`. In all of them `hot` is
/// written to; at the beginning of each `check` is called with the round.
fn rounds(hot: *mut u8, special: &[&dyn Fn()], check: &dyn Fn(u64)) {
	rounds_after(QUIET, hot, special, check);
}

/// The same after so many quiet rounds.
fn rounds_after(quiet: u64, hot: *mut u8, special: &[&dyn Fn()], check: &dyn Fn(u64)) {
	let turn = counter();
	go_back_by(Some(Way::Copy));
	let value = snapshot(&Options { seal: true, close_new: true, ..Options::default() }).expect("a snapshot");
	assert_eq!(value, turn.load(SeqCst));
	assert!(calls_tell_of_mappings(), "by a call that is not seen nothing of this is tried");
	check(value);
	write(hot, 99);
	let index = value.checked_sub(quiet).map(|index| index as usize);
	match index {
		Some(index) if index == special.len() => return,
		Some(index) => special[index](),
		None => {}
	}
	turn.store(value + 1, SeqCst);
	panic!("{:?}", restore(value + 1));
}

/// The same where `memory` is to be what it was filled with.
fn filled(memory: *mut u8, count: usize, special: &[&dyn Fn()]) {
	fill(memory, count);
	rounds(memory, special, &|round| assert_filled(memory, count, round));
}

const NOTHING: &dyn Fn() = &|| {};

/// More than the kernel puts off for a processor, or it would not free any yet.
const FREED: usize = 64;

fn free(memory: *mut u8) {
	advise(memory, FREED * PAGE, libc::MADV_FREE);
}

fn page_out(other: &Other, memory: *mut u8) {
	(0..FREED).for_each(|number| other.page_out(page(memory, number)));
}

#[test]
fn what_is_freed_for_later_goes_back_when_that_comes() {
	in_child!();
	let (memory, other) = (pages(2 * FREED), Other::beside_this());
	filled(memory, 2 * FREED, &[&|| free(memory), NOTHING, &|| page_out(&other, memory), NOTHING]);
}

#[test]
fn what_was_unmapped_is_there_again() {
	in_child!();
	let memory = pages(16);
	filled(memory, 16, &[&|| unmap(page(memory, 9), PAGE), NOTHING]);
}

#[test]
fn what_was_given_up_and_not_touched_since_goes_back() {
	in_child!();
	let memory = pages(16);
	filled(memory, 16, &[&|| advise(page(memory, 7), PAGE, libc::MADV_DONTNEED), NOTHING]);
}

#[test]
fn pages_that_went_with_the_end_of_their_file_go_back() {
	for (cut, hot) in [(3, 3), (3, 0), (0, 0)] {
		in_child(|| {
			let file = file(4);
			let memory = map(4 * PAGE, BOTH, libc::MAP_PRIVATE, file);
			fill(memory, 4);
			let special: [&dyn Fn(); 2] = [&|| lose_end(file, cut), NOTHING];
			rounds(page(memory, hot), &special, &|round| assert_filled(memory, 4, round));
		});
	}
}

/// Found by random turns (snapshot_ways.rs, seed 6): one page goes, and another one is written for the first time.
#[test]
fn a_page_that_went_with_its_file_goes_back_though_another_came() {
	in_child!();
	let file = file(4);
	let memory = map(4 * PAGE, BOTH, libc::MAP_PRIVATE, file);
	fill(memory, 4);
	let swap = || {
		lose_end(file, 3);
		write(memory, 99);
	};
	// By the next round it is known which pages are written again and again.
	rounds(page(memory, 3), &[NOTHING, &swap, NOTHING], &|round| assert_filled(memory, 4, round));
}

#[test]
fn a_break_that_was_lower_for_a_moment_takes_nothing() {
	for pages in [16, 4] {
		in_child(|| {
			let lower = || lower_break(pages);
			filled(end_of_heap(16), 16, &[&lower, NOTHING, &lower, NOTHING]);
		});
	}
}

/// The protection of a page, as maps has it; empty where nothing is mapped.
fn protection(at: *mut u8) -> String {
	mapping(at).map(|mapping| mapping.prot).unwrap_or_default()
}

/// Pages at the end of the heap, which nobody else moves from now on.
fn end_of_heap(count: usize) -> *mut u8 {
	// SAFETY: sets a number.
	unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30) };
	drop(std::hint::black_box(vec![1u8; 100_000]));
	let now = move_break(0) as usize;
	move_break((now.next_multiple_of(PAGE) - now) as isize);
	move_break((count * PAGE) as isize)
}

fn lower_break(pages: usize) {
	move_break(-((pages * PAGE) as isize));
	move_break((pages * PAGE) as isize);
}

#[test]
fn what_the_end_of_the_heap_was_protected_for_it_is_again() {
	in_child!();
	let memory = end_of_heap(16);
	fill(memory, 15);
	let last = page(memory, 15);
	protect(last, PAGE, libc::PROT_READ);
	rounds(memory, &[&|| lower_break(1), NOTHING], &|round| {
		assert_filled(memory, 15, round);
		assert_eq!(protection(last), "r--p", "round {round}");
	});
}

#[test]
fn a_break_that_was_lower_takes_nothing_before_a_hole() {
	in_child!();
	let memory = end_of_heap(16);
	fill(memory, 16);
	let make_hole = || unmap(page(memory, 15), PAGE);
	make_hole();
	let lower = || {
		lower_break(2);
		make_hole();
	};
	rounds(memory, &[&lower, NOTHING], &|round| assert_filled(memory, 15, round));
}

#[test]
fn what_was_unmapped_while_the_stack_grew_around_a_hole_is_there_again() {
	in_child!();
	let memory = pages(16);
	// The stack grows by three pages below it, which are dead memory.
	let swap = || {
		let start = start_of_stack();
		write(start.wrapping_sub(3 * PAGE), 1);
		unmap(start.wrapping_sub(PAGE), PAGE);
		unmap(page(memory, 9), 2 * PAGE);
	};
	fill(memory, 16);
	rounds(memory, &[&swap, NOTHING], &|round| {
		assert_eq!(protection(page(memory, 9)), "rw-p", "round {round}");
		assert_filled(memory, 16, round);
	});
}

fn start_of_stack() -> *mut u8 {
	mappings().iter().find(|mapping| mapping.name == "[stack]").unwrap().range.start as *mut u8
}

#[test]
fn what_was_freed_for_later_before_the_snapshot_goes_back_when_that_comes() {
	in_child!();
	let (memory, hot, other) = (pages(2 * FREED), pages(1), Other::beside_this());
	fill(memory, 2 * FREED);
	free(memory);
	rounds(hot, &[&|| page_out(&other, memory), NOTHING], &|round| assert_filled(memory, 2 * FREED, round));
}

#[test]
fn a_page_written_for_the_first_time_that_goes_with_its_file_goes_back() {
	in_child!();
	let file = file(4);
	let (memory, hot) = (map(4 * PAGE, BOTH, libc::MAP_PRIVATE, file), pages(1));
	fill(memory, 4);
	let cut = || {
		write(page(memory, 3), 99);
		lose_end(file, 3);
	};
	let cut_and_read = || {
		cut();
		read(page(memory, 3));
	};
	let every: [&dyn Fn(); 8] = [&cut, &cut, &cut, NOTHING, &cut_and_read, &cut_and_read, NOTHING, NOTHING];
	rounds(hot, &every, &|round| assert_filled(memory, 4, round));
}

/// It knows nothing of the watch, and ends all there are: its parent's is none of its business.
#[test]
fn a_child_of_a_call_that_nobody_sees_ends_no_watch_of_its_parent_s() {
	for hole in [false, true] {
		in_child(|| {
			let memory = end_of_heap(16);
			fill(memory, 15);
			if hole {
				unmap(page(memory, 15), PAGE);
			}
			let act = || {
				// SAFETY: the child takes a snapshot and ends.
				let child = unsafe { libc::syscall(libc::SYS_fork) } as i32;
				if child == 0 {
					// SAFETY: ends the child.
					unsafe { libc::_exit(snapshot(&Options::default()).is_err().into()) };
				}
				assert_eq!(wait(child), 0);
				write(page(memory, 1), 33);
			};
			let write = || write(page(memory, 2), 33);
			rounds(memory, &[&act, &write, &write, NOTHING], &|round| assert_filled(memory, 15, round));
		});
	}
}

/// Code that can be written later hides what it does.
#[test]
fn code_that_is_written_while_the_program_runs_tells_of_no_mappings() {
	const CODE: i32 = libc::PROT_READ | libc::PROT_EXEC;
	let makers: [&dyn Fn() -> *mut u8; 4] = [
		&|| map(PAGE, libc::PROT_EXEC, ANONYMOUS, -1),
		&|| map(PAGE, CODE | BOTH, ANONYMOUS, -1),
		&|| map(PAGE, CODE | BOTH, libc::MAP_PRIVATE, file(1)),
		&|| map(PAGE, CODE, libc::MAP_SHARED, file(1)),
	];
	for (number, make) in makers.iter().enumerate() {
		in_child(|| {
			make();
			assert_eq!(snapshot(&Options { seal: true, ..Options::default() }).unwrap(), 0);
			assert!(!calls_tell_of_mappings(), "{number}");
		});
	}
}

#[test]
fn what_was_unmapped_while_the_stack_grew_is_there_again() {
	in_child!();
	let memory = pages(16);
	// The stack grows by the page below it, which is dead memory.
	let swap = || {
		let start = start_of_stack();
		unmap(page(memory, 9), PAGE);
		write(start.wrapping_sub(1), 1);
	};
	filled(memory, 16, &[&swap, NOTHING]);
}

#[test]
fn what_others_write_goes_back() {
	in_child!();
	let (memory, other) = (pages(16), Other::beside_this());
	let write = || other.write(page(memory, 3).wrapping_add(77));
	filled(memory, 16, &[&write, NOTHING, &write, NOTHING]);
}

#[test]
fn what_the_program_writes_to_its_code_by_its_own_means_goes_back() {
	use std::os::unix::fs::FileExt;
	in_child!();
	let file = file(4);
	let contents: Vec<u8> = (0..4 * PAGE).map(|i| (i / PAGE) as u8 + 1).collect();
	// SAFETY: the buffer is that long.
	assert_eq!(unsafe { libc::write(file, contents.as_ptr().cast(), 4 * PAGE) }, (4 * PAGE) as isize);
	let code = map(4 * PAGE, libc::PROT_READ, libc::MAP_PRIVATE, file);
	let hot = pages(1);
	let poke = || {
		let own = fs::OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
		// Where the kernel forbids that there is nothing to see.
		let _ = own.write_at(&[99], code as u64 + 2 * PAGE as u64);
	};
	rounds(hot, &[&poke, NOTHING], &|round| assert_filled(code, 4, round));
}

/// Puts something else in the place of those of the engine's descriptors that lead to such a file.
fn replace_engines(wanted: &str, by: i32) {
	for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
		let Ok(leads_to) = fs::read_link(entry.path()) else { continue };
		let number: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
		if leads_to.to_str().unwrap().ends_with(wanted) && number > 100 {
			// SAFETY: the engine takes that into account.
			assert_eq!(unsafe { libc::dup2(by, number) }, number);
		}
	}
}

#[test]
fn descriptors_of_the_engine_s_may_be_replaced() {
	for wanted in ["pagemap", "statm", "fd", "[userfaultfd]"] {
		in_child(|| {
			let replace = || replace_engines(wanted, 0);
			filled(pages(16), 16, &[&replace, NOTHING, NOTHING, &replace, NOTHING]);
		});
	}
}

/// By its file it is the same one.
#[test]
fn a_page_map_that_can_not_be_read_any_more_is_opened_again() {
	in_child!();
	let replace = || {
		let path = fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open("/proc/self/pagemap").unwrap();
		replace_engines("pagemap", path.as_raw_fd());
	};
	filled(pages(16), 16, &[&replace, NOTHING, NOTHING]);
}

/// That none of the numbers is taken any more from which the tests duplicate.
fn assert_closed(round: u64) {
	// SAFETY: asks, no more.
	let open = (100..200).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0).count();
	assert_eq!(open, 0, "round {round}");
}

fn open_another() {
	// SAFETY: a descriptor of the test's own.
	assert!(unsafe { libc::fcntl(1, libc::F_DUPFD, 100) } >= 100);
}

/// The engine's own get the numbers of what was closed.
#[test]
fn descriptors_that_were_opened_are_closed_though_the_engine_has_old_numbers() {
	in_child!();
	let memory = pages(1);
	// SAFETY: descriptors of the test's own.
	let old = [(); 2].map(|()| unsafe { libc::fcntl(1, libc::F_DUPFD, 256) });
	// SAFETY: as above.
	let close = || old.iter().for_each(|fd| assert_eq!(unsafe { libc::close(*fd) }, 0));
	let twice = || {
		open_another();
		open_another();
	};
	let all: [&dyn Fn(); 7] = [&close, NOTHING, NOTHING, &open_another, &open_another, &twice, &open_another];
	rounds_after(0, memory, &all, &assert_closed);
}

#[test]
fn descriptors_that_were_opened_are_closed_though_one_was_closed() {
	in_child!();
	// SAFETY: a descriptor of the test's own.
	let old = unsafe { libc::dup(1) };
	let new = || {
		// SAFETY: as above.
		unsafe { libc::close(old) };
		open_another();
	};
	rounds(pages(1), &[&new, NOTHING], &assert_closed);
}
