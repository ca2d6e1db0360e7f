//! What a run gives back.

use std::{fmt, time::Duration};

/// How a command in a guest ended, and what its kernel had to say.
#[derive(Clone, Debug)]
pub struct Outcome {
	/// How the command ended.
	pub status: Status,
	/// What executed the guest's code.
	pub accel: Accel,
	/// `uname -r` in the guest.
	pub kernel_release: String,
	/// From the start of QEMU until the command started.
	pub boot: Duration,
	/// From the start of the command until its end and all its output were in.
	pub command: Duration,
	/// Console lines in which the kernel reports a fault of its own: `BUG:`, `Oops`, `WARNING:`
	/// and the like, in order, at most 128. A test of kernel-facing code wants this empty.
	pub kernel_warnings: Vec<String>,
	/// Processes the kernel killed for want of memory, in the whole guest or a cgroup.
	pub oom_kills: u32,
	/// The last lines of the console, at most 128.
	pub console_tail: Vec<String>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
	/// It exited with this code. 126 and 127 also mean that it couldn't be run or found; its
	/// standard error says so then.
	Exited(i32),
	/// It was killed by this signal.
	Signaled(i32),
}

impl Status {
	/// Whether the command exited with 0.
	#[must_use]
	pub fn success(self) -> bool {
		self == Self::Exited(0)
	}

	/// The code a shell would report: the exit code, or 128 plus the signal.
	#[must_use]
	pub fn shell_code(self) -> i32 {
		match self {
			Self::Exited(code) => code,
			Self::Signaled(signal) => 128 + signal,
		}
	}
}

impl fmt::Display for Status {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		match self {
			Self::Exited(code) => write!(f, "exit code {code}"),
			Self::Signaled(signal) => write!(f, "killed by signal {signal}"),
		}
	}
}

/// What executes a guest's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
	/// The host's `/dev/kvm`.
	Kvm,
	/// QEMU's emulator on one host thread. Timings taken under it mean nothing.
	Tcg,
}

impl fmt::Display for Accel {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		f.write_str(match self {
			Self::Kvm => "KVM",
			Self::Tcg => "emulation (TCG)",
		})
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn shell_codes() {
		assert_eq!(Status::Exited(7).shell_code(), 7);
		assert_eq!(Status::Signaled(9).shell_code(), 137);
		assert!(Status::Exited(0).success());
		assert!(!Status::Signaled(0).success());
	}
}
