//! What the command and the guest's agent do alike with what goes between them: connections are passed on
//! ([`relay`]), files are sent ([`Source`]) and received ([`Receiver`]).
//!
//! The host trusts no guest: a receiver never follows a link, goes nowhere but into directories that it has opened
//! itself, and makes files, directories and links only.

mod destination;
mod link;
mod receive;
mod relay;
mod send;

pub use destination::Destination;
pub use receive::{Nonsense, Receiver, Sender};
pub use relay::{Passed, Peer, Side, relay};
pub use send::{Source, name_of};

/// Directories that may lie in one another: each is open while something is done in it.
pub const MOST_NESTED: usize = 256;

/// What somebody else wrote, for a terminal: control characters are spelt out.
#[must_use]
pub fn printable(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_terminal_is_told_nothing_by_a_guest() {
        assert_eq!(super::printable("a\x1b[2Jé\n\u{9b}"), "a\\u{1b}[2Jé\\n\\u{9b}");
    }
}
