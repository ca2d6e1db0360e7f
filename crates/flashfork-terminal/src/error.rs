//! What ends a command with exit code 1 and one line.

use std::{
	fmt,
	io::{self, ErrorKind},
	path::PathBuf,
};

/// A failure in words: what, why, what to do.
///
/// Those of the libraries say all that, so `?` takes any of them. A bare [`io::Error`] doesn't say what was being done:
/// that is what [`CliError::file`] adds. So this is no [`std::error::Error`] itself.
#[derive(Debug)]
pub enum CliError {
	/// A file operation failed.
	File {
		/// The verb.
		what: &'static str,
		/// The file.
		path: PathBuf,
		/// The system's reason.
		source: io::Error,
	},
	/// Anything else, already in words.
	Unable(String),
}

impl CliError {
	/// For `map_err` on file operations.
	pub fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> CliError {
		let path = path.into();
		move |source| CliError::File { what, path, source }
	}

	/// Adds what to do where the system denies it.
	#[must_use]
	pub fn if_denied(self, cure: &str) -> CliError {
		match &self {
			CliError::File { source, .. }
				if matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
			{
				CliError::Unable(format!("{self}; {cure}"))
			}
			_ => self,
		}
	}
}

impl fmt::Display for CliError {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		match self {
			CliError::File { what, path, source } => write!(f, "can't {what} {}: {source}", path.display()),
			CliError::Unable(text) => f.write_str(text),
		}
	}
}

impl<E: std::error::Error> From<E> for CliError {
	fn from(error: E) -> Self {
		CliError::Unable(error.to_string())
	}
}
