//! The policy `auto` on real memory, by a clock of the test's own: how long forks take is what it is told.

#[macro_use]
mod common;
use common::{Child, forked, in_child, intact, patterned, until, wait};
use flashfork_core::answers::{advise, sandbox};
use flashfork_core::fork::{Engine, configure, fork};
use flashfork_core::{MEMFD_PREFIX, Pages, seal};
use std::fs;
use std::io::{Read, Write};
use std::{cell::Cell, collections::BTreeMap, os::unix::fs::MetadataExt};

const LEN: usize = 64 << 20;
const MILLISECOND: u64 = 1_000_000;

/// Sealed bytes among the mappings of these words, and the generations they are in, each of which may have two files of
/// one name.
fn sealed(words: &[u64]) -> (usize, Vec<String>) {
    let (start, end) = (words.as_ptr() as usize, words.as_ptr_range().end as usize);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let prefix = std::str::from_utf8(MEMFD_PREFIX).unwrap();
    let (mut bytes, mut generations) = (0, Vec::new());
    for line in maps.lines().filter(|line| line.contains(prefix)) {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (from, to) = fields[0].split_once('-').unwrap();
        let [from, to] = [from, to].map(|n| usize::from_str_radix(n, 16).unwrap());
        if from.max(start) < to.min(end) {
            bytes += to.min(end) - from.max(start);
            generations.push(fields[5].to_owned());
        }
    }
    generations.sort();
    generations.dedup();
    (bytes, generations)
}

#[test]
fn auto_seals_in_parts_renews_what_was_written_and_undoes_what_loses() {
    in_child!();
    let words = patterned(LEN, 1);
    configure(Engine::Auto, false).unwrap();
    if flashfork_core::odf::is_enabled() == Ok(true) {
        // Forks are on demand here, and nothing is sealed.
        return;
    }
    let mut parts = Vec::new();
    until(500, || {
        forked(words, 1, 50 * MILLISECOND, false);
        let now = sealed(words).0;
        if parts.last() != Some(&now) && now > 0 {
            parts.push(now);
        }
        now >= LEN - (4 << 20)
    });
    // How large the others are goes by how fast this machine is just now.
    assert!(parts.len() > 1 && parts[0] <= LEN / 4, "in parts, a small one first: {parts:?}");

    // Enough cheap forks to show that it was worth it; then nearly all of it is written.
    (0..200).for_each(|turn| forked(words, 1, MILLISECOND / 20, turn == 0));
    let before = sealed(words).1;
    for (i, word) in words.iter_mut().enumerate() {
        *word = common::pattern(i, 2);
    }
    until(20, || {
        forked(words, 2, MILLISECOND / 20, true);
        sealed(words).1.iter().all(|generation| !before.contains(generation))
    });
    let (bytes, now) = sealed(words);
    assert!(bytes >= LEN - (4 << 20) && now.len() == before.len(), "{bytes} bytes in generations {now:?}");

    until(500, || {
        forked(words, 2, 500 * MILLISECOND, false);
        sealed(words).0 == 0
    });
    assert!(intact(words, 2));
}

/// Memory of which a first part has been sealed; none where forks are on demand, and nothing is.
fn begun() -> Option<&'static mut [u64]> {
    let words = patterned(LEN, 1);
    configure(Engine::Auto, false).unwrap();
    if flashfork_core::odf::is_enabled() == Ok(true) {
        return None;
    }
    until(500, || {
        forked(words, 1, 50 * MILLISECOND, false);
        sealed(words).0 > 0
    });
    Some(words)
}

/// Until all of it is sealed but for its ends.
fn finish(words: &[u64]) {
    until(500, || {
        forked(words, 1, 50 * MILLISECOND, false);
        sealed(words).0 >= size_of_val(words) - (4 << 20)
    });
}

