//! Seccomp filters that were there before the program started: containers, services and browsers put them in place, and they last over
//! exec (seccomp(2)).
//!
//! A filter that refuses a call does no harm: every call of the engine may fail. One that ends the process for it would make a seal
//! end the program. Nobody can read a filter, so where there is one a seal is tried in a child first, once: what ends the child
//! would have ended the program.

use crate::advise;
use crate::fork;
use crate::never_seal::Reason;
use crate::objects;
use crate::range::Range;
use crate::seal::{Error, What, seal_for_policy};
use crate::state::STATE;
use crate::sys::{self, HUGE, MAP_ANONYMOUS, MAP_PRIVATE, PAGE, PROT_READ, PROT_WRITE};
use crate::text::{field, read_file};
use crate::unseal::unseal;
use core::sync::atomic::Ordering::SeqCst;
use linux_raw_sys::general as k;

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
pub(crate) fn allows() -> Result<(), Error> {
    let allowed = match STATE.sandbox.load(SeqCst) {
        ALLOWED => Some(true),
        FORBIDDEN => Some(false),
        _ => {
            let found = match is_filtered() {
                Some(true) => survives()?,
                unfiltered => unfiltered.map(|_| true),
            };
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
fn survives() -> Result<Option<bool>, Error> {
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

/// In the child: every call that the engine makes around forks, in a seal and after it.
fn try_everything() -> ! {
    const SIGSYS: i32 = 31;
    STATE.sandbox.store(ALLOWED, SeqCst);
    // No handler of the program's, and no core file, tells of it.
    let _ = sys::action(SIGSYS, Some(&sys::Action::default()));
    let _ = sys::setrlimit(k::RLIMIT_CORE, [1, 1]);
    let mut buf = [0; 4096];
    // What stands in the way of the program's own seal may be gone by then.
    let _ = objects::for_each_descriptor(&mut buf, sys::close);
    fork::measure();
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    // SAFETY: a fresh mapping of the child's own.
    let Ok(at) = (unsafe { sys::mmap(0, TRIAL, PROT_READ | PROT_WRITE, flags, -1, 0) }) else { sys::exit(1) };
    for page in (at..at + TRIAL).step_by(PAGE) {
        // SAFETY: inside it.
        unsafe { (page as *mut u8).write_volatile(1) };
    }
    let sealed = seal_for_policy(What::All).outcome.is_ok_and(|outcome| outcome.sealed > 0);
    // SAFETY: the child's own memory.
    let discarded = unsafe { advise::madvise(at, HUGE, k::MADV_DONTNEED) };
    let unsealed = unseal(Range::ALL);
    sys::exit(i32::from(!sealed || discarded.is_err() || unsealed.is_err()))
}
