//! Snapshots: everything that goes back does, as often as wanted; misuse is refused and changes nothing.

#[macro_use]
mod common;
use common::{
	back, by_each_way, in_children, intact,
	maps::{Mapping, flags_of, mappings},
	maps_line,
	memory::*,
	patterned, sealed_pattern,
};
use flashfork_core::{
	Range,
	never_seal::Reason,
	snapshot::{Error, Options, copies_back, discard, restore, snapshot},
};
use std::{
	cell::Cell,
	fs,
	os::fd::AsRawFd,
	sync::atomic::{AtomicU64, Ordering::SeqCst},
};

const SEALED: Options = Options { seal: true, keep: &[], descriptors: &[], close_new: false };
const COPIED: Options = Options { seal: false, ..SEALED };

fn page_at<T>(at: *const T) -> Range {
	Range::new(at as usize, at as usize + PAGE)
}

static DATA: AtomicU64 = AtomicU64::new(5);
static BSS: [AtomicU64; 4000] = [const { AtomicU64::new(0) }; 4000];
thread_local!(static LOCAL: Cell<u64> = const { Cell::new(9) });

/// Changes memory of every kind; checks first that it is as it was.
fn turn(big: &mut [u64], turn: u64) {
	assert!(intact(big, 3), "turn {turn}");
	assert_eq!((DATA.load(SeqCst), LOCAL.get()), (5, 9), "turn {turn}");
	assert!(BSS.iter().all(|b| b.load(SeqCst) == 0), "turn {turn}");
	DATA.store(turn + 77, SeqCst);
	LOCAL.set(turn + 78);
	BSS.iter().step_by(7).for_each(|b| b.store(turn + 79, SeqCst));
	big.iter_mut().step_by(511).for_each(|w| *w = turn);
	let garbage: Vec<Vec<u8>> = (0..200).map(|i| vec![turn as u8; 1 + i * 97]).collect();
	std::mem::forget(garbage);
}

fn goes_back(options: &Options) {
	let turns = counter();
	let big = patterned(9 << 20, 3);
	let small = patterned(64 << 10, 4);
	let value = snapshot(options).unwrap();
	assert_eq!(value, turns.load(SeqCst));
	assert!(intact(small, 4));
	turn(big, value);
	small.fill(value);
	let extra = patterned(3 << 20, value);
	assert!(intact(extra, value));
	if value < 50 {
		turns.store(value + 1, SeqCst);
		back(value + 1);
	}
	discard().unwrap();
	assert_eq!(restore(1), Error::None);
	assert!(intact(extra, value));
}

#[test]
fn memory_of_every_kind_goes_back() {
	in_children(|| goes_back(&SEALED));
	in_children(|| goes_back(&COPIED));
}

#[test]
fn what_is_discarded_after_a_restore_is_zeros_though_all_was_anonymous_before() {
	in_child!(by_each_way());
	let turns = counter();
	let big = patterned(8 << 20, 1);
	let value = snapshot(&SEALED).unwrap();
	assert!(intact(big, 1));
	if turns.swap(1, SeqCst) == 0 {
		flashfork_core::unseal(Range::ALL).unwrap();
		panic!("{:?} {value}", restore(1));
	}
	assert!(maps_line(big.as_ptr()).contains("flashfork"));
	let (at, len) = (big.as_ptr() as usize, size_of_val(big));
	// SAFETY: memory of the test's own, of plain numbers.
	unsafe { flashfork_core::answers::advise::madvise(at, len, libc::MADV_DONTNEED as u32) }.unwrap();
	assert!(big.iter().all(|word| *word == 0));
}