#[test]
fn memory_that_gets_a_property_between_parts_is_judged_anew() {
    in_child!();
    let Some(words) = begun() else { return };
    // The last 8 MB but 4 are kept out of clones, the last 4 are other memory now, locked.
    let end = words.as_ptr_range().end as usize;
    let (private, locked) = (end - (8 << 20), end - (4 << 20));
    let len = 4 << 20;
    // SAFETY: parts of the words, which nobody reads from here on.
    unsafe {
        assert_eq!(libc::madvise(private as *mut _, len, libc::MADV_DONTFORK), 0);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_LOCKED;
        let at = libc::mmap(locked as *mut _, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return; // no right to lock so much
        }
        (at as *mut u8).write_bytes(1, len);
    }
    let rest = &words[..(private - words.as_ptr() as usize) / 8];
    finish(rest);
    (0..20).for_each(|_| forked(rest, 1, 50 * MILLISECOND, false));
    assert_eq!(sealed(words).0, sealed(rest).0, "what may not be sealed was");
}

/// A secret, for one, that is not for clones.
#[test]
fn memory_that_is_moved_between_parts_to_where_other_was_keeps_its_properties() {
    in_child!();
    let len = 4 << 20;
    let secret = patterned(len, 3);
    // SAFETY: all the secret's memory.
    assert_eq!(unsafe { libc::madvise(secret.as_mut_ptr().cast(), len, libc::MADV_WIPEONFORK) }, 0);
    let Some(words) = begun() else { return };
    let end = words.as_ptr_range().end as usize;
    let place = end - len;
    // SAFETY: the end of the words, which nobody reads from here on, and the secret, which is read there.
    let moved = unsafe {
        assert_eq!(libc::munmap(place as *mut _, len), 0);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let at = libc::mremap(secret.as_mut_ptr().cast(), len, len, flags, place as *mut libc::c_void);
        assert_eq!(at as usize, place);
        std::slice::from_raw_parts(place as *const u64, len / 8)
    };
    let rest = &words[..(place - words.as_ptr() as usize) / 8];
    finish(rest);
    for _ in 0..20 {
        // SAFETY: one thread; the clone only reads, and ends.
        let pid = fork(|| unsafe { libc::fork() }, || 0);
        if pid == 0 {
            // SAFETY: ends the clone.
            unsafe { libc::_exit(i32::from(moved.iter().any(|word| *word != 0))) };
        }
        assert_eq!(wait(pid), 0, "the clone saw the secret");
    }
    assert!(intact(moved, 3) && sealed(words).0 == sealed(rest).0, "what may not be sealed was");
}

#[test]
fn advice_on_huge_pages_between_parts_is_kept() {
    in_child!();
    let Some(words) = begun() else { return };
    let (start, end) = (words.as_ptr() as usize, words.as_ptr_range().end as usize);
    // SAFETY: the advice changes nothing of the words.
    assert_eq!(unsafe { libc::madvise(start as *mut _, LEN, libc::MADV_NOHUGEPAGE) }, 0);
    finish(words);
    flashfork_core::unseal(flashfork_core::Range::ALL).unwrap();
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut advised = 0;
    let mut here = false;
    for line in smaps.lines() {
        if let Some((from, to)) = line.split(' ').next().and_then(|word| word.split_once('-')) {
            let [from, to] = [from, to].map(|n| usize::from_str_radix(n, 16).unwrap_or(0));
            here = from < end && to > start;
        } else if here && line.starts_with("VmFlags:") {
            assert!(line.split(' ').any(|flag| flag == "nh"), "{line}");
            advised += 1;
        }
    }
    assert!(advised > 0 && intact(words, 1));
}

/// Bytes of anonymous memory.
fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    anonymous.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// Bytes in the files of these words' generations.
fn in_files(words: &[u64]) -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let generations = sealed(words).1;
    let mut files = BTreeMap::new();
    for line in maps.lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        if fields.get(5).is_some_and(|name| generations.iter().any(|generation| generation == name)) {
            // Inodes of files in mounts of their own are the same.
            files.insert((fields[3], fields[4]), fields[0]);
        }
    }
    files.values().map(|range| mapped(range).unwrap().blocks() * 512).sum()
}

