//! The guest agent's protocol.
//!
//! The agent listens; the host connects, and both send a [`Preamble`](crate::Preamble). The agent's
//! first frame is its [`Hello`], unasked, and then it answers each [`Request`] with one [`Reply`],
//! in order: requests may be sent without waiting for the replies before them.
//!
//! [`Request::Exec`] is the exception. Its replies are [`Reply::Started`], any number of
//! [`Reply::Stdout`], [`Reply::Stderr`] and [`Reply::StdinCredit`], and last [`Reply::Exited`]; or
//! at once [`Reply::Failed`]. A connection runs one command at a time.
//!
//! Three more take a connection over:
//!
//! | request | replies | then |
//! |---|---|---|
//! | [`Request::Dial`] | [`Reply::Dialed`] or [`Reply::Failed`] | [`Request::Data`] and [`Reply::Data`] at any time, each way up to its [`Request::DataEnd`] or [`Reply::DataEnd`]. The agent closes the connection when both have ended. A connection that ends before is a connection that was cut: both sides reset theirs |
//! | [`Request::Fetch`] | [`Reply::Piece`] up to [`Piece::End`], or [`Reply::Failed`] | other requests |
//! | [`Request::Store`] | [`Reply::Storing`] or [`Reply::Failed`] | [`Request::Piece`] up to [`Piece::End`], and meanwhile [`Reply::Trouble`]; last [`Reply::Stored`] |
//!
//! **Flow.** The host may have [`STDIN_WINDOW`] bytes of standard input under way; what the command
//! has taken comes back as credit. So the agent always reads on, and a signal overtakes input that
//! the command does not read. Everything else is held back by the stream itself.
//!
//! **Lost connections.** A command dies (SIGKILL to its process group) when its connection does,
//! unless [`Exec::survives`]: every connection of a template is lost in its clones, and the command
//! that warmed it may have to live on.

mod client;
mod message;
mod piece;

pub use client::{Client, ClientError, Output, Replies, Requests};
pub use message::{
	AgentError, CloneIdentity, ErrorKind, Exec, Exit, Hello, HookRun, Reply, Request, Stamp, Store, TerminalSize,
};
pub use piece::Piece;

/// Version of this protocol. Any change of a message is a new version.
pub const VERSION: u16 = 2;

/// Greatest length of a frame, in bytes.
pub const MAX_FRAME: usize = 1 << 20;

/// Greatest number of bytes of standard input, output, error, of a connection or of a file in one frame.
pub const CHUNK: usize = 64 << 10;

/// Bytes of standard input that may be sent ahead of credit.
pub const STDIN_WINDOW: u32 = 256 << 10;

/// Connections that an agent serves at once; more are closed as they come.
pub const MAX_CONNECTIONS: usize = 128;

/// Of these, those that may have dialled a port: some are always left for commands.
pub const MAX_DIALED: usize = 96;

/// The vsock port on which the agent listens.
pub const PORT: u32 = 6640;

/// The vsock port of the host to which the agent reports, with a preamble and a [`Hello`], that the
/// guest is ready, where I/O ports ([`crate::signal`]) are not wanted.
pub const READY_PORT: u32 = 6641;
