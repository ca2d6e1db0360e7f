//! The host's side of a connection.

use std::io::{Read, Write};

use serde_bytes::ByteBuf;

use super::{AgentError, CHUNK, Exec, Exit, Hello, MAX_FRAME, Reply, Request, STDIN_WINDOW, Stamp};
use crate::{
	Preamble, PreambleError, Protocol,
	agent::{CloneIdentity, HookRun},
	frame::{self, FrameError},
};

/// Why the agent gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
	/// It is no agent, or one of another version.
	#[error("the guest's agent can't be used: {0}")]
	Preamble(#[from] PreambleError),
	/// The stream failed or carried something that is no message.
	#[error("the connection to the guest's agent broke: {0}")]
	Frame(#[from] FrameError),
	/// The agent went away.
	#[error("the guest's agent closed the connection")]
	Closed,
	/// The agent answered with something else.
	#[error("the guest's agent answered out of turn: {0}")]
	Unexpected(&'static str),
	/// The agent could not do it.
	#[error(transparent)]
	Agent(#[from] AgentError),
	/// A command wrote more than the caller wants to keep.
	#[error("the command wrote more than {limit} bytes")]
	OutputTooLong {
		/// The caller's limit.
		limit: usize,
	},
}

/// A connection to an agent after its hello.
#[derive(Debug)]
pub struct Client<R, W> {
	replies: Replies<R>,
	requests: Requests<W>,
	hello: Hello,
}

/// The sending half.
#[derive(Debug)]
pub struct Requests<W>(W);

/// The receiving half.
#[derive(Debug)]
pub struct Replies<R>(R);

/// A command's end and what it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
	/// How it ended.
	pub exit: Exit,
	/// Its standard output.
	pub stdout: Vec<u8>,
	/// Its standard error.
	pub stderr: Vec<u8>,
}

impl<W: Write> Requests<W> {
	/// Sends a request; its reply comes in its turn.
	pub fn send(&mut self, request: &Request) -> Result<(), FrameError> {
		frame::write(&mut self.0, request, MAX_FRAME)
	}
}

impl<R: Read> Replies<R> {
	/// The next reply.
	///
	/// # Errors
	/// [`ClientError::Closed`] or [`ClientError::Frame`].
	pub fn receive(&mut self) -> Result<Reply, ClientError> {
		frame::read(&mut self.0, MAX_FRAME)?.ok_or(ClientError::Closed)
	}
}

impl<R: Read, W: Write> Client<R, W> {
	/// Greets the agent and waits for its hello. Both halves are usually clones of one socket;
	/// timeouts are the socket's.
	pub fn connect(mut reader: R, mut writer: W) -> Result<Self, ClientError> {
		let preamble = Preamble(Protocol::Agent);
		preamble.send(&mut writer).map_err(PreambleError::Io)?;
		preamble.expect(&mut reader)?;
		let mut replies = Replies(reader);
		match replies.receive()? {
			Reply::Hello(hello) => Ok(Self { replies, requests: Requests(writer), hello }),
			_ => Err(ClientError::Unexpected("its first message is no hello")),
		}
	}

	/// What the agent said of itself.
	#[must_use]
	pub fn hello(&self) -> &Hello {
		&self.hello
	}

	/// Both halves, for a caller with a thread for each.
	#[must_use]
	pub fn split(self) -> (Requests<W>, Replies<R>) {
		(self.requests, self.replies)
	}

	/// Sends `request` and waits for its one reply; not for commands.
	///
	/// # Errors
	/// See [`ClientError`]; what the agent could not do is [`ClientError::Agent`].
	pub fn call(&mut self, request: &Request) -> Result<Reply, ClientError> {
		self.requests.send(request)?;
		self.reply()
	}

	/// Makes a clone one of its own: entropy, wall clock, and then its hooks, in one round trip.
	/// Ok means that the generator was reseeded and the clock stepped; a hook that failed is for the
	/// caller to judge.
	///
	/// # Errors
	/// See [`ClientError`]. The clone must then not be reported ready.
	pub fn renew(&mut self, entropy: &[u8], now: Stamp, identity: &CloneIdentity) -> Result<Vec<HookRun>, ClientError> {
		self.requests.send(&Request::Reseed(ByteBuf::from(entropy)))?;
		self.requests.send(&Request::SetClock(now))?;
		self.requests.send(&Request::Hooks(identity.clone()))?;
		let Reply::Reseeded = self.reply()? else {
			return Err(ClientError::Unexpected("no answer to the reseeding"));
		};
		let Reply::ClockSet { .. } = self.reply()? else {
			return Err(ClientError::Unexpected("no answer to the setting of the clock"));
		};
		let Reply::Hooked(runs) = self.reply()? else {
			return Err(ClientError::Unexpected("no answer to the running of hooks"));
		};
		Ok(runs)
	}

	/// Runs a command to its end with `stdin` as its standard input, and keeps up to `limit` bytes
	/// of each of its outputs.
	pub fn run(&mut self, exec: &Exec, stdin: &[u8], limit: usize) -> Result<Output, ClientError> {
		self.requests.send(&Request::Exec(exec.clone()))?;
		let Reply::Started { .. } = self.reply()? else {
			return Err(ClientError::Unexpected("no answer to the start of a command"));
		};
		let mut input = Input { left: stdin, credit: STDIN_WINDOW as usize, ended: false };
		input.send(&mut self.requests)?;
		let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
		loop {
			match self.reply()? {
				Reply::Stdout(bytes) => keep(&mut stdout, &bytes, limit)?,
				Reply::Stderr(bytes) => keep(&mut stderr, &bytes, limit)?,
				Reply::StdinCredit(bytes) => {
					input.credit = input.credit.saturating_add(bytes as usize);
					input.send(&mut self.requests)?;
				}
				Reply::Exited(exit) => return Ok(Output { exit, stdout, stderr }),
				_ => return Err(ClientError::Unexpected("a message that no running command causes")),
			}
		}
	}

	fn reply(&mut self) -> Result<Reply, ClientError> {
		match self.replies.receive()? {
			Reply::Failed(error) => Err(error.into()),
			reply => Ok(reply),
		}
	}
}

struct Input<'a> {
	left: &'a [u8],
	credit: usize,
	ended: bool,
}

impl Input<'_> {
	fn send(&mut self, requests: &mut Requests<impl Write>) -> Result<(), FrameError> {
		while !self.left.is_empty() && self.credit > 0 {
			let (now, later) = self.left.split_at(self.left.len().min(self.credit).min(CHUNK));
			requests.send(&Request::Stdin(ByteBuf::from(now)))?;
			self.credit -= now.len();
			self.left = later;
		}
		if self.left.is_empty() && !self.ended {
			self.ended = true;
			requests.send(&Request::StdinEnd)?;
		}
		Ok(())
	}
}

fn keep(kept: &mut Vec<u8>, bytes: &[u8], limit: usize) -> Result<(), ClientError> {
	if kept.len() + bytes.len() > limit {
		return Err(ClientError::OutputTooLong { limit });
	}
	kept.extend_from_slice(bytes);
	Ok(())
}