/// The file of a line of the list of mappings, of which the kernel tells root alone.
fn mapped(range: &str) -> std::io::Result<fs::Metadata> {
    fs::metadata(format!("/proc/self/map_files/{range}"))
}

/// Whether it tells us.
fn is_told() -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let file = maps.lines().find(|line| line.contains(" /")).unwrap();
    mapped(file.split_whitespace().next().unwrap()).is_ok()
}

/// Both.
fn memory(words: &[u64]) -> u64 {
    anonymous() + in_files(words)
}

/// What a program does with memory that `auto` has sealed.
#[derive(Clone, Copy, Debug)]
enum Back {
    Discarded,
    DiscardedAndFilledAgain,
    Unmapped,
    Written,
    /// Beside a thread that has begun since, and does nothing.
    WrittenBesideAThread,
    /// Under a filter that the program has set since, and which allows all.
    WrittenUnderAFilter,
}

impl Back {
    const ALL: [Self; 6] = [
        Self::Discarded,
        Self::DiscardedAndFilledAgain,
        Self::Unmapped,
        Self::Written,
        Self::WrittenBesideAThread,
        Self::WrittenUnderAFilter,
    ];
}

fn enter_a_filter() {
    let code = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut allow = [libc::sock_filter { code, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW }];
    let program = libc::sock_fprog { len: 1, filter: allow.as_mut_ptr() };
    let filter =
        [libc::PR_SET_SECCOMP as usize, libc::SECCOMP_MODE_FILTER as usize, &raw const program as usize, 0, 0, 0];
    // SAFETY: a filter that allows all, and that the kernel copies.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        sandbox::prctl(filter).unwrap();
    }
}

#[test]
fn memory_after_forks_is_at_most_one_and_a_half_times_a_plain_process_s() {
    for shape in Back::ALL {
        in_child(move || {
            let words = patterned(LEN, 1);
            configure(Engine::Auto, false).unwrap();
            if flashfork_core::odf::is_enabled() == Ok(true) || !is_told() {
                return;
            }
            let other = memory(words).saturating_sub(LEN as u64);
            seal_all(words, 1);
            match shape {
                Back::WrittenBesideAThread => drop(std::thread::spawn(std::thread::park)),
                Back::WrittenUnderAFilter => enter_a_filter(),
                _ => {}
            }
            // Nine tenths of each generation, in whole huge pages and in small ones.
            let start = words.as_ptr() as usize;
            for block in (0..LEN / (20 << 20)).map(|i| start + i * (20 << 20)) {
                let len = 18 << 20;
                // SAFETY: part of the words, whose contents the test gives up.
                unsafe {
                    match shape {
                        Back::Unmapped => assert_eq!(libc::munmap(block as *mut _, len), 0),
                        Back::Written | Back::WrittenBesideAThread | Back::WrittenUnderAFilter => {}
                        _ => advise::madvise(block, len, libc::MADV_DONTNEED as u32).unwrap(),
                    }
                    if !matches!(shape, Back::Discarded | Back::Unmapped) {
                        (block..block + len).step_by(4096).for_each(|page| (page as *mut u8).write_volatile(9));
                    }
                }
            }
            let given_back = (LEN / (20 << 20) * (18 << 20)) as u64;
            let plain = match shape {
                Back::Discarded | Back::Unmapped => LEN as u64 - given_back,
                _ => LEN as u64,
            };
            let mut most = 0;
            for fork in 1..40 {
                let now = Cell::new(0);
                // SAFETY: one thread; the clone ends at once.
                let real = || unsafe { libc::fork() };
                let pid = flashfork_core::fork::fork(real, || now.replace(now.get() + MILLISECOND / 20));
                if pid == 0 {
                    // SAFETY: ends the clone.
                    unsafe { libc::_exit(0) };
                }
                assert_eq!(wait(pid), 0);
                // What is unmapped behind the engine's back it sees now and then.
                if fork > 17 || !matches!(shape, Back::Unmapped) {
                    most = most.max(memory(words).saturating_sub(other));
                }
            }
            // Page tables of a test that was copied, and what it allocates itself.
            assert!(most <= plain * 3 / 2 + (4 << 20), "{shape:?}: {most} of {plain}");
        });
    }
}

