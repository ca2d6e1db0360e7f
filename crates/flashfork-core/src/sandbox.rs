//! Seccomp filters (seccomp(2)): those that were there before the program started, because containers, services and browsers put them in
//! place and they last over exec, and those that the program sets itself.
//!
//! A filter that refuses a call does no harm: every call of the engine may fail. One that ends the process for it would make a seal
//! end the program. Nobody can read a filter, so where there is one a seal is tried in a child first, once: what ends the child
//! would have ended the program.
//!
//! Under a filter of its own a program is not sealed any more. What is sealed stays so if a child under that filter can do all that
//! the engine does for calls on sealed memory; else all memory becomes anonymous before the filter is set.

use crate::answers::advise;
use crate::answers::anonymous::for_good;
use crate::answers::mremap;
use crate::arena::Arena;
use crate::calls;
use crate::code;
use crate::fork;
use crate::kernel_writers;
use crate::never_seal::Reason;
use crate::outcome::Error;
use crate::proc::directory;
use crate::proc::lookup::{self, Wanted};
use crate::proc::text::{field, read_file};
use crate::proc::vma::{Kind, Vma};
use crate::range::Range;
use crate::scratch;
use crate::seal::properties::Properties;
use crate::seal::remap;
use crate::seal::unseal::unseal;
use crate::seal::{What, seal_for_policy};
use crate::stack::roomy;
use crate::state::STATE;
use crate::sys::{self, HUGE, MAP_ANONYMOUS, MAP_PRIVATE, PAGE, PROT_READ, PROT_WRITE, Result};
use crate::threads::errand;
use crate::threads::{self, Threads};
use core::sync::atomic::Ordering::SeqCst;
use linux_raw_sys::general as k;
use syscalls::Sysno;

const ALLOWED: u8 = 1;
const FORBIDDEN: u8 = 2;

/// What the child seals.
const TRIAL: usize = 2 * HUGE;

/// Whether this process is under a filter; none when nobody can tell, as without /proc.
pub(crate) fn is_filtered() -> Option<bool> {
    let mut buf = [0; 4096];
    let status = read_file(c"/proc/thread-self/status", &mut buf).ok()?;
    field(status, b"Seccomp").map(|mode| mode != 0)
}

/// Whether a filter, if there is one, lets the engine work. Asked once a program, and before the engine makes any other call.
pub(crate) fn allows() -> core::result::Result<(), Error> {
    let allowed = match STATE.sandbox.load(SeqCst) {
        ALLOWED => Some(true),
        FORBIDDEN => Some(false),
        _ => {
            let found = roomy(|| match is_filtered() {
                Some(true) => survives(),
                unfiltered => Ok(unfiltered.map(|_| true)),
            })?;
            if let Some(allowed) = found {
                STATE.sandbox.store(if allowed { ALLOWED } else { FORBIDDEN }, SeqCst);
            }
            found
        }
    };
    // Where the child could not be made, or had nothing to seal for another reason, a seal fails for the same reason.
    if allowed == Some(false) { Err(Error::Refused(Reason::SeccompFilter)) } else { Ok(()) }
}

/// Whether a child lives through a seal; none when it could not be tried to the end. [`Error::Busy`]: somebody killed it, who is no
/// filter (those end a process by `SIGSYS`); the next seal tries again.
fn survives() -> core::result::Result<Option<bool>, Error> {
    const WCLONE: u32 = 0x8000_0000;
    const SIGKILL: u32 = 9;
    // It tells nobody when it ends, and only who asks for such children waits for it.
    // SAFETY: the child makes system calls and ends.
    let child = match unsafe { sys::fork_in_silence() } {
        Ok(0) => try_everything(),
        Ok(child) => child,
        Err(_) => return Ok(None),
    };
    Ok(match sys::wait(child, WCLONE) {
        Ok((_, 0)) => Some(true),
        Ok((_, status)) if status as u32 & 0x7f == SIGKILL => return Err(Error::Busy),
        Ok((_, status)) if status & 0x7f != 0 => Some(false),
        _ => None,
    })
}

