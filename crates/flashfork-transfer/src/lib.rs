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
pub use flashfork_proto::printable;
pub use receive::{Nonsense, Receiver, Sender};
pub use relay::{Passed, Peer, Side, relay};
pub use send::{Source, name_of};

/// Directories that may lie in one another: each is open while something is done in it.
pub const MOST_NESTED: usize = 256;
