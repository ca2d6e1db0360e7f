//! A shell's process: one that this daemon has started, or an earlier one.

use rustix::{
	event::{PollFd, PollFlags, Timespec, poll},
	io::Errno,
	process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{
	io,
	os::fd::OwnedFd,
	process::{Child, ExitStatus},
	sync::Arc,
};

#[derive(Debug)]
pub(super) struct Process {
	pid: u32,
	descriptor: Arc<OwnedFd>,
	/// Whoever started it can tell how it ended.
	child: Option<Child>,
}

impl Process {
	pub(super) fn started(mut child: Child) -> io::Result<Self> {
		match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
			Ok(descriptor) => Ok(Self { pid: child.id(), descriptor: Arc::new(descriptor), child: Some(child) }),
			Err(e) => {
				// The one error counts.
				let _ = child.kill().and_then(|()| child.wait());
				Err(e.into())
			}
		}
	}

	pub(super) fn adopted(pid: u32, descriptor: Arc<OwnedFd>) -> Self {
		Self { pid, descriptor, child: None }
	}

	pub(super) fn pid(&self) -> u32 {
		self.pid
	}

	/// For others (pidfd).
	pub(super) fn descriptor(&self) -> Arc<OwnedFd> {
		self.descriptor.clone()
	}

	pub(super) fn lives(&mut self) -> bool {
		match &mut self.child {
			Some(child) => matches!(child.try_wait(), Ok(None)),
			None => !self.ended_within(Some(&Timespec::default())),
		}
	}

	pub(super) fn kill(&self) {
		// Fails if it has ended.
		let _ = pidfd_send_signal(&self.descriptor, Signal::KILL);
	}

	/// Waits for its end, and says how it came.
	pub(super) fn wait(&mut self) -> String {
		match &mut self.child {
			Some(child) => child.wait().map_or_else(|e| e.to_string(), |status| end(&status)),
			None => {
				self.ended_within(None);
				"an earlier daemon had started it, so how is unknown".into()
			}
		}
	}

	/// A process is readable when it has ended (pidfd_open(2)).
	fn ended_within(&self, patience: Option<&Timespec>) -> bool {
		loop {
			match poll(&mut [PollFd::new(&*self.descriptor, PollFlags::IN)], patience) {
				Err(Errno::INTR) => {}
				other => return other != Ok(0),
			}
		}
	}
}

fn end(status: &ExitStatus) -> String {
	use std::os::unix::process::ExitStatusExt;
	match status.signal() {
		Some(libc::SIGSYS) => "killed by its system call filter".into(),
		_ => status.to_string(),
	}
}