/// In a child: no handler of the program's, and no core file, tells how a filter ends it.
fn end_in_silence() {
    const SIGSYS: i32 = 31;
    let _ = sys::action(SIGSYS, Some(&sys::Action::default()));
    let _ = sys::setrlimit(k::RLIMIT_CORE, [1, 1]);
}

/// In the child: every call that the engine makes around forks, in a seal and after it.
fn try_everything() -> ! {
    STATE.sandbox.store(ALLOWED, SeqCst);
    end_in_silence();
    if threads::allowed() == Threads::Stop {
        // Another thread may become another program meanwhile. A helper makes this call too.
        let _ = sys::die_with_parent();
    }
    let mut buf = [0; 4096];
    // What stands in the way of the program's own seal may be gone by then.
    let _ = directory::for_each_descriptor(&mut buf, sys::close);
    fork::measure();
    // As calls on sealed memory do where there are threads; where it fails they do without.
    let _ = errand::run(|| Ok(()));
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    // SAFETY: a fresh mapping of the child's own.
    let Ok(at) = (unsafe { sys::mmap(0, TRIAL, PROT_READ | PROT_WRITE, flags, -1, 0) }) else { sys::exit(1) };
    for page in (at..at + TRIAL).step_by(PAGE) {
        // SAFETY: inside it.
        unsafe { (page as *mut u8).write_volatile(1) };
    }
    let sealed = seal_for_policy(What::AllButDense).outcome.is_ok_and(|outcome| outcome.sealed > 0);
    // SAFETY: the child's own memory.
    let discarded = unsafe { advise::madvise(at, HUGE, k::MADV_DONTNEED) };
    let unsealed = unseal(Range::ALL);
    sys::exit(i32::from(!sealed || discarded.is_err() || unsealed.is_err()))
}

/// `prctl(2)`.
///
/// # Safety
/// As `prctl`.
pub unsafe fn prctl(args: [usize; 6]) -> Result<usize> {
    const PR_SET_SECCOMP: u32 = 22;
    const PR_SET_TSC: u32 = 26;
    const PR_TSC_ENABLE: usize = 1;
    const PR_SET_VMA: u32 = 0x5356_4d41;
    const PR_SET_SYSCALL_USER_DISPATCH: u32 = 59;
    const SECCOMP_MODE_FILTER: usize = 2;
    // SAFETY: the program's own call.
    let real = || unsafe { sys::call(Sysno::prctl, args) };
    // The kernel looks at the lower half of the option.
    match args[0] as u32 {
        // SAFETY: as above.
        PR_SET_SECCOMP => unsafe { enter(Sysno::prctl, args, args[1] == SECCOMP_MODE_FILTER, true) },
        PR_SET_SYSCALL_USER_DISPATCH if args[1] != 0 => {
            // System calls from other places than the program names are signals then.
            for_good()?;
            fork::enter_sandbox();
            STATE.sandbox.store(FORBIDDEN, SeqCst);
            calls::enter::let_go();
            real()
        }
        // SAFETY: as above.
        PR_SET_VMA => unsafe { advise::name(args) },
        PR_SET_TSC => real().inspect(|_| STATE.set_clock(args[1] as u32 as usize == PR_TSC_ENABLE)),
        _ => real(),
    }
}

/// `seccomp(2)`.
///
/// # Safety
/// As `seccomp`.
pub unsafe fn seccomp(args: [usize; 6]) -> Result<usize> {
    const SET_MODE_STRICT: u32 = 0;
    const SET_MODE_FILTER: u32 = 1;
    const NEW_LISTENER: usize = 8;
    match args[0] as u32 {
        // Whoever is to listen knows nothing of a child.
        // SAFETY: the program's own call.
        SET_MODE_FILTER => unsafe { enter(Sysno::seccomp, args, true, args[1] & NEW_LISTENER == 0) },
        // SAFETY: as above.
        SET_MODE_STRICT => unsafe { enter(Sysno::seccomp, args, false, false) },
        // Questions.
        // SAFETY: as above.
        _ => unsafe { sys::call(Sysno::seccomp, args) },
    }
}