/// Has `auto` seal all of it but its ends.
fn seal_all(words: &[u64], seed: u64) {
    until(500, || {
        forked(words, seed, 50 * MILLISECOND, false);
        sealed(words).0 >= LEN - (4 << 20)
    });
    (0..40).for_each(|_| forked(words, seed, MILLISECOND / 20, false));
}

/// Writes all of it, and forks; gives the most memory that there was beside `other` when a fork was over.
fn most_after_writing(words: &mut [u64], other: u64) -> u64 {
    let mut most = 0;
    for turn in 0..40 {
        for (i, word) in words.iter_mut().enumerate().filter(|_| turn < 2) {
            *word = common::pattern(i, 9);
        }
        forked(words, 9, MILLISECOND / 20, false);
        // It is now and then that a clone asks whether others are gone.
        if turn > 17 {
            most = most.max(memory(words).saturating_sub(other));
        }
    }
    assert!(intact(words, 9));
    most
}

/// Does it in a clone that the engine has made of this process.
fn in_clone(f: impl FnOnce()) -> i32 {
    // SAFETY: one thread.
    let pid = fork(|| unsafe { libc::fork() }, || 0);
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        // SAFETY: ends the clone.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    pid
}

/// It was sealed neither anew nor undone: too much of what it had from others could be.
#[test]
fn what_a_clone_of_a_sealed_process_seals_itself_takes_one_and_a_half_times_its_memory_at_most() {
    in_child!();
    let inherited = patterned(LEN, 1);
    configure(Engine::Auto, false).unwrap();
    if flashfork_core::odf::is_enabled() == Ok(true) || !is_told() {
        return;
    }
    seal_all(inherited, 1);
    let before = sealed(inherited);
    let worker = in_clone(|| {
        let words = patterned(LEN, 2);
        let other = anonymous().saturating_sub(LEN as u64);
        seal_all(words, 2);
        let most = most_after_writing(words, other);
        assert!(most <= LEN as u64 * 3 / 2 + (4 << 20), "{most} of {LEN}");
        most_after_writing(inherited, 0);
        assert!(sealed(inherited) == before && intact(words, 9), "what others have is left alone");
    });
    assert_eq!(wait(worker), 0);
}