#[test]
fn mappings_go_back() {
	in_child!(by_each_way());
	let turns = counter();
	let big = patterned(8 << 20, 1);
	let small = patterned(64 << 10, 2);
	let (at, small_at, half) = (big.as_mut_ptr().cast::<u8>(), small.as_mut_ptr(), 4 << 20);
	let lines = || fs::read_to_string("/proc/self/maps").unwrap().lines().count();
	let value = snapshot(&SEALED).unwrap();
	assert!(intact(big, 1) && intact(small, 2), "{value}");
	assert!(maps_line(at).contains("rw-p") && maps_line(small_at).contains("rw-p"));
	if value == 1 {
		turns.store(lines() as u64, SeqCst);
	} else if value > 1 {
		// The engine's own go when the program's calls need not be seen any more.
		assert!(lines() as u64 <= turns.load(SeqCst), "{value}: no mapping is left over");
	}
	match value {
		0 => {
			unmap(at, 8 << 20);
			unmap(small_at, 64 << 10);
		}
		1 => {
			unmap(page(at, 1), half);
			protect(small_at, PAGE, libc::PROT_NONE);
		}
		2 => protect(at.wrapping_add(half), 2 * PAGE, libc::PROT_READ),
		3 => map_over(at, half, BOTH, ANONYMOUS, -1),
		4 => advise(at, half, libc::MADV_DONTNEED),
		5 => {
			// SAFETY: memory of the test's own, which is not used again before it is back.
			let moved = unsafe { libc::mremap(at.cast(), half, 2 * half, libc::MREMAP_MAYMOVE) };
			assert_ne!(moved, libc::MAP_FAILED);
			advise(small_at, 64 << 10, libc::MADV_DONTNEED);
		}
		6 => {
			let file = fs::File::open("/proc/self/exe").unwrap();
			map_over(at, half, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd());
		}
		7 => {
			flashfork_core::seal(flashfork_core::Pages::Auto).outcome.unwrap();
		}
		8 => {
			flashfork_core::unseal(Range::ALL).unwrap();
		}
		_ => return,
	}
	back(value + 1);
}

#[test]
fn the_break_goes_back_up_and_down() {
	in_child!(by_each_way());
	// Nothing in this child uses the break but this test (the Rust allocator does, but frees nothing below it
	// meanwhile).
	let base = move_break(6 << 20);
	set(base, 7, 6 << 20);
	let value = snapshot(&SEALED).unwrap();
	assert_eq!(move_break(0), base.wrapping_add(6 << 20), "{value}");
	assert!(are(base, 7, 6 << 20), "{value}");
	match value {
		0 => {
			let end = move_break(3 << 20) as usize + (3 << 20);
			set(base, 1, end - base as usize);
		}
		1 => drop(move_break(-(5 << 20))),
		2 => {
			move_break(-(5 << 20));
			move_break(9 << 20);
		}
		_ => return,
	}
	back(value + 1);
}

#[test]
fn registers_and_signal_mask_go_back() {
	in_child!(by_each_way());
	let masked = || {
		// SAFETY: plain calls on locals.
		unsafe {
			let mut set = std::mem::zeroed();
			libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
			libc::sigismember(&raw const set, libc::SIGUSR2)
		}
	};
	// SAFETY: the rounding mode is put back by the restore.
	let rounding = |to: Option<i32>| unsafe {
		unsafe extern "C" {
			fn fesetround(mode: i32) -> i32;
			fn fegetround() -> i32;
		}
		if let Some(mode) = to {
			assert_eq!(fesetround(mode), 0);
		}
		fegetround()
	};
	let value = snapshot(&SEALED).unwrap();
	assert_eq!((masked(), rounding(None)), (0, 0), "{value}");
	if value < 3 {
		// SAFETY: plain calls on locals.
		unsafe {
			let mut set = std::mem::zeroed();
			libc::sigaddset(&raw mut set, libc::SIGUSR2);
			libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
		}
		rounding(Some(0x800));
		back(value + 1);
	}
}

#[test]
fn named_offsets_go_back_and_new_descriptors_are_closed_on_request() {
	in_child!(by_each_way());
	use std::{
		io::{Read, Seek},
		os::fd::IntoRawFd,
	};
	let mut file = fs::File::open("/proc/self/exe").unwrap();
	file.seek(std::io::SeekFrom::Start(100)).unwrap();
	let descriptors = [file.as_raw_fd()];
	let options = Options { descriptors: &descriptors, close_new: true, ..SEALED };
	let value = snapshot(&options).unwrap();
	assert_eq!(file.stream_position().unwrap(), 100);
	let new = fs::File::open("/proc/self/exe").unwrap().into_raw_fd();
	if value == 0 {
		file.read_exact(&mut [0; 50]).unwrap();
		back(u64::from(new.unsigned_abs()));
	}
	assert_eq!(value, u64::from(new.unsigned_abs()), "the number is free again");
	drop(file);
	assert_eq!(restore(1), Error::Descriptor(descriptors[0]));
}