/// Has a program enter a sandbox of its own. `filter`: not the strict mode, in which the program can do nothing either that would mean
/// something on sealed memory. `may_try`: whether a child may try the filter.
///
/// # Safety
/// As the call.
unsafe fn enter(number: Sysno, args: [usize; 6], filter: bool, may_try: bool) -> Result<usize> {
    let works = !filter || !STATE.sealed() || may_try && roomy(|| lets_work(number, args));
    if !works {
        for_good()?;
    }
    // SAFETY: the program's own call.
    let result = unsafe { sys::call(number, args) };
    if result.is_ok() {
        fork::enter_sandbox();
        if !works {
            STATE.sandbox.store(FORBIDDEN, SeqCst);
            STATE.keep_hands_off();
        }
    }
    result
}

/// Whether a child under the same filter can do what the engine does for calls on sealed memory. What stops threads is not tried, nor
/// can a child be made where there is a filter already.
fn lets_work(number: Sysno, args: [usize; 6]) -> bool {
    const WCLONE: u32 = 0x8000_0000;
    if STATE.is_sandboxed() || threads::allowed() == Threads::Stop {
        return false;
    }
    // SAFETY: the child makes system calls and ends.
    match unsafe { sys::fork_in_silence() } {
        Ok(0) => {
            end_in_silence();
            STATE.nobody_inside();
            // SAFETY: the program's own call, made in the child only. If it fails it will fail in the program too.
            let worked = match unsafe { sys::call(number, args) } {
                Ok(_) => work(),
                Err(_) => Ok(true),
            };
            sys::exit(i32::from(worked != Ok(true)))
        }
        Ok(child) => matches!(sys::wait(child, WCLONE), Ok((_, 0))),
        Err(_) => false,
    }
}

/// In the child: one of everything. Whether it came to the right end.
fn work() -> Result<bool> {
    STATE.enter_sandbox();
    fork::measure();
    kernel_writers::is_device_to_mind(0);
    let _ = code::process::before_executable(Range::pages_of(calls::enter::address(), 1));
    if let Ok(fd) = sys::open(c"/proc/thread-self/exe", sys::O_RDONLY) {
        let _ = code::process::before_mapping(fd);
        sys::close(fd);
    }
    const READ_WRITE: u32 = PROT_READ | PROT_WRITE;
    const ENOUGH: usize = 8 * PAGE;
    let (from, len) = match largest_sealed()? {
        Some(v) if v.range.len() >= ENOUGH && v.prot == READ_WRITE => (v.range.start, v.range.len()),
        Some(_) => return Ok(false),
        None => (scratch::temporary(ENOUGH)?, ENOUGH),
    };
    let occupied = MAP_PRIVATE | MAP_ANONYMOUS | k::MAP_FIXED_NOREPLACE;
    // So that it must move to grow.
    // SAFETY: replaces nothing.
    let _ = unsafe { sys::mmap(from + len, PAGE, PROT_READ, occupied, -1, 0) };
    // SAFETY: here and below: memory of the child, which nobody uses.
    let at = unsafe { mremap::mremap(from, len, len + PAGE, k::MREMAP_MAYMOVE as usize, 0) }?;
    let page = |i: usize| Range::new(at + i * PAGE, at + (i + 1) * PAGE);
    let arena = Arena::map()?;
    let properties = Properties::at(at, &mut arena.text);
    arena.unmap();
    // SAFETY: as above.
    unsafe {
        let new = scratch::temporary(PAGE)?;
        properties?.apply(new, PAGE, READ_WRITE)?;
        sys::mremap_fixed(new, PAGE, page(0).start)?;
        remap::fresh(page(1), READ_WRITE)?;
        remap::close(page(1), PROT_READ);
        advise::madvise(page(2).start, PAGE, k::MADV_DONTFORK)?;
        advise::madvise(page(4).start, PAGE, k::MADV_DONTNEED)?;
        Ok(*(page(4).start as *const u64) == 0)
    }
}

fn largest_sealed() -> Result<Option<Vma>> {
    let mut largest = None::<Vma>;
    lookup::for_each(Range::ALL, Wanted::Files, |v| {
        if v.kind == Kind::Sealed && largest.is_none_or(|l| l.range.len() < v.range.len()) {
            largest = Some(*v);
        }
        Ok(())
    })?;
    Ok(largest)
}
