//! Snapshots: everything that goes back does, as often as wanted; misuse is refused and changes nothing.

#[macro_use]
mod common;
use common::{anonymous, back, by_each_way, counter, in_children, intact, maps_line, patterned};
use flashfork_core::snapshot::{Error, Options, copies_back, discard, restore, snapshot};
use flashfork_core::{Range, never_seal::Reason};
use std::cell::Cell;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const SEALED: Options = Options { seal: true, keep: &[], descriptors: &[], close_new: false };
const COPIED: Options = Options { seal: false, ..SEALED };

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
    let (big_at, small_at) = (big.as_mut_ptr(), small.as_mut_ptr());
    let lines = || fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let value = snapshot(&SEALED).unwrap();
    assert!(intact(big, 1) && intact(small, 2), "{value}");
    assert!(maps_line(big_at).contains("rw-p") && maps_line(small_at).contains("rw-p"));
    if value == 1 {
        turns.store(lines() as u64, SeqCst);
    } else if value > 1 {
        // The engine's own go when the program's calls need not be seen any more.
        assert!(lines() as u64 <= turns.load(SeqCst), "{value}: no mapping is left over");
    }
    // SAFETY: memory of the test's own, which is not used again before it is back.
    unsafe {
        let (at, half) = (big_at.cast::<libc::c_void>(), 4 << 20);
        match value {
            0 => assert_eq!(libc::munmap(at, 8 << 20) + libc::munmap(small_at.cast(), 64 << 10), 0),
            1 => assert_eq!(libc::munmap(at.byte_add(4096), half) + libc::mprotect(small_at.cast(), 4096, 0), 0),
            2 => assert_eq!(libc::mprotect(at.byte_add(half), 8192, libc::PROT_READ), 0),
            3 => {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                assert_eq!(libc::mmap(at, half, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0), at);
            }
            4 => assert_eq!(libc::madvise(at, half, libc::MADV_DONTNEED), 0),
            5 => {
                let moved = libc::mremap(at, half, 2 * half, libc::MREMAP_MAYMOVE);
                assert_ne!(moved, libc::MAP_FAILED);
                assert_eq!(libc::madvise(small_at.cast(), 64 << 10, libc::MADV_DONTNEED), 0);
            }
            6 => {
                let file = fs::File::open("/proc/self/exe").unwrap();
                let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
                let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                assert_eq!(libc::mmap(at, half, libc::PROT_READ, flags, fd, 0), at);
            }
            7 => {
                flashfork_core::seal(flashfork_core::Pages::Auto).outcome.unwrap();
            }
            8 => {
                flashfork_core::unseal(Range::ALL).unwrap();
            }
            _ => return,
        }
    }
    back(value + 1);
}

#[test]
fn the_break_goes_back_up_and_down() {
    in_child!(by_each_way());
    // SAFETY: nothing in this child uses the break but this test (the Rust allocator does, but frees nothing below
    // it meanwhile).
    unsafe {
        let base = libc::sbrk(6 << 20);
        base.cast::<u8>().write_bytes(7, 6 << 20);
        let value = snapshot(&SEALED).unwrap();
        assert_eq!(libc::sbrk(0), base.byte_add(6 << 20), "{value}");
        assert!(std::slice::from_raw_parts(base.cast::<u8>(), 6 << 20).iter().all(|b| *b == 7), "{value}");
        match value {
            0 => base.byte_add(0).cast::<u8>().write_bytes(1, libc::sbrk(3 << 20) as usize - base as usize + (3 << 20)),
            1 => assert_ne!(libc::sbrk(-(5 << 20)), usize::MAX as *mut _),
            2 => {
                libc::sbrk(-(5 << 20));
                libc::sbrk(9 << 20);
            }
            _ => return,
        }
        back(value + 1);
    }
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
    use std::io::{Read, Seek};
    use std::os::fd::{AsRawFd, IntoRawFd};
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
    let big = patterned(8 << 20, 1);
    flashfork_core::seal(flashfork_core::Pages::Auto).outcome.unwrap();
    let (at, half) = (big.as_mut_ptr().cast::<libc::c_void>(), 4 << 20);
    assert!(maps_line(big.as_ptr()).contains("flashfork"));
    // SAFETY: memory of the test's own, which is not used before it can be read again.
    unsafe { assert_eq!(libc::mprotect(at, half, libc::PROT_NONE), 0) };
    let value = snapshot(&SEALED).unwrap();
    assert!(maps_line(big.as_ptr()).contains("---p"), "{value}");
    // SAFETY: as above; what is unmapped comes back.
    unsafe {
        if value < 2 {
            assert_eq!(libc::munmap(at.byte_add(4096), half), 0);
            back(value + 1);
        }
        assert_eq!(libc::mprotect(at, half, libc::PROT_READ), 0);
    }
    assert!(intact(big, 1));
}