#[test]
fn kept_bytes_stay() {
	in_child!(by_each_way());
	let turns = counter();
	let memory = patterned(64 << 10, 1);
	let at = memory.as_ptr() as usize;
	let keep = [Range::new(at + 24, at + 32), Range::new(at + 4096, at + 12288)];
	let value = snapshot(&Options { keep: &keep, ..SEALED }).unwrap();
	let expected = if value == 0 { memory[3] } else { turns.load(SeqCst) };
	assert_eq!((memory[3], memory[2] == 1, memory[4] == 1), (expected, false, false));
	if value > 0 {
		assert!(memory[512..1536].iter().all(|w| *w == 1) && memory[1536] != 1);
	}
	if value < 5 {
		memory.fill(1);
		memory[3] = value + 9;
		turns.store(value + 9, SeqCst);
		back(value + 1);
	}
}

#[test]
fn misuse_is_refused_and_changes_nothing() {
	in_child!(by_each_way());
	assert_eq!(restore(1), Error::None);
	let turns = counter();
	let memory = patterned(4 << 20, 1);
	let value = snapshot(&SEALED).unwrap();
	assert!(intact(memory, 1));
	if value == 1 {
		assert_eq!(turns.load(SeqCst), 2, "after the refusals a restore works");
		return;
	}
	memory[0] = 1;
	let blocked = std::sync::mpsc::channel::<()>();
	let other = std::thread::spawn(move || (restore(1), blocked.1.recv().is_err()).0);
	assert_eq!(restore(1), Error::Refused(Reason::Threads));
	drop(blocked.0);
	assert_eq!(other.join().unwrap(), Error::Thread);
	in_children(|| {
		assert_eq!(restore(1), Error::Clone);
		let turns = counter();
		// A clone may take one of its own.
		let value = snapshot(&SEALED).unwrap();
		assert_eq!(turns.load(SeqCst), value);
		if value == 0 {
			turns.store(1, SeqCst);
			back(1);
		}
	});
	assert_eq!(memory[0], 1);
	turns.store(2, SeqCst);
	back(1);
}

#[test]
fn sealed_memory_that_can_not_be_read_comes_back_when_it_is_unmapped() {
	in_child!(by_each_way());
	let big = sealed_pattern();
	let (at, half) = (big.as_mut_ptr().cast(), 4 << 20);
	protect(at, half, libc::PROT_NONE);
	let value = snapshot(&SEALED).unwrap();
	assert!(maps_line(at).contains("---p"), "{value}");
	if value < 2 {
		unmap(page(at, 1), half);
		back(value + 1);
	}
	protect(at, half, libc::PROT_READ);
	assert!(intact(big, 1));
}

#[test]
fn what_can_not_come_back_is_refused() {
	in_children(|| {
		let file = fs::File::open("/proc/self/exe").unwrap();
		let at = map(2 * PAGE, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd());
		assert_eq!(snapshot(&SEALED).unwrap(), 0);
		unmap(at, PAGE);
		assert_eq!(restore(1), Error::Changed(page_at(at)));
	});
	in_child!(by_each_way());
	let memory = patterned(4 << 20, 1);
	assert_eq!(snapshot(&SEALED).unwrap(), 0);
	unmap(memory.as_ptr(), 4 << 20);
	// SAFETY: descriptors that nobody uses in this child.
	unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
	assert_eq!(restore(1), Error::MemfdClosed);
}

#[test]
fn another_snapshot_takes_the_place_of_the_first() {
	in_child!(by_each_way());
	let turns = counter();
	let memory = patterned(4 << 20, 1);
	assert_eq!(snapshot(&SEALED).unwrap(), 0);
	memory[0] = 1;
	let value = snapshot(&SEALED).unwrap();
	assert_eq!((memory[0], value), (1, turns.load(SeqCst)));
	memory[0] = 2;
	if value < 3 {
		turns.store(value + 1, SeqCst);
		back(value + 1);
	}
	let fds = fs::read_dir("/proc/self/fd").unwrap().count();
	let own = if copies_back() { 6 } else { 1 };
	discard().unwrap();
	assert_eq!(fs::read_dir("/proc/self/fd").unwrap().count(), fds - own);
}

