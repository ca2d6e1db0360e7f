//! Why an experiment could not be run or finished.

use std::{fmt::Display, io, path::PathBuf};

/// An experiment's failure: what could not be done, why, and where it helps, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
	/// A system call or file operation failed.
	#[error("can't {what}: {source}")]
	System {
		/// What was being done, as it follows "can't".
		what: String,
		/// The system's reason.
		source: io::Error,
	},

	/// A size does not fit into memory; nothing was allocated.
	#[error(
		"{what} needs {} of memory and {} are free ({limit}); choose a smaller size or free memory",
		flashfork_terminal::size::show(*.needed),
		flashfork_terminal::size::show(*.available)
	)]
	DoesNotFit {
		/// What was to be run, for example "8G, method seal".
		what: String,
		/// Bytes needed.
		needed: u64,
		/// Bytes available under the tightest limit.
		available: u64,
		/// The tightest limit: `MemAvailable` or a control group's path.
		limit: String,
	},

	/// A worker process reported an error.
	#[error("worker {worker}: {text}")]
	Worker {
		/// Which worker.
		worker: String,
		/// Its own words.
		text: String,
		/// Whether they mean that nothing it measured can be believed.
		void: bool,
	},

	/// A worker process ended without being asked to.
	#[error("worker {worker} ended early ({status}){}", crate::worker::quoted(.stderr))]
	WorkerDied {
		/// Which worker.
		worker: String,
		/// How it ended.
		status: String,
		/// The end of what it wrote to its standard error.
		stderr: String,
	},

	/// A worker process did not answer in time.
	#[error(
		"worker {worker} has not answered for {seconds} s and was ended; the machine may be short of memory or CPU"
	)]
	WorkerSilent {
		/// Which worker.
		worker: String,
		/// How long it was waited for.
		seconds: u64,
	},

	/// A clone did not do what it was asked to; its measurement is worthless.
	#[error("a clone failed while {what}: {status}")]
	Clone {
		/// What the clone was doing.
		what: String,
		/// Its exit status or signal.
		status: String,
	},

	/// Something was not what it must be; what was measured is worthless.
	#[error("{0}; the measurement is void")]
	Void(String),

	/// An experiment failed in the middle; what it had measured before is here.
	#[error("{why}")]
	Unfinished {
		/// What was measured, with the failure among what is missing.
		outcome: Box<crate::Outcome>,
		/// Why it ended.
		why: Box<BenchError>,
	},

	/// The user wanted to stop before there was a figure.
	#[error("interrupted before anything was measured")]
	Interrupted,

	/// A record file is not one of ours or contradicts itself.
	#[error("{}: {why}", .path.display())]
	Record {
		/// The file.
		path: PathBuf,
		/// What is wrong with it.
		why: String,
	},

	/// A measurement or its preparation can't be done here.
	#[error("{0}")]
	Unable(String),
}

/// What comes of part of an experiment.
pub type Result<T = (), E = BenchError> = std::result::Result<T, E>;

/// What a failed system call or file operation is for an experiment.
pub trait OrCant<T> {
	/// [`BenchError::System`], with `what` was being done as it follows "can't".
	fn or_cant(self, what: impl Display) -> Result<T>;
}

impl<T, E: Cause> OrCant<T> for Result<T, E> {
	fn or_cant(self, what: impl Display) -> Result<T> {
		self.map_err(|error| BenchError::system(what.to_string(), error.cause()))
	}
}

/// Why a system call or file operation failed, as those say it that make it.
pub trait Cause {
	/// The system's reason.
	fn cause(self) -> io::Error;
}

impl Cause for io::Error {
	fn cause(self) -> io::Error {
		self
	}
}

impl Cause for rustix::io::Errno {
	fn cause(self) -> io::Error {
		self.into()
	}
}

impl Cause for serde_json::Error {
	fn cause(self) -> io::Error {
		self.into()
	}
}

impl Cause for procfs::ProcError {
	fn cause(self) -> io::Error {
		io::Error::other(self)
	}
}

/// A [`BenchError::Unable`] in these words, as of [`format!`].
#[macro_export]
macro_rules! unable {
	($($words:tt)*) => { $crate::BenchError::Unable(format!($($words)*)) };
}

/// Whether a program could not be started because it isn't there. Where PATH has a directory that may not be searched,
/// that is what the system says instead.
pub fn is_missing(error: &io::Error) -> bool {
	matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

/// What to do, behind what was being done, where the system denies it.
pub fn if_denied(error: &io::Error, cure: &str) -> String {
	match error.kind() {
		io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => format!(" ({cure})"),
		_ => String::new(),
	}
}

impl BenchError {
	/// A failed system call or file operation, with what was being done.
	pub fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
		Self::System { what: what.into(), source: source.into() }
	}

	/// What can't be done here, in the words of another error.
	pub fn unable(error: impl Display) -> Self {
		Self::Unable(error.to_string())
	}

	/// Whether it means that what was measured can't be believed: a child or a parent had other bytes or another end
	/// than it must have.
	pub fn voids(&self) -> bool {
		match self {
			Self::Clone { .. } | Self::Void(_) => true,
			Self::Worker { void, .. } => *void,
			Self::Unfinished { why, .. } => why.voids(),
			_ => false,
		}
	}
}
