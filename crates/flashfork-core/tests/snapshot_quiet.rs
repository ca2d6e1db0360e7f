//! Rounds that make next to no calls, as a fuzzer's do: only what was written is looked for then, and each of these
//! does what might hide a page from that.

#[macro_use]
#[path = "common/child.rs"]
mod child;
#[path = "common/memory.rs"]
mod memory;
#[path = "common/other.rs"]
mod other;
use child::{Child, in_child, wait};
use flashfork_core::snapshot::{Options, Way, calls_tell_of_mappings, go_back_by, restore, snapshot};
use memory::{anonymous, map};
use other::Other;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const PAGE: usize = 4096;
const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Rounds before what a test is about, so that what is written each time is known.
const QUIET: u64 = 8;

fn pages(count: usize) -> *mut u8 {
    anonymous(count * PAGE)
}

/// A file of some pages without a name.
fn file(pages: usize) -> i32 {
    // SAFETY: plain calls.
    unsafe {
        let file = libc::memfd_create(c"quiet".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, (pages * PAGE) as i64), 0);
        file
    }
}

/// Fills memory with what its address says.
fn fill(at: *mut u8, pages: usize) {
    for page in 0..pages {
        // SAFETY: the caller's memory, of so many pages.
        unsafe { at.add(page * PAGE).write_bytes(page as u8 + 1, PAGE) };
    }
}

/// The pages that are not as they were filled. Reads all of them.
fn changed(at: *mut u8, pages: usize) -> Vec<usize> {
    let is_other = |page: &usize| {
        // SAFETY: the caller's memory, of so many pages.
        let page_at = unsafe { std::slice::from_raw_parts(at.add(page * PAGE), PAGE) };
        page_at.iter().any(|byte| *byte != *page as u8 + 1)
    };
    (0..pages).filter(is_other).collect()
}

/// Takes a snapshot and goes back to it, after quiet rounds and then one for each of `special`. In all of them `hot` is
/// written to; at the beginning of each `check` is called with the round.
fn rounds(hot: *mut u8, special: &[&dyn Fn()], check: &dyn Fn(u64)) {
    rounds_after(QUIET, hot, special, check);
}

/// The same after so many quiet rounds.
fn rounds_after(quiet: u64, hot: *mut u8, special: &[&dyn Fn()], check: &dyn Fn(u64)) {
    let turn: &AtomicU64 = {
        let at = map(PAGE, BOTH, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1);
        // SAFETY: mapped for good, of zeros, which are valid.
        unsafe { &*at.cast() }
    };
    go_back_by(Some(Way::Copy));
    let value = snapshot(&Options { seal: true, close_new: true, ..Options::default() }).expect("a snapshot");
    assert_eq!(value, turn.load(SeqCst));
    assert!(calls_tell_of_mappings(), "by a call that is not seen nothing of this is tried");
    check(value);
    // SAFETY: the caller's memory.
    unsafe { hot.write_volatile(99) };
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
    rounds(memory, special, &|round| assert_eq!(changed(memory, count), [0; 0], "round {round}"));
}

const NOTHING: &dyn Fn() = &|| {};

#[test]
fn what_is_freed_for_later_goes_back_when_that_comes() {
    in_child!();
    // More than the kernel puts off for a processor, or it would not free any yet.
    const FREED: usize = 64;
    let (memory, other) = (pages(2 * FREED), Other::beside_this());
    // SAFETY: the test's own memory.
    let free = || assert_eq!(unsafe { libc::madvise(memory.cast(), FREED * PAGE, libc::MADV_FREE) }, 0);
    // SAFETY: inside.
    let page_out = || (0..FREED).for_each(|page| other.page_out(unsafe { memory.add(page * PAGE) }));
    filled(memory, 2 * FREED, &[&free, NOTHING, &page_out, NOTHING]);
}

#[test]
fn what_was_unmapped_is_there_again() {
    in_child!();
    let memory = pages(16);
    // SAFETY: inside, and the test's own.
    let unmap = || assert_eq!(unsafe { libc::munmap(memory.add(9 * PAGE).cast(), PAGE) }, 0);
    filled(memory, 16, &[&unmap, NOTHING]);
}