#[test]
fn a_page_of_which_a_part_is_kept_goes_back_around_it() {
	in_child!(by_each_way());
	const LEN: usize = 128 << 10;
	// SAFETY: a fresh mapping of which no page is there yet, never unmapped.
	let memory = unsafe { std::slice::from_raw_parts_mut(anonymous(LEN), LEN) };
	let at = memory.as_ptr() as usize;
	// As a coverage map of 70,000 bytes in .bss; and two ranges in one page.
	let keep = [100..70_100, 80_000..80_001, 80_100..80_200].map(|part| Range::new(at + part.start, at + part.end));
	let kept = |i: usize| keep.iter().any(|keep| (keep.start..keep.end).contains(&(at + i)));
	let value = snapshot(&Options { keep: &keep, ..SEALED }).unwrap();
	for (i, byte) in memory.iter().enumerate() {
		let expected = if kept(i) { value as u8 } else { 0 };
		assert_eq!(*byte, expected, "turn {value}, byte {i}");
	}
	if value < 4 {
		memory.fill(value as u8 + 1);
		if value == 2 {
			// The kernel counts it as another mapping, which is replaced.
			let file = file(c"other", 0);
			// SAFETY: the memory is that long.
			assert_eq!(unsafe { libc::write(file, memory.as_ptr().cast(), LEN) }, LEN as isize);
			map_over(memory.as_mut_ptr(), LEN, BOTH, libc::MAP_PRIVATE, file);
		}
		back(value + 1);
	}
}

#[test]
fn a_senseless_range_to_keep_is_refused() {
	in_child!(by_each_way());
	let memory = patterned(4 << 20, 1);
	let at = memory.as_ptr() as usize;
	let stack = &raw const memory as usize;
	for (start, end) in
		[(at + 9, at + 8), (at, usize::MAX), (at, usize::MAX - 4095), (usize::MAX, 1), (stack - 4096, stack + 64)]
	{
		let keep = [Range::new(start, end)];
		assert_eq!(snapshot(&Options { keep: &keep, ..SEALED }), Err(Error::Keep(keep[0])));
	}
	assert_eq!(restore(1), Error::None);
	assert!(intact(memory, 1));
}