/// Has `f` checked in a clone of a process that has sealed its words and ended: `f` gets these, the anonymous memory
/// beside them, and what waits for the end of its parent.
fn in_what_is_left_of_a_sealed_process(f: impl FnOnce(&'static mut [u64], u64, &dyn Fn())) {
    let (mut told, tells) = std::io::pipe().unwrap();
    in_child(|| {
        let words = patterned(LEN, 1);
        configure(Engine::Auto, false).unwrap();
        if flashfork_core::odf::is_enabled() == Ok(true) || !is_told() {
            return (&tells).write_all(b"nothing to see here").unwrap();
        }
        let other = anonymous().saturating_sub(LEN as u64);
        seal_all(words, 1);
        let parent = std::process::id();
        in_clone(|| {
            f(words, other, &|| {
                while std::os::unix::process::parent_id() == parent {
                    std::thread::yield_now();
                }
            });
            (&tells).write_all(b"right").unwrap();
        });
    });
    drop(tells);
    let mut said = String::new();
    told.read_to_string(&mut said).unwrap();
    assert!(["right", "nothing to see here"].contains(&&*said), "{said:?}");
}

/// It existed twice while that clone lived.
#[test]
fn what_is_left_of_a_sealed_process_that_has_ended_takes_one_and_a_half_times_its_memory_at_most() {
    for seals in [false, true] {
        in_what_is_left_of_a_sealed_process(|words, other, wait_for_its_end| {
            let own = seals.then(|| patterned(LEN, 2));
            if let Some(own) = &own {
                seal_all(own, 2);
                assert!(sealed(words).0 > 0, "others have it");
            }
            wait_for_its_end();
            let plain = if own.is_some() { 2 * LEN as u64 } else { LEN as u64 };
            let mut most = most_after_writing(words, other);
            if let Some(own) = own {
                most += in_files(own);
                assert!(intact(own, 2));
            }
            assert!(most <= plain * 3 / 2 + (4 << 20), "{most} of {plain}");
        });
    }
}

/// A worker had them for itself while its server lived.
#[test]
fn what_a_parent_has_sealed_anew_and_its_clone_has_alone_takes_one_and_a_half_times_its_memory_at_most() {
    in_child!();
    let words = patterned(LEN, 1);
    configure(Engine::Auto, false).unwrap();
    if flashfork_core::odf::is_enabled() == Ok(true) || !is_told() {
        return;
    }
    let other = anonymous().saturating_sub(LEN as u64);
    seal_all(words, 1);
    let before = sealed(words).1;
    let (mut told, tells) = std::io::pipe().unwrap();
    let mut tells = Some(tells);
    let worker = in_clone(|| {
        // Should its parent fail it is not waited for.
        tells.take();
        told.read_exact(&mut [0]).unwrap();
        let most = most_after_writing(words, other);
        assert!(most <= LEN as u64 * 3 / 2 + (4 << 20), "{most} of {LEN}");
    });
    for (i, word) in words.iter_mut().enumerate() {
        *word = common::pattern(i, 2);
    }
    until(50, || {
        forked(words, 2, MILLISECOND / 20, false);
        sealed(words).1.iter().all(|generation| !before.contains(generation))
    });
    tells.take().unwrap().write_all(&[0]).unwrap();
    assert_eq!(wait(worker), 0);
    assert!(intact(words, 2));
}

#[test]
fn a_part_is_bought_without_copying_what_was_sealed_before() {
    in_child!();
    let words = patterned(LEN, 1);
    for i in 0..8 {
        words[i << 18] = common::pattern(i << 18, 1);
        assert!(seal(Pages::Small).outcome.unwrap().sealed > 0);
    }
    let before = sealed(words).1;
    assert_eq!(before.len(), 8, "no room for a generation more: {before:?}");
    let more = patterned(LEN, 2);
    configure(Engine::Auto, false).unwrap();
    (0..40).for_each(|_| forked(more, 2, 50 * MILLISECOND, false));
    assert_eq!(sealed(words).1, before);
    assert!(intact(words, 1) && intact(more, 2));
}

/// It looked at its second fork for the first time, when a helper had it all, too.
#[test]
fn what_a_clone_is_left_with_is_its_own_before_it_has_clones() {
    in_what_is_left_of_a_sealed_process(|words, other, wait_for_its_end| {
        wait_for_its_end();
        for (i, word) in words.iter_mut().enumerate() {
            *word = common::pattern(i, 9);
        }
        let (mut over, ends) = std::io::pipe().unwrap();
        let mut ends = Some(ends);
        let helper = in_clone(|| {
            ends.take();
            assert_eq!(over.read(&mut [0]).unwrap(), 0);
        });
        (0..20).for_each(|_| forked(words, 9, MILLISECOND / 20, false));
        let most = memory(words).saturating_sub(other);
        ends.take();
        assert_eq!(wait(helper), 0);
        assert!(most <= LEN as u64 * 3 / 2 + (4 << 20), "{most} of {LEN}");
    });
}
