//! Rounds that make next to no calls, as a fuzzer's do: only what was written is looked for then, and each of these
//! does what might hide a page from that.

#[path = "common/child.rs"]
mod child;
#[path = "common/other.rs"]
mod other;
use child::in_child;
use flashfork_core::snapshot::{Options, Way, calls_tell_of_mappings, go_back_by, restore, snapshot};
use other::Other;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const PAGE: usize = 4096;
const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Rounds before what a test is about, so that what is written each time is known.
const QUIET: u64 = 8;

fn map(len: usize, prot: i32, flags: i32, fd: i32) -> *mut u8 {
    // SAFETY: a fresh mapping, never unmapped but by who asked for it.
    let at = unsafe { libc::mmap(null_mut(), len, prot, flags, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// Anonymous memory of some pages.
fn pages(count: usize) -> *mut u8 {
    map(count * PAGE, BOTH, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
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
    let index = value.checked_sub(QUIET).map(|index| index as usize);
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
    in_child(|| {
        // More than the kernel puts off for a processor, or it would not free any yet.
        const FREED: usize = 64;
        let (memory, other) = (pages(2 * FREED), Other::beside_this());
        // SAFETY: the test's own memory.
        let free = || assert_eq!(unsafe { libc::madvise(memory.cast(), FREED * PAGE, libc::MADV_FREE) }, 0);
        // SAFETY: inside.
        let page_out = || (0..FREED).for_each(|page| other.page_out(unsafe { memory.add(page * PAGE) }));
        filled(memory, 2 * FREED, &[&free, NOTHING, &page_out, NOTHING]);
    });
}

#[test]
fn what_was_unmapped_is_there_again() {
    in_child(|| {
        let memory = pages(16);
        // SAFETY: inside, and the test's own.
        let unmap = || assert_eq!(unsafe { libc::munmap(memory.add(9 * PAGE).cast(), PAGE) }, 0);
        filled(memory, 16, &[&unmap, NOTHING]);
    });
}

#[test]
fn what_was_given_up_and_not_touched_since_goes_back() {
    in_child(|| {
        let memory = pages(16);
        // SAFETY: inside, and the test's own.
        let discard = || unsafe {
            assert_eq!(libc::madvise(memory.add(7 * PAGE).cast(), PAGE, libc::MADV_DONTNEED), 0);
        };
        filled(memory, 16, &[&discard, NOTHING]);
    });
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
    in_child(|| {
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
    });
}

#[test]
fn a_break_that_was_lower_for_a_moment_takes_nothing() {
    for all in [false, true] {
        in_child(|| {
            const PAGES: usize = 16;
            // From now on nobody else moves the break.
            // SAFETY: sets a number; and the memory that comes with the break is the test's own.
            let memory = unsafe {
                libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
                drop(std::hint::black_box(vec![1u8; 100_000]));
                let now = libc::sbrk(0) as usize;
                libc::sbrk((now.next_multiple_of(PAGE) - now) as isize);
                libc::sbrk((PAGES * PAGE) as isize).cast::<u8>()
            };
            let lower = || unsafe {
                // SAFETY: of what is given up nothing is needed, but what the restore brings back.
                let bytes = if all { PAGES } else { 4 } * PAGE;
                libc::sbrk(-(bytes as isize));
                libc::sbrk(bytes as isize);
            };
            filled(memory, PAGES, &[&lower, NOTHING, &lower, NOTHING]);
        });
    }
}

#[test]
fn what_was_unmapped_while_the_stack_grew_is_there_again() {
    in_child(|| {
        let memory = pages(16);
        let swap = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
            let start = usize::from_str_radix(stack.split_once('-').unwrap().0, 16).unwrap();
            // SAFETY: a page of the test's own; the stack grows by the page below it, which is dead memory.
            unsafe {
                assert_eq!(libc::munmap(memory.add(9 * PAGE).cast(), PAGE), 0);
                ((start - 1) as *mut u8).write_volatile(1);
            }
        };
        filled(memory, 16, &[&swap, NOTHING]);
    });
}

#[test]
fn what_others_write_goes_back() {
    in_child(|| {
        let (memory, other) = (pages(16), Other::beside_this());
        // SAFETY: inside.
        let write = || other.write(unsafe { memory.add(3 * PAGE + 77) });
        filled(memory, 16, &[&write, NOTHING, &write, NOTHING]);
    });
}

#[test]
fn what_the_program_writes_to_its_code_by_its_own_means_goes_back() {
    use std::os::unix::fs::FileExt;
    in_child(|| {
        let file = file(4);
        let contents: Vec<u8> = (0..4 * PAGE).map(|i| (i / PAGE) as u8 + 1).collect();
        // SAFETY: the buffer is that long.
        assert_eq!(unsafe { libc::write(file, contents.as_ptr().cast(), 4 * PAGE) }, (4 * PAGE) as isize);
        let code = map(4 * PAGE, libc::PROT_READ, libc::MAP_PRIVATE, file);
        let hot = pages(1);
        let poke = || {
            let own = std::fs::OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
            // Where the kernel forbids that there is nothing to see.
            let _ = own.write_at(&[99], code as u64 + 2 * PAGE as u64);
        };
        rounds(hot, &[&poke, NOTHING], &|round| assert_eq!(changed(code, 4), [0; 0], "round {round}"));
    });
}

#[test]
fn descriptors_of_the_engine_s_may_be_replaced() {
    for wanted in ["pagemap", "statm", "fd", "[userfaultfd]"] {
        in_child(|| {
            let memory = pages(16);
            let replace = || {
                for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
                    let Ok(leads_to) = std::fs::read_link(entry.path()) else { continue };
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

#[test]
fn descriptors_that_were_opened_are_closed_though_one_was_closed() {
    in_child(|| {
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
    });
}
