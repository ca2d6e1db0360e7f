//! Waiting for children: those started here, and, as process 1, all orphans of the guest.

use std::{
	collections::HashMap,
	io,
	process::Command,
	sync::{
		Arc, Condvar, Mutex, PoisonError,
		mpsc::{Receiver, Sender, channel},
	},
	thread,
};

use flashfork_proto::agent::Exit;
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::log;

/// Starts commands and tells how they end.
#[derive(Clone)]
pub struct Reaper(Arc<Shared>);

#[derive(Default)]
struct Shared {
	/// Who waits for which child.
	waiting: Mutex<HashMap<i32, Sender<Exit>>>,
	/// There is a child again.
	started: Condvar,
}

impl Reaper {
	/// Starts the one thread that waits.
	pub fn start() -> io::Result<Self> {
		let reaper = Self(Arc::default());
		let shared = Arc::clone(&reaper.0);
		thread::Builder::new().name("reaper".into()).spawn(move || shared.reap())?;
		Ok(reaper)
	}

	/// Starts `command`; its end comes over the channel.
	pub fn spawn(&self, command: &mut Command) -> io::Result<(Pid, Receiver<Exit>)> {
		// Held over the start, so that no child is reaped before its waiter is known, nor one that
		// failed to exec before the standard library has waited for it.
		let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
		let child = command.spawn()?;
		let (sender, receiver) = channel();
		let id = child.id() as i32;
		waiting.insert(id, sender);
		self.0.started.notify_one();
		let pid = Pid::from_raw(id).ok_or_else(|| io::Error::other("a child without a process id"))?;
		Ok((pid, receiver))
	}
}

impl Shared {
	fn reap(&self) {
		loop {
			match ended_child() {
				Ok(pid) => self.take(pid),
				Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
					// Orphans only come from children, so there is nothing to miss. A child started
					// since has its entry.
					let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
					if waiting.is_empty() {
						drop(self.started.wait(waiting));
					}
				}
				Err(error) => log::line(&format!("cannot wait for children: {error}")),
			}
		}
	}

	fn take(&self, pid: Pid) {
		let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
		// Fails if the standard library has taken it, after an exec that failed.
		let Ok(Some((_, status))) = waitpid(Some(pid), WaitOptions::NOHANG) else {
			return;
		};
		let exit = match (status.exit_status(), status.terminating_signal()) {
			(Some(code), _) => Exit::Code(code as u8),
			(None, Some(signal)) => Exit::Signal(signal),
			(None, None) => return,
		};
		if let Some(waiter) = waiting.remove(&pid.as_raw_nonzero().get()) {
			// Nobody may be interested any more.
			let _ = waiter.send(exit);
		}
	}
}

/// Waits for a child to end and leaves it to be reaped.
fn ended_child() -> io::Result<Pid> {
	// SAFETY: all zeros are a value of this plain C structure.
	let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
	// SAFETY: `info` is writable; waitid(2) with P_ALL takes no id.
	let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOWAIT) };
	if result < 0 {
		return Err(io::Error::last_os_error());
	}
	// SAFETY: waitid has succeeded, so it filled in the fields of a child's end.
	let pid = unsafe { info.si_pid() };
	Pid::from_raw(pid).ok_or_else(|| io::Error::other("waitid named no child"))
}
