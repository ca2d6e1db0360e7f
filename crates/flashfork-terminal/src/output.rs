//! Standard output, whose failures are failures: a full disk is reported, a closed pipe ends the command as it would
//! any other.

use crate::error::CliError;
use std::{io::Write, process::ExitCode};

/// Prints a text and a newline.
pub fn say(text: &str) -> Result<(), CliError> {
	writeln!(std::io::stdout().lock(), "{text}").map_err(CliError::file("write", "standard output"))
}

/// Prints an error, one line, at once: a clone may write there at the same time. Nobody could be told that standard
/// error is full.
pub fn complain(error: &CliError) {
	let _ = std::io::stderr().lock().write_all(format!("flashfork: {error}\n").as_bytes());
}

/// How a program ends that has come to `result`.
pub fn end(result: Result<ExitCode, CliError>) -> ExitCode {
	result.unwrap_or_else(|error| {
		complain(&error);
		ExitCode::FAILURE
	})
}

/// Lets a closed pipe end this process quietly: Rust starts with SIGPIPE ignored.
pub fn end_with_the_pipe() {
	// SAFETY: sets the default action; no handler is involved.
	unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// From now on a closed pipe is a failure, for what must be tidied up.
pub fn outlive_the_pipe() {
	// SAFETY: ignores a signal; no handler is involved.
	unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Ends this process as a closed pipe does, if that is what `error` is about.
pub fn end_if_closed(error: &CliError) {
	if let CliError::File { what: "write", source, .. } = error
		&& source.kind() == std::io::ErrorKind::BrokenPipe
	{
		end_with_the_pipe();
		// SAFETY: its default action ends the process.
		unsafe { libc::raise(libc::SIGPIPE) };
	}
}
