//! Stops a process while it is looked at, and lets it go on afterwards, however this process ends.

use std::{
	os::unix::process::CommandExt,
	process::{Child, Command, Stdio},
	time::{Duration, Instant},
};

use procfs::process::{ProcState, Process};
use rustix::process::{Pid, Signal, kill_process};

use crate::error::AdviseError;

/// How long a process may take to stop; one in an uninterruptible wait takes as long as that does.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);

/// Waits for the end of its input, which is the end of whoever started it, and lets a process go on.
const GUARD: &str = "trap '' INT TERM HUP QUIT; read nothing; kill -CONT \"$1\"";

/// A process held stopped. Dropping it lets the process go on, unless it was stopped before; so does the end of this
/// process, by whatever signal.
#[derive(Debug)]
pub(super) struct Stopped {
	pid: Pid,
	/// None where the process was stopped before.
	guard: Option<Child>,
}

impl Stopped {
	/// Stops all threads of `pid` (SIGSTOP) and waits until they stand still.
	pub(super) fn hold(pid: i32) -> Result<Self, AdviseError> {
		let none = || AdviseError::Unable(format!("there is no process {pid}"));
		let id = Pid::from_raw(pid).ok_or_else(none)?;
		if pid.unsigned_abs() == std::process::id() {
			return Err(AdviseError::Unable(format!("process {pid} is this one; it can't stop and look at itself")));
		}
		let already = is_stopped(pid).ok_or_else(none)?;
		// Before the process is stopped: there is no moment at which nobody would let it go on.
		let guard = if already { None } else { Some(guard(pid)?) };
		let stopped = Self { pid: id, guard };
		if !already {
			kill_process(id, Signal::STOP).map_err(|errno| match errno {
				rustix::io::Errno::SRCH => none(),
				errno => AdviseError::system(format!("stop process {pid} (run as its user or as root)"), errno),
			})?;
		}
		let begin = Instant::now();
		while !is_stopped(pid).ok_or_else(none)? {
			if begin.elapsed() > PATIENCE {
				return Err(AdviseError::Unable(format!("process {pid} has not stopped for {PATIENCE:?}")));
			}
			std::thread::sleep(LOOK);
		}
		Ok(stopped)
	}
}

impl Drop for Stopped {
	fn drop(&mut self) {
		if let Some(guard) = &mut self.guard {
			// It may have been killed meanwhile; then there is nothing to let go.
			let _ = kill_process(self.pid, Signal::CONT);
			// Both fail only when it is gone already.
			let _ = guard.kill();
			let _ = guard.wait();
		}
	}
}

/// Starts what lets `pid` go on when this process is killed. Only this process has the other end of its input (the
/// standard library opens pipes with `O_CLOEXEC`), and no signal to this process's group or terminal reaches it.
fn guard(pid: i32) -> Result<Child, AdviseError> {
	let mut shell = Command::new("/bin/sh");
	shell.args(["-c", GUARD, "flashfork-guard"]).arg(pid.to_string()).process_group(0);
	shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
	shell.spawn().map_err(|error| {
		AdviseError::system(format!("start /bin/sh, which lets process {pid} go on should this one be killed"), error)
	})
}

/// Whether every thread of a process stands still; `None` when it is gone or dead.
pub(crate) fn is_stopped(pid: i32) -> Option<bool> {
	let process = Process::new(pid).ok()?;
	let still = |state: ProcState| matches!(state, ProcState::Stopped | ProcState::Tracing);
	let leader = process.stat().ok()?.state().ok()?;
	if matches!(leader, ProcState::Zombie | ProcState::Dead) {
		return None;
	}
	let mut threads = process.tasks().ok()?.flatten();
	// A thread gone meanwhile doesn't move either.
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
