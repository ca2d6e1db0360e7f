//! A connection to the agent of a clone.

use super::client::Client;
use flashfork_proto::{
	PreambleError,
	agent::{self, ClientError, MAX_CONNECTIONS},
	frame::FrameError,
};
use flashfork_terminal::CliError;
use std::{
	io::{BufReader, ErrorKind, Read},
	os::unix::net::UnixStream,
	sync::{
		Arc,
		atomic::{AtomicU64, Ordering},
	},
	time::Duration,
};

/// How long an agent may take to answer. One whose guest hangs never does.
pub const ANSWER: Duration = Duration::from_secs(60);

pub type Requests = agent::Requests<UnixStream>;
pub type Replies = agent::Replies<Patient>;

pub fn guest(e: impl std::fmt::Display) -> CliError {
	CliError::Unable(e.to_string())
}

/// A connection to the agent of a clone.
pub struct Connection {
	pub requests: Requests,
	pub replies: Replies,
	/// Under both. Reading ends after [`ANSWER`] until that is taken from it.
	pub socket: UnixStream,
	/// Bytes that the agent has taken: while there are more an answer may take longer.
	pub taken: Arc<AtomicU64>,
}

/// What the agent says.
pub struct Patient {
	stream: BufReader<UnixStream>,
	taken: Arc<AtomicU64>,
}

impl Read for Patient {
	fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
		loop {
			let before = self.taken.load(Ordering::Relaxed);
			match self.stream.read(buffer) {
				Err(e) if e.kind() == ErrorKind::WouldBlock && self.taken.load(Ordering::Relaxed) != before => {}
				other => return other,
			}
		}
	}
}

/// Greets the clone's agent.
pub fn connect(client: &Client, clone: &str) -> Result<Connection, CliError> {
	let stream = client.upgrade(&format!("/v1/clones/{clone}/agent"))?;
	greet(stream, ANSWER).map_err(|e| unanswered(e, clone))
}

fn greet(stream: BufReader<UnixStream>, patience: Duration) -> Result<Connection, ClientError> {
	let copy = || stream.get_ref().try_clone().map_err(FrameError::Io);
	let (socket, writer) = (copy()?, copy()?);
	socket.set_read_timeout(Some(patience)).map_err(FrameError::Io)?;
	let taken = Arc::<AtomicU64>::default();
	let patient = Patient { stream, taken: taken.clone() };
	let (requests, replies) = agent::Client::connect(patient, writer)?.split();
	Ok(Connection { requests, replies, socket, taken })
}

/// Why there is no answer; `WouldBlock` is the end of the patience.
pub fn unanswered(error: ClientError, clone: &str) -> CliError {
	let kind = match &error {
		ClientError::Frame(FrameError::Io(e)) | ClientError::Preamble(PreambleError::Io(e)) => Some(e.kind()),
		_ => None,
	};
	match (kind, &error) {
		(Some(ErrorKind::WouldBlock), _) => CliError::Unable(format!(
			"the agent of clone {clone} gives no answer for {} s: its guest hangs, or has too much to do; \
             `flashfork vm console {clone}` shows what it says, `flashfork vm rm {clone}` ends it",
			ANSWER.as_secs()
		)),
		(Some(ErrorKind::UnexpectedEof), ClientError::Preamble(_)) => CliError::Unable(format!(
			"the agent of clone {clone} takes no connection: the guest has ended or runs no agent, or \
             {MAX_CONNECTIONS} go to it already"
		)),
		_ => guest(error),
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_guest_that_hangs_is_not_waited_for_for_ever() {
		let (ours, _theirs) = UnixStream::pair().unwrap();
		let error = greet(BufReader::new(ours), Duration::from_millis(20)).map(drop).unwrap_err();
		let said = unanswered(error, "web-1").to_string();
		assert!(said.contains("gives no answer") && said.contains("flashfork vm rm web-1"), "{said}");
	}

	#[test]
	fn an_agent_that_takes_no_connection_is_told_from_one_that_breaks() {
		let (ours, theirs) = UnixStream::pair().unwrap();
		theirs.shutdown(std::net::Shutdown::Write).unwrap();
		let error = greet(BufReader::new(ours), ANSWER).map(drop).unwrap_err();
		assert!(unanswered(error, "web-1").to_string().contains("takes no connection"));
	}
}
