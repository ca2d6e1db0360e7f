//! Why a run gave no outcome.

use std::{fmt, io, path::Path, time::Duration};

use flashfork_image::ImageError;

/// A run that could not be made, or a guest that did not live to report its command's end.
///
/// The message is one line; where the guest had already spoken, its last console lines follow,
/// indented. A command that fails is no error: see [`Status`](crate::Status).
#[derive(Debug, thiserror::Error)]
pub enum LabError {
	/// The options describe no possible guest.
	#[error("{message}")]
	Options {
		/// Which option, why, and what to give instead.
		message: String,
	},
	/// The kernel or the root can't be had, or another file operation on the host failed.
	#[error(transparent)]
	Image(#[from] ImageError),
	/// The root doesn't fit into guest memory.
	#[error(
		"the root of {root_mib} MiB needs {needed_mib} MiB of guest memory, {memory_mib} given: \
		 raise the memory or strip the binaries"
	)]
	RootTooLarge {
		/// Size of the root.
		root_mib: u64,
		/// Memory needed to unpack it and run.
		needed_mib: u64,
		/// Memory asked for.
		memory_mib: u32,
	},
	/// The caller's [`Output`](crate::Output) refused the command's output.
	#[error("cannot pass on the command's output: {0}")]
	Output(#[source] io::Error),
	/// QEMU gave up by itself.
	#[error("QEMU failed ({status}): {detail}{console}")]
	Qemu {
		/// Its exit status.
		status: std::process::ExitStatus,
		/// The end of what it wrote to standard error.
		detail: String,
		/// The guest's last console lines.
		console: Console,
	},
	/// The guest was still busy when its time was over, and was killed.
	#[error("the guest was killed after {} s while {phase}: raise the timeout if it was merely slow; an interrupt made it say where it was{console}",
		limit.as_secs_f64())]
	Timeout {
		/// The time it had.
		limit: Duration,
		/// What it was doing.
		phase: Phase,
		/// Its last console lines.
		console: Console,
	},
	/// The guest's kernel panicked.
	#[error("the guest's kernel panicked while {phase}{console}")]
	Panic {
		/// What the guest was doing.
		phase: Phase,
		/// Its last console lines.
		console: Console,
	},
	/// The guest went down, without a panic, before its command had ended.
	#[error("the guest went down while {phase}, without reporting the command's end{console}")]
	WentDown {
		/// What the guest was doing.
		phase: Phase,
		/// Its last console lines.
		console: Console,
	},
	/// The guest could not set up what the options ask for.
	#[error("the guest could not be set up: {reason}{console}")]
	Setup {
		/// What failed in the guest.
		reason: String,
		/// Its last console lines.
		console: Console,
	},
	/// The guest's init said something the lab doesn't understand.
	#[error("unexpected message from the guest's init: {0:?}")]
	Protocol(String),
}

impl LabError {
	/// The last console lines of the guest; empty when none was booted.
	#[must_use]
	pub fn console_tail(&self) -> &[String] {
		match self {
			Self::Qemu { console, .. }
			| Self::Timeout { console, .. }
			| Self::Panic { console, .. }
			| Self::WentDown { console, .. }
			| Self::Setup { console, .. } => &console.0,
			_ => &[],
		}
	}

	/// For `map_err`: wraps an I/O error with what was done to which path.
	pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
		move |source| ImageError::io(what, path)(source).into()
	}
}

/// What a guest was doing when it was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
	/// Between power-on and the start of the command.
	Booting,
	/// Running the command.
	Running,
}

impl fmt::Display for Phase {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		f.write_str(match self {
			Self::Booting => "booting",
			Self::Running => "running the command",
		})
	}
}

/// Console lines inside an error; shown one per line, indented, after the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Console(pub(crate) Vec<String>);

impl fmt::Display for Console {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		if self.0.is_empty() {
			return f.write_str("; its console stayed empty");
		}
		f.write_str("; the end of its console:")?;
		self.0.iter().try_for_each(|line| write!(f, "\n    {line}"))
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn console_lines_follow_the_message() {
		let error = LabError::Panic { phase: Phase::Booting, console: Console(vec!["one".into(), "two".into()]) };
		assert_eq!(
			error.to_string(),
			"the guest's kernel panicked while booting; the end of its console:\n    one\n    two"
		);
		assert_eq!(error.console_tail(), ["one", "two"]);
	}
}