#[test]
fn what_can_not_come_back_is_refused() {
    in_children(|| {
        // SAFETY: mappings of the test's own.
        unsafe {
            let file = fs::File::open("/proc/self/exe").unwrap();
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            let at = libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0);
            assert_eq!(snapshot(&SEALED).unwrap(), 0);
            libc::munmap(at, 4096);
            assert_eq!(restore(1), Error::Changed(Range::new(at as usize, at as usize + 4096)));
        }
    });
    in_child!(by_each_way());
    let memory = patterned(4 << 20, 1);
    assert_eq!(snapshot(&SEALED).unwrap(), 0);
    // SAFETY: memory of the test's own; and descriptors that nobody uses in this child.
    unsafe {
        libc::munmap(memory.as_mut_ptr().cast(), 4 << 20);
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
    }
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
            // SAFETY: memory of the test's own, whose bytes are the same afterwards.
            unsafe {
                let file = libc::memfd_create(c"other".as_ptr(), 0);
                assert_eq!(libc::write(file, memory.as_ptr().cast(), LEN), LEN as isize);
                let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
                let prot = libc::PROT_READ | libc::PROT_WRITE;
                assert_eq!(libc::mmap(at as *mut _, LEN, prot, flags, file, 0), at as *mut _);
            }
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

/// The flags of the mapping that holds an address, as smaps has them.
fn flags_of(at: usize) -> String {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut here = false;
    for line in smaps.lines() {
        if let Some((start, end)) = line.split(' ').next().and_then(|word| word.split_once('-')) {
            let parse = |s| usize::from_str_radix(s, 16).unwrap();
            here = (parse(start)..parse(end)).contains(&at);
        } else if here && line.starts_with("VmFlags:") {
            // That writes are noted is the engine's.
            return line.replace("uw ", "");
        }
    }
    panic!("nothing is mapped at {at:#x}")
}

#[test]
fn advice_about_forks_and_dumps_goes_back() {
    in_child!(by_each_way());
    let big = patterned(8 << 20, 1);
    let small = patterned(64 << 10, 2);
    let before = patterned(64 << 10, 3);
    let places = [big.as_ptr() as usize, small.as_ptr() as usize, before.as_ptr() as usize];
    let advise = |at: usize, advice: &[i32]| {
        // SAFETY: memory of the test's own; none of the advice touches contents here and now.
        advice.iter().for_each(|a| assert_eq!(unsafe { libc::madvise(at as *mut _, 8192, *a) }, 0));
    };
    use libc::{MADV_DODUMP, MADV_DOFORK, MADV_DONTDUMP, MADV_DONTFORK, MADV_KEEPONFORK, MADV_WIPEONFORK};
    advise(places[2], &[MADV_DONTFORK, MADV_WIPEONFORK, MADV_DONTDUMP]);
    let value = snapshot(&SEALED).unwrap();
    let shown = places.map(|at| ["dc", "wf", "dd"].map(|flag| flags_of(at).contains(&format!(" {flag} "))));
    assert_eq!(shown, [[false; 3], [false; 3], [true; 3]], "turn {value}");
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
    let (big, small, before) = (patterned(8 << 20, 1), patterned(64 << 10, 2), patterned(64 << 10, 3));
    let places = [big.as_ptr() as usize, small.as_ptr() as usize, before.as_ptr() as usize];
    // SAFETY: memory of the test's own; the advice touches no contents.
    let advise = |at: usize, advice: i32| unsafe { libc::madvise(at as *mut _, 8192, advice) };
    if advise(places[2], libc::MADV_MERGEABLE) != 0 {
        return; // a kernel that merges nothing
    }
    let value = snapshot(&SEALED).unwrap();
    let shown = places.map(|at| flags_of(at).contains(" mg "));
    assert_eq!(shown, [false, false, true], "turn {value}");
    assert!(intact(big, 1) && intact(small, 2) && intact(before, 3));
    if value < 3 {
        let asked = [libc::MADV_MERGEABLE, libc::MADV_MERGEABLE, libc::MADV_UNMERGEABLE];
        assert!(places.iter().zip(asked).all(|(at, advice)| advise(*at, advice) == 0));
        back(value + 1);
    }
}