#[test]
fn what_was_given_up_and_not_touched_since_goes_back() {
    in_child!();
    let memory = pages(16);
    // SAFETY: inside, and the test's own.
    let discard = || unsafe {
        assert_eq!(libc::madvise(memory.add(7 * PAGE).cast(), PAGE, libc::MADV_DONTNEED), 0);
    };
    filled(memory, 16, &[&discard, NOTHING]);
}

#[test]
fn pages_that_went_with_the_end_of_their_file_go_back() {
    for (cut, hot) in [(3, 3), (3, 0), (0, 0)] {
        in_child(|| {
            let file = file(4);
            let memory = map(4 * PAGE, BOTH, libc::MAP_PRIVATE, file);
            // SAFETY: a descriptor of the test's own.
            let truncate = || unsafe {
                assert_eq!(libc::ftruncate(file, (cut * PAGE) as i64), 0);
                assert_eq!(libc::ftruncate(file, (4 * PAGE) as i64), 0);
            };
            fill(memory, 4);
            // SAFETY: inside.
            let hot = unsafe { memory.add(hot * PAGE) };
            rounds(hot, &[&truncate, NOTHING], &|round| assert_eq!(changed(memory, 4), [0; 0], "round {round}"));
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
    // SAFETY: a descriptor and memory of the test's own.
    let swap = || unsafe {
        assert_eq!(libc::ftruncate(file, 3 * PAGE as i64), 0);
        assert_eq!(libc::ftruncate(file, 4 * PAGE as i64), 0);
        memory.write_volatile(99);
    };
    // SAFETY: inside.
    let hot = unsafe { memory.add(3 * PAGE) };
    // By the next round it is known which pages are written again and again.
    rounds(hot, &[NOTHING, &swap, NOTHING], &|round| assert_eq!(changed(memory, 4), [0; 0], "round {round}"));
}

#[test]
fn a_break_that_was_lower_for_a_moment_takes_nothing() {
    for pages in [16, 4] {
        in_child(|| {
            let memory = end_of_heap(16);
            let lower = || lower_break(pages);
            filled(memory, 16, &[&lower, NOTHING, &lower, NOTHING]);
        });
    }
}

/// The protection of a page, as maps has it; empty where nothing is mapped.
fn protection(at: *mut u8) -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let holds = |line: &&str| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let parse = |s| usize::from_str_radix(s, 16).unwrap();
        (parse(start)..parse(end)).contains(&(at as usize))
    };
    maps.lines().find(holds).map(|line| line.split(' ').nth(1).unwrap().to_owned()).unwrap_or_default()
}

/// Pages at the end of the heap, which nobody else moves from now on.
fn end_of_heap(count: usize) -> *mut u8 {
    // SAFETY: sets a number; and the memory that comes with the break is the test's own.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
        drop(std::hint::black_box(vec![1u8; 100_000]));
        let now = libc::sbrk(0) as usize;
        libc::sbrk((now.next_multiple_of(PAGE) - now) as isize);
        libc::sbrk((count * PAGE) as isize).cast::<u8>()
    }
}

/// Lowers the break and raises it again.
fn lower_break(pages: usize) {
    // SAFETY: of what is given up nothing is needed, but what a restore brings back.
    unsafe {
        libc::sbrk(-((pages * PAGE) as isize));
        libc::sbrk((pages * PAGE) as isize);
    }
}

#[test]
fn what_the_end_of_the_heap_was_protected_for_it_is_again() {
    in_child!();
    let memory = end_of_heap(16);
    fill(memory, 15);
    // SAFETY: inside.
    let last = unsafe { memory.add(15 * PAGE) };
    // SAFETY: memory of the test's own.
    assert_eq!(unsafe { libc::mprotect(last.cast(), PAGE, libc::PROT_READ) }, 0);
    rounds(memory, &[&|| lower_break(1), NOTHING], &|round| {
        assert_eq!(changed(memory, 15), [0; 0], "round {round}");
        assert_eq!(protection(last), "r--p", "round {round}");
    });
}

