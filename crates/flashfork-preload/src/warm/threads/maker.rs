//! The maker: waits for its keeper's orders, in the program's memory.

use super::caller::Caller;
use super::listeners;
use super::socket::{Heard, close_all, hear, is_answered, say};
use super::{DROPS, IN_CLONE, LINE, bound_capabilities, is_ready_at};
use crate::warm::template::CLONE;
use core::sync::atomic::Ordering::SeqCst;
use flashfork_core::forkall::{Frozen, Place, Unfit, call};
use flashfork_core::never_seal::Reason;
use flashfork_core::{Errno, Error, Pages};
use flashfork_warm::{DESCRIPTORS, MADE_FROM, PATH, ReadyAt, Step, Tell, Word};
use syscalls::Sysno;

/// Runs the maker, in a process of its own with all signals blocked: no libc, no allocation, no thread-local storage.
pub fn run(frozen: &'static mut Frozen) -> ! {
    let mut line = LINE.load(SeqCst);
    let mut own = match begin(line) {
        Ok(own) => own,
        Err(_) => end(1),
    };
    // Before there is something to clone from, and then for good.
    let frozen = loop {
        match hear(line) {
            Heard::Freeze => match freeze(frozen, &mut line, &mut own) {
                Ok((frozen, word)) => {
                    say(line, &word.encode(), None);
                    break frozen;
                }
                Err(unfit) => {
                    let Unfit { what, number, name } = unfit;
                    say(line, &Word::Unfit { what: what as u8, number, name }.encode(), None);
                    end(0)
                }
            },
            Heard::Make { descriptors, .. } => close_all(&descriptors),
            Heard::Nonsense => {}
            Heard::End => end(0),
        }
    };
    loop {
        match hear(line) {
            Heard::Make { pid, descriptors, path } => {
                let place = Place { processes: descriptors[0], own, pid };
                match frozen.fork(&place) {
                    Ok(None) => in_clone(frozen, &descriptors, &path),
                    Ok(Some(made)) => {
                        say(line, &Word::Made { pid: made.pid }.encode(), Some(made.descriptor));
                        close_all(&[made.descriptor]);
                    }
                    Err(e) => say(line, &Word::Failed { errno: e.into_raw() }.encode(), None),
                }
                close_all(&descriptors);
            }
            Heard::Freeze | Heard::Nonsense => {}
            Heard::End => end(0),
        }
    }
}

/// Clones have its bounds. It keeps nothing open but the line. Gives a descriptor of its own namespace of processes.
fn begin(line: i32) -> Result<i32, Errno> {
    const NAME: &[u8; 16] = b"flashfork-maker\0";
    if DROPS.load(SeqCst) {
        bound_capabilities();
    }
    // SAFETY: takes numbers, and strings with their NUL.
    unsafe {
        if line > 0 {
            call(Sysno::close_range, [0, line as usize - 1, 0])?;
        }
        call(Sysno::close_range, [line as usize + 1, u32::MAX as usize, 0])?;
        // In the place of the standard streams: what comes with a request must not come there.
        for _ in 0..3 {
            open(c"/dev/null", libc::O_RDWR)?;
        }
        let own = open(c"/proc/thread-self/ns/pid", libc::O_RDONLY)?;
        call(Sysno::chdir, [c"/".as_ptr() as usize])?;
        call(Sysno::prctl, [libc::PR_SET_NAME as usize, NAME.as_ptr() as usize])?;
        Ok(own)
    }
}

unsafe fn open(path: &core::ffi::CStr, flags: i32) -> Result<i32, Errno> {
    // SAFETY: a string with its NUL.
    unsafe {
        let flags = flags | libc::O_CLOEXEC;
        call(Sysno::openat, [libc::AT_FDCWD as isize as usize, path.as_ptr() as usize, flags as usize])
            .map(|fd| fd as i32)
    }
}

/// Ends the maker; the program ends with it if it stands still.
fn end(code: usize) -> ! {
    loop {
        // SAFETY: takes a number.
        let _ = unsafe { call(Sysno::exit_group, [code]) };
    }
}

/// Stops the program, which ends, and seals its memory.
fn freeze(frozen: &'static mut Frozen, line: &mut i32, own: &mut i32) -> Result<(&'static Frozen, Word), Unfit> {
    frozen.freeze(&mut [line, own])?;
    let frozen = &*frozen;
    let sealed = frozen.seal(Pages::Auto);
    flashfork_core::stats::current().seal(&sealed);
    let (bytes, unsealed) = match sealed.outcome {
        Ok(outcome) => (outcome.sealed, None),
        Err(Error::Refused(reason)) => (0, Some(reason as u8)),
        Err(_) => (0, Some(Reason::CopyFailed as u8)),
    };
    drop(sealed);
    // From here on the policy has nothing to decide.
    flashfork_core::fork::stop();
    let (free, threads, clocks) = (frozen.free_numbers(), frozen.threads() as u64, frozen.clocks());
    Ok((frozen, Word::Frozen { free, threads, sealed: bytes, unsealed, clocks }))
}

/// The clone, from its first instruction to the gate.
fn in_clone(frozen: &'static Frozen, descriptors: &[i32; MADE_FROM], path: &[u8; PATH]) -> ! {
    let (mut report, errno) = (descriptors[3], ErrorNumber::keep());
    let failed = |report: i32, step: Step, e: Errno| -> ! {
        say(report, &Tell::Failed { step, errno: e.into_raw() }.encode(), None);
        end(127)
    };
    let [processes, mounts, time, _, rest @ ..] = *descriptors;
    close_all(&[processes]);
    let moments = [ReadyAt::Idle, ReadyAt::Listen, ReadyAt::Line];
    let kept = moments.iter().any(|at| is_ready_at(Some(*at))).then(|| frozen.settings());
    let caller = match Caller::take(mounts, time, &rest, path, kept) {
        Ok(caller) => caller,
        Err((step, e)) => failed(report, step, e),
    };
    if let Err(e) = frozen.renew(&mut report) {
        failed(report, Step::Files, e);
    }
    caller.begin(kept);
    let gate = match frozen.make_threads() {
        Ok(gate) => gate,
        Err(e) => failed(report, Step::Threads, e),
    };
    caller.limit(kept);
    // SAFETY: no other thread of the clone runs yet.
    unsafe { *CLONE.get() = Some(caller.given) };
    listeners::share(frozen);
    IN_CLONE.store(1, SeqCst);
    errno.put_back();
    say(report, &Tell::Started { pid: 2 }.encode(), None);
    // Whoever hears of what the clone does finds a caller that knows of it.
    if !is_answered(report) {
        end(127);
    }
    close_all(&[report]);
    frozen.run(gate)
}

/// Descriptors of a request behind those of namespaces and of the report.
pub const OF_CALLER: usize = DESCRIPTORS;

/// The main thread's `errno`, which calls of libc's would write: a clone's first thread has its thread pointer.
struct ErrorNumber(i32);

impl ErrorNumber {
    fn keep() -> ErrorNumber {
        // SAFETY: the word is the main thread's, of which this is the copy.
        ErrorNumber(unsafe { *libc::__errno_location() })
    }

    fn put_back(&self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
