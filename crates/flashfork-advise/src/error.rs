//! Why a process could not be looked at.

use std::io;

/// A failure in words: what could not be done, why, and where it helps, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdviseError {
	/// A system call or file operation failed.
	#[error("can't {what}: {source}")]
	System {
		/// What was being done, as it follows "can't".
		what: String,
		/// The system's reason.
		source: io::Error,
	},
	/// It can't be looked at, or its copy doesn't fit into memory.
	#[error("{0}")]
	Unable(String),
}

impl AdviseError {
	/// A failed system call or file operation, with what was being done.
	pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
		Self::System { what: what.into(), source: source.into() }
	}
}
