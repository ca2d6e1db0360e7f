//! Stops a process while it is looked at, and lets it go on afterwards.

use std::time::{Duration, Instant};

use procfs::process::{ProcState, Process};
use rustix::process::{Pid, Signal, kill_process};

use crate::BenchError;

/// How long a process may take to stop; one in an uninterruptible wait takes as long as that does.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);

/// A process held stopped. Dropping it lets the process go on, unless it was stopped before.
#[derive(Debug)]
pub(super) struct Stopped {
    pid: Pid,
    release: bool,
}

impl Stopped {
    /// Stops all threads of `pid` (SIGSTOP) and waits until they stand still.
    pub(super) fn hold(pid: i32) -> Result<Self, BenchError> {
        let none = || BenchError::Unable(format!("there is no process {pid}"));
        let id = Pid::from_raw(pid).ok_or_else(none)?;
        if pid.unsigned_abs() == std::process::id() {
            return Err(BenchError::Unable(format!("process {pid} is this one; it can't stop and look at itself")));
        }
        let already = is_stopped(pid).ok_or_else(none)?;
        if !already {
            kill_process(id, Signal::STOP).map_err(|errno| match errno {
                rustix::io::Errno::SRCH => none(),
                errno => BenchError::system(format!("stop process {pid} (run as its user or as root)"), errno),
            })?;
        }
        let stopped = Self { pid: id, release: !already };
        let begin = Instant::now();
        while !is_stopped(pid).ok_or_else(none)? {
            if begin.elapsed() > PATIENCE {
                return Err(BenchError::Unable(format!("process {pid} has not stopped for {PATIENCE:?}")));
            }
            std::thread::sleep(LOOK);
        }
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if self.release {
            // It may have been killed meanwhile; then there is nothing to let go.
            let _ = kill_process(self.pid, Signal::CONT);
        }
    }
}

/// Whether every thread of a process stands still; `None` when it is gone or dead.
pub(super) fn is_stopped(pid: i32) -> Option<bool> {
    let process = Process::new(pid).ok()?;
    let still = |state: ProcState| matches!(state, ProcState::Stopped | ProcState::Tracing);
    let leader = process.stat().ok()?.state().ok()?;
    if matches!(leader, ProcState::Zombie | ProcState::Dead) {
        return None;
    }
    let mut threads = process.tasks().ok()?.flatten();
    // A thread that is gone meanwhile doesn't move either.
    Some(threads.all(|thread| thread.stat().map_or(true, |stat| stat.state().is_ok_and(still))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_held_process_stands_still_and_goes_on_afterwards() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        {
            let _stopped = Stopped::hold(pid).unwrap();
            assert_eq!(is_stopped(pid), Some(true));
            drop(Stopped::hold(pid).unwrap());
            assert_eq!(is_stopped(pid), Some(true), "who was stopped before stays so");
        }
        let begin = Instant::now();
        while is_stopped(pid) == Some(true) && begin.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
        assert_eq!(is_stopped(pid), Some(false));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Stopped::hold(pid).unwrap_err().to_string().contains("no process"));
    }
}
