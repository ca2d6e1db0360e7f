//! Messages for people: standard error, which is the console of a guest.

use std::io::Write;

/// Writes one line. A console that takes none is no reason to fail, and there is nobody else to tell.
pub fn line(message: &str) {
	let _ = writeln!(std::io::stderr(), "flashfork-agent: {message}");
}
