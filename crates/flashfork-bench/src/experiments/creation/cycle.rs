//! One child: made, ended, reaped, each moment taken down, its status checked.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitStatus, waitid};
use rustix::time::{ClockId, clock_gettime};

use super::make;
use super::way::{PROGRAM, Phase, Then, Way};
use crate::subjects::engine;
use flashfork_measure::BenchError;

/// What a child of ours exits with: not 0, so that a child that did something else is noticed.
const DONE: i32 = 7;

/// Moments in the child, in nanoseconds on the machine's monotonic clock, on memory shared with it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Moments {
    exec: AtomicU64,
    first: AtomicU64,
    last: AtomicU64,
}

impl Moments {
    /// On a page that children share.
    pub(super) fn shared() -> Result<&'static Self, BenchError> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let page = unsafe {
            mmap_anonymous(ptr::null_mut(), size_of::<Self>(), ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
        }
        .map_err(|errno| BenchError::system("map a page to share with children", errno))?;
        // SAFETY: page-aligned, zeroed, never unmapped, and reached through atomics only.
        Ok(unsafe { &*page.cast::<Self>() })
    }
}

/// What one child took, in microseconds; a phase that can't be seen from here is missing.
pub(super) type Phases = Vec<(Phase, f64)>;

/// Makes, ends and reaps one child.
pub(super) fn cycle(way: Way, then: Then, moments: &'static Moments) -> Result<Phases, BenchError> {
    moments.exec.store(u64::from(then == Then::Exec), Ordering::Relaxed);
    moments.first.store(0, Ordering::Relaxed);
    let argument = ptr::from_ref(moments).cast_mut().cast::<c_void>();
    let failed = |error: std::io::Error| BenchError::system(way.name(), error);
    let begin = now();
    let (called, dead, reaped);
    match way {
        Way::Pthread => {
            let mut thread = 0;
            // SAFETY: the thread gets the shared moments and is joined below.
            let error = unsafe { libc::pthread_create(&mut thread, ptr::null(), threaded, argument) };
            called = now();
            if error != 0 {
                return Err(failed(std::io::Error::from_raw_os_error(error)));
            }
            // SAFETY: made above, joined once.
            unsafe { libc::pthread_join(thread, ptr::null_mut()) };
            (dead, reaped) = (now(), now());
        }
        Way::PosixSpawn => {
            let pid = make::spawn().map_err(failed)?;
            called = now();
            (dead, reaped) = bury(way, then, pid)?;
        }
        _ => {
            // SAFETY: `child` keeps to the clock, an atomic on shared memory, exec and exit.
            let pid = unsafe { make::process(way, child, argument) }.map_err(failed)?;
            called = now();
            (dead, reaped) = bury(way, then, pid)?;
        }
    }
    let span = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
    let mut phases = vec![(Phase::Cycle, span(begin, reaped)), (Phase::Call, span(begin, called))];
    if way != Way::PosixSpawn {
        let (first, last) = (moments.first.load(Ordering::Relaxed), moments.last.load(Ordering::Relaxed));
        if first < begin {
            return Err(died(way, "it ended without a sign of life".to_owned()));
        }
        phases.push((Phase::First, span(begin, first)));
        phases.push((Phase::Exit, span(last, dead)));
    }
    if way != Way::Pthread {
        phases.push((Phase::Reap, span(dead, reaped)));
    }
    Ok(phases)
}

/// What a child does. Neither allocates nor locks; of shared memory it writes the moments only.
extern "C" fn child(argument: *mut c_void) -> ! {
    // SAFETY: the argument is the moments of `cycle`, which are never unmapped.
    let moments = unsafe { &*argument.cast::<Moments>() };
    sign(moments);
    if moments.exec.load(Ordering::Relaxed) == 1 {
        make::exec();
    }
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(DONE) }
}

extern "C" fn threaded(argument: *mut c_void) -> *mut c_void {
    // SAFETY: as in `child`.
    sign(unsafe { &*argument.cast::<Moments>() });
    ptr::null_mut()
}

fn sign(moments: &Moments) {
    moments.first.store(now(), Ordering::Relaxed);
    moments.last.store(now(), Ordering::Relaxed);
}

/// Waits until the child is dead, then reaps it: both moments. The status is checked.
fn bury(way: Way, then: Then, pid: i32) -> Result<(u64, u64), BenchError> {
    let pid = Pid::from_raw(pid).ok_or_else(|| died(way, format!("it has the process id {pid}")))?;
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(BenchError::system("wait for a child", errno)),
        }
    }
    let dead = now();
    let status = engine::reap(pid)?;
    let reaped = now();
    check(way, then, status).map(|()| (dead, reaped))
}

fn check(way: Way, then: Then, status: WaitStatus) -> Result<(), BenchError> {
    let wanted = if then == Then::Exec { 0 } else { DONE };
    let program = PROGRAM.to_string_lossy();
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) if code == wanted => Ok(()),
        (Some(127), _) if then == Then::Exec => Err(died(way, format!("{program} could not be started"))),
        (Some(code), _) => Err(died(way, format!("exit status {code} instead of {wanted}"))),
        (None, Some(signal)) => Err(died(way, format!("killed by signal {signal}"))),
        (None, None) => Err(died(way, format!("wait status {}", status.as_raw()))),
    }
}

fn died(way: Way, status: String) -> BenchError {
    BenchError::Clone { what: format!("made by {way}"), status }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plain_way_makes_children_whose_phases_add_up() {
        let moments = Moments::shared().unwrap();
        for way in Way::ALL.into_iter().filter(|way| !matches!(way, Way::Seal | Way::Odf)) {
            for &then in way.then() {
                for _ in 0..3 {
                    let phases = cycle(way, then, moments).unwrap();
                    let of = |wanted| phases.iter().find(|(phase, _)| *phase == wanted).map(|&(_, time)| time);
                    let whole = of(Phase::Cycle).unwrap();
                    assert!(of(Phase::Call).unwrap() <= whole, "{way} {then:?} {phases:?}");
                    assert!(phases.iter().all(|&(_, time)| time <= whole), "{way} {then:?} {phases:?}");
                    assert_eq!(of(Phase::First).is_some(), way != Way::PosixSpawn);
                    if matches!(way, Way::Vfork | Way::Clone) && then == Then::Exit {
                        // The parent slept until the child was gone.
                        assert!(of(Phase::First).unwrap() <= of(Phase::Call).unwrap(), "{phases:?}");
                    }
                }
            }
        }
    }

    /// Reaps a shell that ends as `script` says, as if it were a child made by `way`.
    #[expect(clippy::zombie_processes, reason = "it is reaped by what is tested")]
    fn bury_shell(script: &str, way: Way, then: Then) -> Result<(u64, u64), BenchError> {
        let shell = std::process::Command::new("/bin/sh").args(["-c", script]).spawn().unwrap();
        bury(way, then, shell.id() as i32)
    }

    #[test]
    fn a_child_that_ends_otherwise_is_an_error() {
        for (script, said) in [
            ("exit 0", "exit status 0 instead of 7"),
            ("kill -9 $$", "killed by signal 9"),
            ("exit 127", "127 instead"),
        ] {
            let error = bury_shell(script, Way::Fork, Then::Exit).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("made by fork"), "{error}");
        }
        let missing = bury_shell("exit 127", Way::Vfork, Then::Exec).unwrap_err().to_string();
        assert!(missing.contains("/bin/true could not be started"), "{missing}");
        let (dead, reaped) = bury_shell("exit 7", Way::Fork, Then::Exit).unwrap();
        assert!(dead <= reaped);
    }
}