/// `mlock2(2)` with its flags; what it said.
fn lock(at: usize, flags: u32) -> i32 {
    // SAFETY: locking changes no contents.
    unsafe { libc::mlock2(at as *const _, 8192, flags) }
}

#[test]
fn locks_set_later_are_taken_away() {
    // Alone, and beside memory locked before.
    for before in [false, true] {
        in_children(|| {
            let (big, small, locked) = (patterned(8 << 20, 1), patterned(64 << 10, 2), patterned(64 << 10, 3));
            let places = [big.as_ptr() as usize, small.as_ptr() as usize, locked.as_ptr() as usize];
            if before {
                assert_eq!(lock(places[2], 0), 0);
            }
            let value = snapshot(&SEALED).unwrap();
            assert_eq!(places.map(|at| flags_of(at).contains(" lo ")), [false, false, before], "turn {value}");
            assert!(intact(big, 1) && intact(small, 2) && intact(locked, 3));
            if value < 3 {
                assert_eq!(lock(places[0], libc::MLOCK_ONFAULT) + lock(places[1] + 4096, 0), 0);
                (big[5], small[5], locked[5]) = (0, 0, 0);
                back(value + 1);
            }
            if !before {
                // Nothing mapped from now on is locked either. SAFETY: changes no contents.
                if value == 3 && unsafe { libc::mlockall(libc::MCL_FUTURE) } == 0 {
                    back(value + 1);
                }
                assert!(!flags_of(patterned(8192, 1).as_ptr() as usize).contains(" lo "));
            }
        });
    }
}

#[test]
fn a_lock_that_is_gone_is_refused_and_so_are_locks_to_come() {
    in_child!(by_each_way());
    let locked = patterned(64 << 10, 3);
    let at = locked.as_ptr() as usize;
    assert_eq!(lock(at, 0), 0);
    assert_eq!(snapshot(&COPIED), Ok(0));
    locked[0] = 1;
    // SAFETY: changes no contents.
    unsafe { assert_eq!(libc::munlock(at as *const _, 4096), 0) };
    assert_eq!(restore(1), Error::Changed(Range::new(at, at + 4096)));
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
    // SAFETY: memory of the test's own.
    unsafe {
        assert_eq!(fresh.add(8192).read_volatile(), 0, "turn {value}");
        if value < 3 {
            fresh.add(4096).write(1);
            for at in
                [big.as_mut_ptr().cast(), big.as_mut_ptr().byte_add(3 << 20).cast(), small.as_mut_ptr().cast(), fresh]
            {
                let set = libc::madvise(at.add(4096).cast(), 8192, GUARD_INSTALL);
                // Of files not before Linux 6.15, of nothing before 6.13.
                let errno = std::io::Error::last_os_error().raw_os_error();
                assert!(set == 0 || errno == Some(libc::EINVAL), "{errno:?}");
            }
            back(value + 1);
        }
    }
}

