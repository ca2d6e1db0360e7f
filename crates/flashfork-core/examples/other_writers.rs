//! What it costs a seal to lose no write by another process: 256 MB of memory are copied into a memfd and replaced by
//! it, in turn by each of the ways of which ARCHITECTURE.md tells. Prints the processor time for a GB: the median of
//! all rounds.
//!
//! `cargo run --release -p flashfork-core --example other_writers [ROUNDS]`

use std::io::Error;

const PAGE: usize = 4096;
const LEN: usize = 256 << 20;
const STEP: usize = 256 << 10;
const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

#[derive(Clone, Copy, Debug)]
enum Way {
    /// Copy and remap: what is written in between is lost.
    None,
    /// Old pages are moved aside, compared, and compared again before they are freed, a MB at a time.
    Aside,
    /// References to old pages wait in a pipe; they are read back and compared after the remap.
    Pipe,
}

fn checked<T: PartialEq + From<i8>>(result: T, what: &str) -> T {
    assert!(result != T::from(-1), "{what}: {}", Error::last_os_error());
    result
}

fn map(at: usize, len: usize, prot: i32, flags: i32, fd: i32, offset: usize) -> usize {
    // SAFETY: fresh memory, or in place of what this program has mapped for the purpose.
    let at = unsafe { libc::mmap(at as *mut _, len, prot, flags, fd, offset as i64) };
    assert_ne!(at, libc::MAP_FAILED, "mmap: {}", Error::last_os_error());
    at as usize
}

fn processor_seconds() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one struct timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn same(one: usize, other: usize) -> bool {
    // SAFETY: both are mapped, STEP bytes.
    unsafe { libc::memcmp(one as *const _, other as *const _, STEP) == 0 }
}

/// Seals the memory at `memory`; gives the processor time it took, in seconds for a GB.
fn seal(way: Way, memory: usize) -> f64 {
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let aside = map(0, LEN, libc::PROT_NONE, anonymous, -1, 0);
    let mut pipe = [0; 2];
    let mut scratch = vec![1u8; STEP];
    // SAFETY: plain calls on descriptors and memory of this function's own.
    let fd = unsafe {
        checked(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC), "pipe2");
        checked(libc::fcntl(pipe[1], libc::F_SETPIPE_SZ, STEP), "F_SETPIPE_SZ");
        let fd = checked(libc::memfd_create(c"other-writers".as_ptr(), libc::MFD_CLOEXEC), "memfd_create");
        checked(libc::ftruncate(fd, LEN as i64), "ftruncate");
        fd
    };
    let start = processor_seconds();
    let shown = map(0, LEN, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
    for at in (0..LEN).step_by(STEP) {
        let from = memory + at;
        // SAFETY: each range is a step of the memory, or of what was mapped for it.
        unsafe {
            if matches!(way, Way::Pipe) {
                checked(libc::madvise(from as *mut _, STEP, libc::MADV_POPULATE_WRITE), "populate");
                let mut part = libc::iovec { iov_base: from as *mut _, iov_len: STEP };
                while part.iov_len > 0 {
                    let n = checked(libc::vmsplice(pipe[1], &raw const part, 1, 0), "vmsplice") as usize;
                    part = libc::iovec { iov_base: part.iov_base.add(n), iov_len: part.iov_len - n };
                }
            }
            assert_eq!(libc::pwrite(fd, from as *const _, STEP, at as i64), STEP as isize);
            if matches!(way, Way::Aside) {
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                let moved = libc::mremap(from as *mut _, STEP, STEP, flags, aside + at);
                assert_ne!(moved, libc::MAP_FAILED, "mremap: {}", Error::last_os_error());
                assert!(same(aside + at, shown + at));
            }
        }
        map(from, STEP, RW, libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE, fd, at);
        match way {
            Way::Pipe => {
                let mut got = 0;
                while got < STEP {
                    // SAFETY: the rest of the scratch memory.
                    let n = unsafe { libc::read(pipe[0], scratch.as_mut_ptr().add(got).cast(), STEP - got) };
                    got += checked(n, "read") as usize;
                }
                assert!(same(scratch.as_ptr() as usize, shown + at));
            }
            Way::Aside if (at + STEP).is_multiple_of(1 << 20) => {
                let from = at + STEP - (1 << 20);
                assert!((from..at + STEP).step_by(STEP).all(|step| same(aside + step, shown + step)));
                map(aside + from, 1 << 20, libc::PROT_NONE, anonymous | libc::MAP_FIXED, -1, 0);
            }
            _ => {}
        }
    }
    let taken = processor_seconds() - start;
    // SAFETY: all of this is this function's own.
    unsafe {
        libc::munmap(shown as *mut _, LEN);
        libc::munmap(aside as *mut _, LEN);
        for fd in [fd, pipe[0], pipe[1]] {
            libc::close(fd);
        }
    }
    taken * (1 << 30) as f64 / LEN as f64
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(9);
    let mut taken = [(Way::None, vec![]), (Way::Aside, vec![]), (Way::Pipe, vec![])];
    for round in 0..rounds {
        for (way, seconds) in &mut taken {
            let memory = map(0, LEN, RW, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
            // SAFETY: the memory just mapped.
            unsafe {
                libc::madvise(memory as *mut _, LEN, libc::MADV_NOHUGEPAGE);
                (0..LEN).step_by(8).for_each(|at| ((memory + at) as *mut usize).write(at ^ round));
            }
            seconds.push(seal(*way, memory));
            // SAFETY: as above.
            unsafe {
                assert!((0..LEN).step_by(PAGE).all(|at| ((memory + at) as *const usize).read() == at ^ round));
                libc::munmap(memory as *mut _, LEN);
            }
        }
    }
    for (way, mut seconds) in taken {
        seconds.sort_by(f64::total_cmp);
        let (least, median) = (seconds[0], seconds[seconds.len() / 2]);
        println!("{way:?}: {median:.3} s/GB, at best {least:.3}");
    }
}
