//! Files between this host and a clone.

use super::{
	agent::{self, ANSWER, Connection, Replies, Requests, guest, unanswered},
	client::Client,
};
use flashfork_proto::{
	agent::{AgentError, ClientError, Piece, Reply, Request, Store},
	frame::FrameError,
};
use flashfork_terminal::{CliError, output};
use flashfork_transfer::{Destination, Receiver, Sender, Source, name_of, printable};
use serde_bytes::ByteBuf;
use std::{
	ffi::OsStr,
	net::Shutdown,
	os::unix::ffi::OsStrExt,
	path::Path,
	process::ExitCode,
	sync::atomic::{AtomicU64, Ordering},
	thread,
};

/// What could not be copied, a line each; the rest is.
#[derive(Default)]
struct Troubles(AtomicU64);

impl Troubles {
	fn tell(&self, line: &str) {
		self.0.fetch_add(1, Ordering::Relaxed);
		output::complain(&guest(line));
	}

	fn status(&self) -> ExitCode {
		if self.0.load(Ordering::Relaxed) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
	}
}

/// Copies what is at `from` in the clone to `to` here.
pub fn from_guest(client: &Client, clone: &str, from: &Path, to: &Path) -> Result<ExitCode, CliError> {
	let destination = Destination::find(to, name_of(from)).map_err(CliError::file("copy to", to))?;
	let Connection { mut requests, mut replies, .. } = agent::connect(client, clone)?;
	let failed = |e| unanswered(e, clone);
	requests.send(&Request::Fetch(bytes(from.as_os_str()))).map_err(|e| failed(e.into()))?;
	let mut receiver = Receiver::new(destination, Sender::Guest);
	let troubles = Troubles::default();
	while !receiver.has_ended() {
		match replies.receive().map_err(failed)? {
			Reply::Piece(piece) => {
				if let Some(trouble) = receiver.take(piece)? {
					troubles.tell(&trouble);
				}
			}
			Reply::Failed(error) => return Err(refused(clone, &error)),
			_ => return Err(out_of_turn()),
		}
	}
	Ok(troubles.status())
}

/// Copies what is at `from` here to `to` in the clone.
pub fn to_guest(client: &Client, clone: &str, from: &Path, to: &Path) -> Result<ExitCode, CliError> {
	let source = Source::open(from).map_err(CliError::file("copy", from))?;
	let Connection { mut requests, mut replies, socket, taken } = agent::connect(client, clone)?;
	let failed = |e| unanswered(e, clone);
	let store = Store { path: bytes(to.as_os_str()), name: name_of(from).map(bytes) };
	requests.send(&Request::Store(store)).map_err(|e| failed(e.into()))?;
	match replies.receive().map_err(failed)? {
		Reply::Storing => {}
		Reply::Failed(error) => return Err(refused(clone, &error)),
		_ => return Err(out_of_turn()),
	}
	// A guest that takes nothing for so long hangs, too.
	socket.set_write_timeout(Some(ANSWER)).map_err(guest)?;
	let troubles = Troubles::default();
	let (heard, sent) = thread::scope(|scope| {
		let listener = scope.spawn(|| {
			let heard = listen(&mut replies, &troubles);
			// When it is over nobody takes the rest. Fails if the connection is gone.
			let _ = socket.shutdown(Shutdown::Write);
			heard
		});
		let sent = send(source, &mut requests, &troubles, &taken);
		if sent.is_err() {
			// There is nothing more to come.
			let _ = socket.shutdown(Shutdown::Read);
		}
		(listener.join().unwrap_or(Err(ClientError::Closed)), sent)
	});
	match (heard, sent) {
		(Ok(None), _) => Ok(troubles.status()),
		(Ok(Some(error)), _) => Err(refused(clone, &error)),
		// That it takes no more says more than that it says no more.
		(Err(ClientError::Closed), Err(error)) => Err(failed(error.into())),
		(Err(error), _) => Err(failed(error)),
	}
}

/// What the agent says of a copy sent to it, up to the end; that may be a failure.
fn listen(replies: &mut Replies, troubles: &Troubles) -> Result<Option<AgentError>, ClientError> {
	loop {
		match replies.receive()? {
			Reply::Trouble(trouble) => troubles.tell(&printable(&trouble)),
			Reply::Stored => return Ok(None),
			Reply::Failed(error) => return Ok(Some(error)),
			_ => return Err(ClientError::Unexpected("something else than what became of a copy")),
		}
	}
}

fn send(source: Source, requests: &mut Requests, troubles: &Troubles, taken: &AtomicU64) -> Result<(), FrameError> {
	source.send(&mut |piece| {
		if let Piece::Trouble(trouble) = &piece {
			troubles.tell(trouble);
		}
		requests.send(&Request::Piece(piece))?;
		taken.fetch_add(1, Ordering::Relaxed);
		Ok(())
	})
}

fn bytes(path: &OsStr) -> ByteBuf {
	ByteBuf::from(path.as_bytes())
}

fn refused(clone: &str, error: &AgentError) -> CliError {
	CliError::Unable(format!("clone {clone}: {}", printable(&error.message)))
}

fn out_of_turn() -> CliError {
	CliError::Unable("the guest's agent answered out of turn".into())
}
