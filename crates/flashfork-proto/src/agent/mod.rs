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
//! **Flow.** The host may have [`STDIN_WINDOW`] bytes of standard input under way; what the command
//! has taken comes back as credit. So the agent always reads on, and a signal overtakes input that
//! the command does not read. Output is held back by the stream itself.
//!
//! **Lost connections.** A command dies (SIGKILL to its process group) when its connection does,
//! unless [`Exec::survives`]: every connection of a template is lost in its clones, and the command
//! that warmed it may have to live on.

mod client;
mod message;

pub use client::{Client, ClientError, Output, Replies, Requests};
pub use message::{
    AgentError, CloneIdentity, ErrorKind, Exec, Exit, Hello, HookRun, Reply, Request, Stamp, TerminalSize,
};

/// Version of this protocol. Any change of a message is a new version.
pub const VERSION: u16 = 1;

/// Greatest length of a frame, in bytes.
pub const MAX_FRAME: usize = 1 << 20;

/// Greatest number of bytes of standard input, output or error in one frame.
pub const CHUNK: usize = 64 << 10;

/// Bytes of standard input that may be sent ahead of credit.
pub const STDIN_WINDOW: u32 = 256 << 10;

/// The vsock port on which the agent listens.
pub const PORT: u32 = 6640;

/// The vsock port of the host to which the agent reports, with a preamble and a [`Hello`], that the
/// guest is ready, where I/O ports ([`crate::signal`]) are not wanted.
pub const READY_PORT: u32 = 6641;