#[test]
fn a_break_that_was_lower_takes_nothing_before_a_hole() {
    in_child!();
    let memory = end_of_heap(16);
    fill(memory, 16);
    // SAFETY: inside, and the test's own.
    let make_hole = || assert_eq!(unsafe { libc::munmap(memory.add(15 * PAGE).cast(), PAGE) }, 0);
    make_hole();
    let lower = || {
        lower_break(2);
        make_hole();
    };
    rounds(memory, &[&lower, NOTHING], &|round| assert_eq!(changed(memory, 15), [0; 0], "round {round}"));
}

#[test]
fn what_was_unmapped_while_the_stack_grew_around_a_hole_is_there_again() {
    in_child!();
    let memory = pages(16);
    let swap = || {
        let start = start_of_stack();
        // SAFETY: pages of the test's own; the stack grows by three pages below it, which are dead memory.
        unsafe {
            ((start - 3 * PAGE) as *mut u8).write_volatile(1);
            assert_eq!(libc::munmap((start - PAGE) as *mut libc::c_void, PAGE), 0);
            assert_eq!(libc::munmap(memory.add(9 * PAGE).cast(), 2 * PAGE), 0);
        }
    };
    fill(memory, 16);
    rounds(memory, &[&swap, NOTHING], &|round| {
        // SAFETY: inside.
        assert_eq!(protection(unsafe { memory.add(9 * PAGE) }), "rw-p", "round {round}");
        assert_eq!(changed(memory, 16), [0; 0], "round {round}");
    });
}

fn start_of_stack() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
    usize::from_str_radix(stack.split_once('-').unwrap().0, 16).unwrap()
}

#[test]
fn what_was_freed_for_later_before_the_snapshot_goes_back_when_that_comes() {
    in_child!();
    const FREED: usize = 64;
    let (memory, hot, other) = (pages(2 * FREED), pages(1), Other::beside_this());
    fill(memory, 2 * FREED);
    // SAFETY: the test's own memory.
    assert_eq!(unsafe { libc::madvise(memory.cast(), FREED * PAGE, libc::MADV_FREE) }, 0);
    // SAFETY: inside.
    let page_out = || (0..FREED).for_each(|page| other.page_out(unsafe { memory.add(page * PAGE) }));
    let check = |round| assert_eq!(changed(memory, 2 * FREED), [0; 0], "round {round}");
    rounds(hot, &[&page_out, NOTHING], &check);
}

#[test]
fn a_page_written_for_the_first_time_that_goes_with_its_file_goes_back() {
    in_child!();
    let file = file(4);
    let (memory, hot) = (map(4 * PAGE, BOTH, libc::MAP_PRIVATE, file), pages(1));
    fill(memory, 4);
    // SAFETY: a descriptor and memory of the test's own.
    let cut = || unsafe {
        memory.add(3 * PAGE).write_volatile(99);
        assert_eq!(libc::ftruncate(file, 3 * PAGE as i64), 0);
        assert_eq!(libc::ftruncate(file, 4 * PAGE as i64), 0);
    };
    // SAFETY: as above.
    let cut_and_read = || unsafe {
        cut();
        memory.add(3 * PAGE).read_volatile();
    };
    let every: [&dyn Fn(); 8] = [&cut, &cut, &cut, NOTHING, &cut_and_read, &cut_and_read, NOTHING, NOTHING];
    rounds(hot, &every, &|round| assert_eq!(changed(memory, 4), [0; 0], "round {round}"));
}

/// It knows nothing of the watch, and ends all there are: its parent's is none of its business.
#[test]
fn a_child_of_a_call_that_nobody_sees_ends_no_watch_of_its_parent_s() {
    for hole in [false, true] {
        in_child(|| {
            let memory = end_of_heap(16);
            fill(memory, 15);
            if hole {
                // SAFETY: the test's own.
                assert_eq!(unsafe { libc::munmap(memory.add(15 * PAGE).cast(), PAGE) }, 0);
            }
            // SAFETY: the child takes a snapshot and ends.
            let act = || unsafe {
                let child = libc::syscall(libc::SYS_fork) as i32;
                if child == 0 {
                    libc::_exit(snapshot(&Options::default()).is_err().into());
                }
                assert_eq!(wait(child), 0);
                memory.add(PAGE).write_volatile(33);
            };
            // SAFETY: inside.
            let write = || unsafe { memory.add(2 * PAGE).write_volatile(33) };
            let check = |round| assert_eq!(changed(memory, 15), [0; 0], "round {round}");
            rounds(memory, &[&act, &write, &write, NOTHING], &check);
        });
    }
}