/// Three mappings, of which the first can be sealed, with their patterns 1, 2 and 3; and where they are.
fn three() -> ([&'static mut [u64]; 3], [*mut u64; 3]) {
	let mut all = [(8 << 20, 1), (64 << 10, 2), (64 << 10, 3)].map(|(len, seed)| patterned(len, seed));
	let places = all.each_mut().map(|words| words.as_mut_ptr());
	(all, places)
}

fn have(places: [*mut u64; 3], flag: &str) -> [bool; 3] {
	places.map(|at| flags_of(at).contains(&format!(" {flag} ")))
}

#[test]
fn advice_about_forks_and_dumps_goes_back() {
	in_child!(by_each_way());
	let ([big, small, _], places) = three();
	let advise = |at: *mut u64, all: &[i32]| all.iter().for_each(|advice| advise(at, 2 * PAGE, *advice));
	use libc::{MADV_DODUMP, MADV_DOFORK, MADV_DONTDUMP, MADV_DONTFORK, MADV_KEEPONFORK, MADV_WIPEONFORK};
	advise(places[2], &[MADV_DONTFORK, MADV_WIPEONFORK, MADV_DONTDUMP]);
	let value = snapshot(&SEALED).unwrap();
	for flag in ["dc", "wf", "dd"] {
		assert_eq!(have(places, flag), [false, false, true], "turn {value}, {flag}");
	}
	in_children(move || assert!(intact(small, 2) && intact(big, 1)));
	if value < 3 {
		advise(places[0], &[MADV_DONTFORK, MADV_DONTDUMP]);
		advise(places[1], &[MADV_DONTFORK, MADV_WIPEONFORK, MADV_DONTDUMP]);
		advise(places[2], &[MADV_DOFORK, MADV_KEEPONFORK, MADV_DODUMP]);
		back(value + 1);
	}
}

#[test]
fn merging_asked_for_later_is_taken_back() {
	in_child!(by_each_way());
	let ([big, small, before], places) = three();
	if advised(places[2], 2 * PAGE, libc::MADV_MERGEABLE) != 0 {
		return; // a kernel that merges nothing
	}
	let value = snapshot(&SEALED).unwrap();
	assert_eq!(have(places, "mg"), [false, false, true], "turn {value}");
	assert!(intact(big, 1) && intact(small, 2) && intact(before, 3));
	if value < 3 {
		let asked = [libc::MADV_MERGEABLE, libc::MADV_MERGEABLE, libc::MADV_UNMERGEABLE];
		places.iter().zip(asked).for_each(|(at, advice)| advise(*at, 2 * PAGE, advice));
		back(value + 1);
	}
}

/// `mlock2(2)` with its flags; what it said.
fn lock(at: *const u64, flags: u32) -> i32 {
	// SAFETY: locking changes no contents.
	unsafe { libc::mlock2(at.cast(), 2 * PAGE, flags) }
}

#[test]
fn locks_set_later_are_taken_away() {
	// Alone, and beside memory locked before.
	for before in [false, true] {
		in_children(|| {
			let ([big, small, locked], places) = three();
			if before {
				assert_eq!(lock(places[2], 0), 0);
			}
			let value = snapshot(&SEALED).unwrap();
			assert_eq!(have(places, "lo"), [false, false, before], "turn {value}");
			assert!(intact(big, 1) && intact(small, 2) && intact(locked, 3));
			if value < 3 {
				assert_eq!(lock(places[0], libc::MLOCK_ONFAULT) + lock(places[1].wrapping_byte_add(PAGE), 0), 0);
				(big[5], small[5], locked[5]) = (0, 0, 0);
				back(value + 1);
			}
			if !before {
				// Nothing mapped from now on is locked either. SAFETY: changes no contents.
				if value == 3 && unsafe { libc::mlockall(libc::MCL_FUTURE) } == 0 {
					back(value + 1);
				}
				assert!(!flags_of(patterned(8192, 1).as_ptr()).contains(" lo "));
			}
		});
	}
}

#[test]
fn a_lock_that_is_gone_is_refused_and_so_are_locks_to_come() {
	in_child!(by_each_way());
	let locked = patterned(64 << 10, 3);
	let at = locked.as_ptr();
	assert_eq!(lock(at, 0), 0);
	assert_eq!(snapshot(&COPIED), Ok(0));
	locked[0] = 1;
	// SAFETY: changes no contents.
	unsafe { assert_eq!(libc::munlock(at.cast(), PAGE), 0) };
	assert_eq!(restore(1), Error::Changed(page_at(at)));
	assert_eq!(lock(at, 0), 0);
	// SAFETY: as above.
	if unsafe { libc::mlockall(libc::MCL_FUTURE) } == 0 {
		assert_eq!(restore(1), Error::Refused(Reason::LocksFuture));
	}
	assert_eq!(locked[0], 1, "nothing has changed");
}

#[test]
fn guards_set_later_are_taken_away() {
	const GUARD_INSTALL: i32 = 102;
	in_child!(by_each_way());
	let big = patterned(8 << 20, 1);
	let small = patterned(64 << 10, 2);
	// Nothing is written to it before the snapshot.
	let fresh = anonymous(64 << 10);
	let value = snapshot(&SEALED).unwrap();
	assert!(intact(big, 1) && intact(small, 2), "turn {value}");
	assert_eq!(read(page(fresh, 2)), 0, "turn {value}");
	if value < 3 {
		write(page(fresh, 1), 1);
		let big = big.as_mut_ptr().cast::<u8>();
		for at in [big, big.wrapping_add(3 << 20), small.as_mut_ptr().cast(), fresh] {
			let set = advised(page(at, 1), 2 * PAGE, GUARD_INSTALL);
			// Of files not before Linux 6.15, of nothing before 6.13.
			assert!([0, libc::EINVAL].contains(&set), "{set}");
		}
		back(value + 1);
	}
}

#[test]
fn a_written_file_mapping_whose_file_was_cut_is_refused() {
	in_child!(by_each_way());
	let memory = patterned(4 << 20, 1);
	let file = file(c"cut", 4 * PAGE);
	let written = page(map(4 * PAGE, BOTH, libc::MAP_PRIVATE, file), 2);
	write(written, 5);
	protect(written, PAGE, libc::PROT_NONE);
	let value = snapshot(&SEALED).unwrap();
	protect(written, PAGE, BOTH);
	assert_eq!(read(written), 5);
	if value == 0 {
		protect(written, PAGE, libc::PROT_NONE);
		memory[0] = 1;
		back(1);
	}
	assert!(intact(memory, 1));
	memory[0] = 1;
	for protection in [BOTH, libc::PROT_NONE] {
		cut(file, PAGE);
		protect(written, PAGE, protection);
		assert_eq!(restore(2), Error::Changed(page_at(written)));
		assert_eq!(memory[0], 1, "a refusal changes nothing");
	}
}

#[test]
fn memory_made_immutable_later_is_refused_before_anything_changes() {
	// SAFETY: seals memory of the test's own.
	let seal = |at: *mut u64, len: usize| unsafe { libc::syscall(462, at, len, 0) };
	type Change = fn(*mut u64);
	let changes: [Change; 4] = [
		// New memory, which a restore would unmap.
		|_| {},
		// Protected otherwise.
		|at| protect(at, 2 * PAGE, libc::PROT_READ),
		// Written and protected as it was.
		|at| {
			protect(at, 2 * PAGE, BOTH);
			write(at.cast(), read(at.cast()) + 1);
			protect(at, 2 * PAGE, libc::PROT_NONE);
		},
		// Another mapping.
		|at| map_over(at, 2 * PAGE, libc::PROT_READ, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1),
	];
	for (i, change) in changes.into_iter().enumerate() {
		in_children(move || {
			let big = patterned(4 << 20, 1);
			let (small, hidden) = (patterned(8192, 2), patterned(8192, 3));
			protect(hidden.as_ptr(), 2 * PAGE, libc::PROT_NONE);
			assert_eq!(snapshot(&SEALED), Ok(0));
			big[0] = 1;
			let at = match i {
				0 => patterned(8192, 4).as_mut_ptr(),
				2 => hidden.as_mut_ptr(),
				_ => small.as_mut_ptr(),
			};
			change(at);
			if seal(at, 8192) != 0 {
				// Not before Linux 6.10.
				return;
			}
			assert_eq!(restore(1), Error::Refused(Reason::Immutable), "case {i}");
			assert_eq!(big[0], 1, "a refusal changes nothing");
		});
	}
}

/// Whether a range is one mapping: growing it beyond all addresses says so, by the error it ends in.
fn is_one_mapping(at: *mut u8, len: usize) -> bool {
	// SAFETY: there is no room for that.
	let grown = unsafe { libc::mremap(at.cast(), len, 0x7fff_ffff_f000, 0) };
	assert_eq!(grown, libc::MAP_FAILED);
	let errno = std::io::Error::last_os_error().raw_os_error();
	assert!([Some(libc::ENOMEM), Some(libc::EFAULT)].contains(&errno), "{errno:?}");
	errno == Some(libc::ENOMEM)
}

const SIXTEEN: usize = 16 * PAGE;

/// A mapping of 16 pages, which the kernel merges with nothing.
fn sixteen_pages(flags: libc::c_int) -> *mut u8 {
	let at = map(SIXTEEN + 2 * PAGE, BOTH, ANONYMOUS | flags, -1);
	unmap(at, PAGE);
	unmap(page(at, 17), PAGE);
	page(at, 1)
}

/// The same, each byte of it 7.
fn filled(flags: libc::c_int) -> *mut u8 {
	let at = sixteen_pages(flags);
	set(at, 7, SIXTEEN);
	at
}

/// Takes part of 16 pages away, in several ways, and goes back: they are one mapping as before, with the same flags.
fn becomes_one_again(at: *mut u8, prot: libc::c_int) {
	assert!(is_one_mapping(at, SIXTEEN));
	let some = [0, 5, 15].map(|number| page(at, number));
	let flags = some.map(|at| flags_of(at));
	let value = snapshot(&SEALED).unwrap();
	assert!(is_one_mapping(at, SIXTEEN), "{value}");
	assert_eq!(some.map(|at| flags_of(at)), flags, "{value}");
	if prot & libc::PROT_READ != 0 {
		assert_eq!(some.map(|at| read(at)), [7; 3], "{value}");
	}
	let unmap = |from, to: usize| unmap(page(at, from), (to - from) * PAGE);
	let advise = |from, advice| advise(page(at, from), 2 * PAGE, advice);
	match value {
		0 => unmap(4, 7),
		1 => unmap(0, 3),
		2 => unmap(9, 16),
		3 => unmap(0, 16),
		4 => advise(5, libc::MADV_NOHUGEPAGE),
		5 => {
			advise(0, libc::MADV_RANDOM);
			advise(8, libc::MADV_SEQUENTIAL);
		}
		6 => {
			protect(page(at, 4), 2 * PAGE, BOTH);
			write(page(at, 5), 1);
		}
		7 => {
			advise(4, libc::MADV_DONTFORK);
			advise(7, libc::MADV_WIPEONFORK);
		}
		_ => return,
	}
	back(value + 1);
}

#[test]
fn a_mapping_of_which_a_part_went_is_one_mapping_again() {
	in_children(|| becomes_one_again(filled(0), BOTH));
	in_children(|| becomes_one_again(filled(libc::MAP_NORESERVE), BOTH));
	for (flags, prot) in [(0, libc::PROT_READ), (0, libc::PROT_NONE), (libc::MAP_NORESERVE, libc::PROT_READ)] {
		// Charged, and no longer writable.
		in_children(|| {
			let at = filled(flags);
			protect(at, SIXTEEN, prot);
			becomes_one_again(at, prot);
		});
	}
	// Never written, and so not charged.
	in_children(|| {
		let at = sixteen_pages(0);
		protect(at, SIXTEEN, libc::PROT_NONE);
		becomes_one_again(at, libc::PROT_NONE);
	});
	for advice in [libc::MADV_DONTFORK, libc::MADV_WIPEONFORK, libc::MADV_DONTDUMP, libc::MADV_RANDOM] {
		in_children(|| {
			let at = filled(0);
			advise(at, SIXTEEN, advice);
			becomes_one_again(at, BOTH);
		});
	}
}

/// The kernel merges nothing with memory that was moved, or inherited.
#[test]
fn so_is_one_that_was_moved_or_inherited() {
	in_children(|| {
		let (from, to) = (filled(0), sixteen_pages(0));
		move_over(from, SIXTEEN, to);
		becomes_one_again(to, BOTH);
	});
	in_child!(by_each_way());
	let at = filled(0);
	in_children(|| becomes_one_again(at, BOTH));
}

#[test]
fn memory_sealed_before_comes_back_though_the_snapshot_seals_nothing() {
	in_child!(by_each_way());
	let big = sealed_pattern();
	let at = big.as_mut_ptr();
	let value = snapshot(&COPIED).unwrap();
	assert!(!maps_line(at).contains("flashfork") && intact(big, 1), "{value}");
	if value < 2 {
		let len = [4 << 20, (8 << 20) - 4096][value as usize];
		unmap(at.wrapping_byte_add(PAGE), len);
		back(value + 1);
	}
}

#[test]
fn a_sealed_page_of_which_a_part_is_kept_comes_back_when_it_is_unmapped() {
	in_child!(by_each_way());
	let big = sealed_pattern();
	let at = big.as_mut_ptr();
	let keep = [Range::new(at as usize + (1 << 20) + 24, at as usize + (1 << 20) + 32)];
	let value = snapshot(&Options { keep: &keep, ..SEALED }).unwrap();
	assert!(maps_line(at).contains("flashfork"), "{value}");
	if value == 0 {
		// Comes back, but for what was kept.
		unmap(at, 4 << 20);
		back(1);
	}
	let kept = (1 << 17) + 3;
	assert!(big.iter().enumerate().all(|(i, word)| i == kept || *word == common::pattern(i, 1)));
}

/// Where the kernel gives huge pages unasked, its table fills whole blocks.
#[test]
fn a_seal_leaves_the_memory_of_the_snapshot_alone() {
	in_child!(by_each_way());
	let big = patterned(8 << 20, 1);
	let is_one = |all: &[Mapping], line: &str| all.iter().any(|mapping| mapping.line == line);
	let before = mappings();
	assert_eq!(snapshot(&SEALED), Ok(0));
	// The largest of the mappings that have come.
	let come = mappings().into_iter().filter(|new| !is_one(&before, &new.line) && !new.name.contains("memfd"));
	let Mapping { range, line: table, .. } =
		come.max_by_key(|new| new.range.len()).expect("the snapshot has memory of its own");
	assert!(range.len() > 4 << 20, "{table}");
	flashfork_core::seal(flashfork_core::Pages::Auto).outcome.unwrap();
	assert!(is_one(&mappings(), &table), "{table}");
	assert!(intact(big, 1));
}
