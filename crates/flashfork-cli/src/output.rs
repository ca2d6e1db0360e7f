//! Standard output, whose failures are failures: a full disk is reported, a closed pipe ends the command as it would any other.

use crate::error::CliError;
use std::io::Write;

/// Prints a text and a newline.
pub fn say(text: &str) -> Result<(), CliError> {
    writeln!(std::io::stdout().lock(), "{text}").map_err(CliError::file("write", "standard output"))
}

/// Lets a closed pipe end this process quietly: Rust starts with SIGPIPE ignored.
pub fn end_with_the_pipe() {
    // SAFETY: sets the default action; no handler is involved.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