#[test]
fn a_written_file_mapping_whose_file_was_cut_is_refused() {
    in_child!(by_each_way());
    let memory = patterned(4 << 20, 1);
    // SAFETY: mappings of the test's own.
    unsafe {
        let file = libc::memfd_create(c"cut".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, 16384), 0);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), 16384, prot, libc::MAP_PRIVATE, file, 0).cast::<u8>();
        let written = at.add(8192);
        written.write(5);
        assert_eq!(libc::mprotect(written.cast(), 4096, libc::PROT_NONE), 0);
        let value = snapshot(&SEALED).unwrap();
        assert_eq!(libc::mprotect(written.cast(), 4096, prot), 0);
        assert_eq!(written.read(), 5);
        if value == 0 {
            assert_eq!(libc::mprotect(written.cast(), 4096, libc::PROT_NONE), 0);
            memory[0] = 1;
            back(1);
        }
        assert!(intact(memory, 1));
        memory[0] = 1;
        for protection in [prot, libc::PROT_NONE] {
            assert_eq!(libc::ftruncate(file, 4096) + libc::mprotect(written.cast(), 4096, protection), 0);
            let gone = Range::new(written as usize, written as usize + 4096);
            assert_eq!(restore(2), Error::Changed(gone));
            assert_eq!(memory[0], 1, "a refusal changes nothing");
        }
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
        // SAFETY: memory of the test's own.
        |at| unsafe { assert_eq!(libc::mprotect(at.cast(), 8192, libc::PROT_READ), 0) },
        // Written and protected as it was.
        // SAFETY: as above.
        |at| unsafe {
            at.write(at.read() + 1);
            assert_eq!(libc::mprotect(at.cast(), 8192, libc::PROT_NONE), 0);
        },
        // Another mapping.
        // SAFETY: as above.
        |at| unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            assert_eq!(libc::mmap(at.cast(), 8192, libc::PROT_READ, flags, -1, 0), at.cast());
        },
    ];
    for (i, change) in changes.into_iter().enumerate() {
        in_children(move || {
            let big = patterned(4 << 20, 1);
            let (small, hidden) = (patterned(8192, 2), patterned(8192, 3));
            // SAFETY: as above.
            unsafe { assert_eq!(libc::mprotect(hidden.as_mut_ptr().cast(), 8192, libc::PROT_NONE), 0) };
            assert_eq!(snapshot(&SEALED), Ok(0));
            big[0] = 1;
            let at = match i {
                0 => patterned(8192, 4).as_mut_ptr(),
                2 => hidden.as_mut_ptr(),
                _ => small.as_mut_ptr(),
            };
            if i == 2 {
                // SAFETY: as above.
                unsafe { assert_eq!(libc::mprotect(at.cast(), 8192, libc::PROT_READ | libc::PROT_WRITE), 0) };
            }
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

/// A mapping of 16 pages, which the kernel merges with nothing.
fn sixteen_pages(flags: libc::c_int) -> *mut u8 {
    // SAFETY: fresh mappings; the first and the last page go.
    unsafe {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags);
        let at = libc::mmap(std::ptr::null_mut(), 18 << 12, prot, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::munmap(at, 4096) + libc::munmap(at.byte_add(17 << 12), 4096), 0);
        at.byte_add(4096).cast()
    }
}

/// Takes part of 16 pages away, in several ways, and goes back: they are one mapping as before, with the same flags.
fn becomes_one_again(at: *mut u8, prot: libc::c_int) {
    // SAFETY: memory of the caller's own, which is not used again before it is back.
    unsafe {
        assert!(is_one_mapping(at, 16 << 12));
        let flags = [0, 5, 15].map(|page| flags_of(at as usize + (page << 12)));
        let value = snapshot(&SEALED).unwrap();
        assert!(is_one_mapping(at, 16 << 12), "{value}");
        assert_eq!([0, 5, 15].map(|page| flags_of(at as usize + (page << 12))), flags, "{value}");
        if prot & libc::PROT_READ != 0 {
            assert_eq!([0, 5, 15].map(|page| *at.add(page << 12)), [7; 3], "{value}");
        }
        let page = |n: usize| at.add(n << 12).cast::<libc::c_void>();
        let unmap = |from, to: usize| libc::munmap(page(from), (to - from) << 12);
        let done = match value {
            0 => unmap(4, 7),
            1 => unmap(0, 3),
            2 => unmap(9, 16),
            3 => unmap(0, 16),
            4 => libc::madvise(page(5), 8192, libc::MADV_NOHUGEPAGE),
            5 => libc::madvise(page(0), 8192, libc::MADV_RANDOM) + libc::madvise(page(8), 8192, libc::MADV_SEQUENTIAL),
            6 => {
                let done = libc::mprotect(page(4), 8192, libc::PROT_READ | libc::PROT_WRITE);
                at.add(5 << 12).write(1);
                done
            }
            7 => {
                libc::madvise(page(4), 8192, libc::MADV_DONTFORK) + libc::madvise(page(7), 8192, libc::MADV_WIPEONFORK)
            }
            _ => return,
        };
        assert_eq!(done, 0, "{value}: {}", std::io::Error::last_os_error());
        back(value + 1);
    }
}

#[test]
fn a_mapping_of_which_a_part_went_is_one_mapping_again() {
    const WRITABLE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
    let filled = |flags| {
        let at = sixteen_pages(flags);
        // SAFETY: the pages just mapped.
        unsafe { at.write_bytes(7, 16 << 12) };
        at
    };
    in_children(|| becomes_one_again(filled(0), WRITABLE));
    in_children(|| becomes_one_again(filled(libc::MAP_NORESERVE), WRITABLE));
    for (flags, prot) in [(0, libc::PROT_READ), (0, libc::PROT_NONE), (libc::MAP_NORESERVE, libc::PROT_READ)] {
        // Charged, and no longer writable.
        in_children(|| {
            let at = filled(flags);
            // SAFETY: memory of the test's own.
            unsafe { assert_eq!(libc::mprotect(at.cast(), 16 << 12, prot), 0) };
            becomes_one_again(at, prot);
        });
    }
    // Never written, and so not charged.
    in_children(|| {
        let at = sixteen_pages(0);
        // SAFETY: memory of the test's own.
        unsafe { assert_eq!(libc::mprotect(at.cast(), 16 << 12, libc::PROT_NONE), 0) };
        becomes_one_again(at, libc::PROT_NONE);
    });
    for advice in [libc::MADV_DONTFORK, libc::MADV_WIPEONFORK, libc::MADV_DONTDUMP, libc::MADV_RANDOM] {
        in_children(|| {
            let at = filled(0);
            // SAFETY: advice for memory of the test's own.
            unsafe { assert_eq!(libc::madvise(at.cast(), 16 << 12, advice), 0) };
            becomes_one_again(at, WRITABLE);
        });
    }
}

/// The kernel merges nothing with memory that was moved, or inherited.
#[test]
fn so_is_one_that_was_moved_or_inherited() {
    const WRITABLE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
    in_children(|| {
        let (from, to) = (sixteen_pages(0), sixteen_pages(0));
        // SAFETY: mappings of the test's own, of which the second gives way.
        unsafe {
            from.write_bytes(7, 16 << 12);
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let moved = libc::mremap(from.cast(), 16 << 12, 16 << 12, flags, to.cast::<libc::c_void>());
            becomes_one_again(moved.cast(), WRITABLE);
        }
    });
    in_child!(by_each_way());
    let at = sixteen_pages(0);
    // SAFETY: the pages just mapped.
    unsafe { at.write_bytes(7, 16 << 12) };
    in_children(|| becomes_one_again(at, WRITABLE));
}

#[test]
fn memory_sealed_before_comes_back_though_the_snapshot_seals_nothing() {
    in_child!(by_each_way());
    let big = patterned(8 << 20, 1);
    flashfork_core::seal(flashfork_core::Pages::Auto).outcome.unwrap();
    let at = big.as_mut_ptr();
    assert!(maps_line(at).contains("flashfork"));
    let value = snapshot(&COPIED).unwrap();
    assert!(!maps_line(at).contains("flashfork") && intact(big, 1), "{value}");
    if value < 2 {
        let len = [4 << 20, (8 << 20) - 4096][value as usize];
        // SAFETY: memory of the test's own; what is unmapped comes back.
        assert_eq!(unsafe { libc::munmap(at.byte_add(4096).cast(), len) }, 0);
        back(value + 1);
    }
}

#[test]
fn a_sealed_page_of_which_a_part_is_kept_comes_back_when_it_is_unmapped() {
    in_child!(by_each_way());
    let big = patterned(8 << 20, 1);
    flashfork_core::seal(flashfork_core::Pages::Auto).outcome.unwrap();
    let at = big.as_mut_ptr();
    let keep = [Range::new(at as usize + (1 << 20) + 24, at as usize + (1 << 20) + 32)];
    let value = snapshot(&Options { keep: &keep, ..SEALED }).unwrap();
    assert!(maps_line(at).contains("flashfork"), "{value}");
    if value == 0 {
        // SAFETY: memory of the test's own; what is unmapped comes back, but for what was kept.
        assert_eq!(unsafe { libc::munmap(at.cast(), 4 << 20) }, 0);
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
    let own = || -> Vec<String> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().map(str::to_string).collect()
    };
    let before = own();
    assert_eq!(snapshot(&SEALED), Ok(0));
    // The largest of the mappings that have come.
    let len = |line: &String| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        usize::from_str_radix(end, 16).unwrap() - usize::from_str_radix(start, 16).unwrap()
    };
    let table = own().into_iter().filter(|line| !before.contains(line) && !line.contains("memfd")).max_by_key(len);
    let table = table.expect("the snapshot has memory of its own");
    assert!(len(&table) > 4 << 20, "{table}");
    flashfork_core::seal(flashfork_core::Pages::Auto).outcome.unwrap();
    assert!(own().contains(&table), "{table}");
    assert!(intact(big, 1));
}