/// Code that can be written later hides what it does.
#[test]
fn code_that_is_written_while_the_program_runs_tells_of_no_mappings() {
    const CODE: i32 = libc::PROT_READ | libc::PROT_EXEC;
    let makers: [&dyn Fn() -> *mut u8; 4] = [
        &|| map(PAGE, libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        &|| map(PAGE, CODE | BOTH, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
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
    let swap = || {
        let start = start_of_stack();
        // SAFETY: a page of the test's own; the stack grows by the page below it, which is dead memory.
        unsafe {
            assert_eq!(libc::munmap(memory.add(9 * PAGE).cast(), PAGE), 0);
            ((start - 1) as *mut u8).write_volatile(1);
        }
    };
    filled(memory, 16, &[&swap, NOTHING]);
}

#[test]
fn what_others_write_goes_back() {
    in_child!();
    let (memory, other) = (pages(16), Other::beside_this());
    // SAFETY: inside.
    let write = || other.write(unsafe { memory.add(3 * PAGE + 77) });
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
    rounds(hot, &[&poke, NOTHING], &|round| assert_eq!(changed(code, 4), [0; 0], "round {round}"));
}

#[test]
fn descriptors_of_the_engine_s_may_be_replaced() {
    for wanted in ["pagemap", "statm", "fd", "[userfaultfd]"] {
        in_child(|| {
            let memory = pages(16);
            let replace = || {
                for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
                    let Ok(leads_to) = fs::read_link(entry.path()) else { continue };
                    let number: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
                    if leads_to.to_str().unwrap().ends_with(wanted) && number > 100 {
                        // SAFETY: the engine takes that into account.
                        assert_eq!(unsafe { libc::dup2(0, number) }, number);
                    }
                }
            };
            filled(memory, 16, &[&replace, NOTHING, NOTHING, &replace, NOTHING]);
        });
    }
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
    // SAFETY: as above.
    let open = || assert!(unsafe { libc::fcntl(1, libc::F_DUPFD, 100) } >= 100);
    let twice = || {
        open();
        open();
    };
    let check = |round| {
        // SAFETY: asks, no more.
        let open = (100..200).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0).count();
        assert_eq!(open, 0, "round {round}");
    };
    rounds_after(0, memory, &[&close, NOTHING, NOTHING, &open, &open, &twice, &open], &check);
}

/// By its file it is the same one.
#[test]
fn a_page_map_that_can_not_be_read_any_more_is_opened_again() {
    in_child!();
    let memory = pages(16);
    let replace = || {
        for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
            let Ok(leads_to) = fs::read_link(entry.path()) else { continue };
            let number: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
            if leads_to.to_str().unwrap().ends_with("pagemap") && number > 100 {
                // SAFETY: the engine takes that into account.
                unsafe {
                    let path = libc::open(c"/proc/self/pagemap".as_ptr(), libc::O_PATH);
                    assert_eq!(libc::dup2(path, number), number);
                    libc::close(path);
                }
            }
        }
    };
    filled(memory, 16, &[&replace, NOTHING, NOTHING]);
}

#[test]
fn descriptors_that_were_opened_are_closed_though_one_was_closed() {
    in_child!();
    let memory = pages(1);
    // SAFETY: descriptors of the test's own.
    let old = unsafe { libc::dup(1) };
    // SAFETY: as above.
    let new = || unsafe {
        libc::close(old);
        assert!(libc::fcntl(1, libc::F_DUPFD, 100) >= 100);
    };
    rounds(memory, &[&new, NOTHING], &|round| {
        // SAFETY: asks, no more.
        let open = (100..200).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0).count();
        assert_eq!(open, 0, "round {round}");
    });
}
