//! The messages between flashfork's command, VM daemon, shells and guest agent.
//!
//! Each part is versioned by itself: [`agent`], [`signal`], [`shell`] and [`api`]. `README.md` says between whom, and
//! how they are carried.
//!
//! No side trusts the other: a message has a greatest length, whatever it holds decodes or is an
//! error that says what is wrong, and no length a peer names is allocated before that much arrived.
//! Nothing here opens, waits for or decides anything.

pub mod agent;
pub mod api;
pub mod frame;
pub mod function;

mod preamble;
pub mod shape;
pub mod shell;
pub mod signal;

pub use preamble::{PREAMBLE_LEN, Preamble, PreambleError, Protocol};

/// Identifies one clone among all ever made: 128 random bits, which also go to the guest as its
/// VM generation id.
pub type Generation = [u8; 16];

/// `generation` as 32 hexadecimal digits, as names, logs and hooks show it.
#[must_use]
pub fn generation_hex(generation: &Generation) -> String {
	generation.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What somebody else says, for a terminal, on one line: control characters are spelt out.
#[must_use]
pub fn printable(text: &str) -> String {
	text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
	#[test]
	fn a_terminal_is_told_nothing_by_a_guest() {
		assert_eq!(super::printable("a\x1b[2Jé\n\u{9b}"), "a\\u{1b}[2Jé\\n\\u{9b}");
	}
}
