//! One unit test in one clone, phase by phase.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use serde::{Deserialize, Serialize};

use super::case::{Case, Expected};
use crate::subjects::Method;
use crate::subjects::engine::{self, Side};
use flashfork_measure::BenchError;

/// Exit statuses of a clone.
const PASSED: i32 = 0;
const FOUND_SOMETHING_ELSE: i32 = 3;
const SQL_FAILED: i32 = 4;

/// What one test in a clone took, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Phases {
    /// The fork call, in the parent.
    pub clone: f64,
    /// The test, in the clone.
    pub test: f64,
    /// From the end of the test until the parent has reaped the clone.
    pub reap: f64,
    /// From before the fork call until the clone is reaped.
    pub whole: f64,
}

/// When the clone began and ended its test, in nanoseconds since the parent's clock started.
#[derive(Debug)]
struct Stamps {
    began: AtomicU64,
    ended: AtomicU64,
}

/// A page shared with the clones.
#[derive(Debug)]
pub(super) struct SharedStamps(&'static Stamps);

impl SharedStamps {
    pub(super) fn new() -> Result<Self, BenchError> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let page = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                size_of::<Stamps>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
            )
        }
        .map_err(|errno| BenchError::system("map a page to share with clones", errno))?;
        // SAFETY: page-aligned, zeroed, never unmapped, and reached through atomics only.
        Ok(Self(unsafe { &*page.cast::<Stamps>() }))
    }
}

/// Runs `case` in a clone of this process.
pub(super) fn run(
    method: Method,
    db: &Connection,
    case: Case,
    expected: &Expected,
    stamps: &SharedStamps,
) -> Result<Phases, BenchError> {
    let begin = Instant::now();
    // SAFETY: the worker has one thread, and the child ends in `_exit`.
    match unsafe { engine::fork(method) } {
        Ok(Side::Child) => {
            stamps.0.began.store(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
            let status = match case.passes(db, expected) {
                Ok(true) => PASSED,
                Ok(false) => FOUND_SOMETHING_ELSE,
                Err(_) => SQL_FAILED,
            };
            stamps.0.ended.store(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
            // SAFETY: ends the process without running anything of the parent's.
            unsafe { libc::_exit(status) }
        }
        Ok(Side::Parent(pid)) => {
            let cloned = begin.elapsed();
            let status = engine::reap(pid)?;
            let whole = begin.elapsed();
            check(case, status.exit_status(), status.terminating_signal())?;
            let began = Duration::from_nanos(stamps.0.began.load(Ordering::Relaxed));
            let ended = Duration::from_nanos(stamps.0.ended.load(Ordering::Relaxed));
            let us = |time: Duration| time.as_secs_f64() * 1e6;
            Ok(Phases {
                clone: us(cloned),
                test: us(ended.saturating_sub(began)),
                // On another CPU a clone can be done before the fork call has returned here.
                reap: us(whole.saturating_sub(ended.max(cloned))),
                whole: us(whole),
            })
        }
        Err(error) => Err(BenchError::system("fork", error)),
    }
}

fn check(case: Case, status: Option<i32>, signal: Option<i32>) -> Result<(), BenchError> {
    let why = match (status, signal) {
        (Some(PASSED), _) => return Ok(()),
        (Some(FOUND_SOMETHING_ELSE), _) => "it found other rows than its parent had counted".to_owned(),
        (Some(SQL_FAILED), _) => "SQLite reported an error".to_owned(),
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "neither exited nor killed".to_owned(),
    };
    Err(BenchError::Clone { what: format!("running the unit test '{}'", case.name()), status: why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_test_that_passed_counts() {
        assert!(check(Case::Select, Some(PASSED), None).is_ok());
        for (status, signal, words) in [
            (Some(FOUND_SOMETHING_ELSE), None, "other rows"),
            (Some(SQL_FAILED), None, "SQLite"),
            (Some(1), None, "exit status 1"),
            (None, Some(11), "signal 11"),
        ] {
            let text = check(Case::Delete, status, signal).unwrap_err().to_string();
            assert!(text.contains(words) && text.contains("'delete'"), "{text}");
        }
    }
}
