//! Files of the guest, sent to the host and received from it.

use std::{
	ffi::OsStr,
	io::{self, Read},
	os::unix::ffi::OsStrExt,
	path::Path,
};

use flashfork_proto::{
	agent::{AgentError, ErrorKind, MAX_FRAME, Piece, Reply, Request, Store},
	frame,
};
use flashfork_transfer::{Destination, Receiver, Sender, Source};

use crate::conn::Conn;

/// The host reads no more.
const DEAF: &str = "the host does not read its replies";

/// Sends what is at `path`, over `conn`; no reply is left to send then.
pub fn fetch(path: &[u8], conn: &Conn) -> Result<Option<Reply>, String> {
	let source = match absolute(path).and_then(|path| Source::open(path).map_err(|error| failed(path, &error))) {
		Ok(source) => source,
		Err(error) => return Ok(Some(Reply::Failed(error))),
	};
	let mut pass = |piece: Piece| if conn.send(&Reply::Piece(piece)) { Ok(()) } else { Err(DEAF.to_owned()) };
	source.send(&mut pass).map(|()| None)
}

/// Receives what `store` announces, from `reader`. An error is the host's fault.
pub fn store(store: &Store, conn: &Conn, reader: &mut impl Read) -> Result<Reply, String> {
	let name = store.name.as_deref().map(|name| OsStr::from_bytes(name));
	let found = absolute(&store.path)
		.and_then(|path| Destination::find(path, name).map_err(|error| failed(path, &error)))
		.and_then(|destination| if name.is_some_and(is_no_name) { Err(no_name()) } else { Ok(destination) });
	let destination = match found {
		Ok(destination) => destination,
		Err(error) => return Ok(Reply::Failed(error)),
	};
	let mut receiver = Receiver::new(destination, Sender::Host);
	if !conn.send(&Reply::Storing) {
		return Err(DEAF.into());
	}
	while !receiver.has_ended() {
		let piece = match frame::read(reader, MAX_FRAME) {
			Ok(Some(Request::Piece(piece))) => piece,
			Ok(Some(_)) => return Err("another request in the middle of a copy".into()),
			Ok(None) => return Err("the host went away in the middle of a copy".into()),
			Err(error) => return Err(error.to_string()),
		};
		let own = matches!(piece, Piece::Trouble(_));
		let trouble = receiver.take(piece).map_err(|nonsense| nonsense.to_string())?;
		// What the host couldn't read it knows.
		if let Some(trouble) = trouble.filter(|_| !own)
			&& !conn.send(&Reply::Trouble(trouble))
		{
			return Err(DEAF.into());
		}
	}
	Ok(Reply::Stored)
}

fn absolute(path: &[u8]) -> Result<&Path, AgentError> {
	let path = Path::new(OsStr::from_bytes(path));
	if path.is_absolute() {
		return Ok(path);
	}
	let message = format!("{} is no absolute path of the guest", path.display());
	Err(AgentError { kind: ErrorKind::Invalid, message })
}

fn is_no_name(name: &OsStr) -> bool {
	Path::new(name).file_name() != Some(name)
}

fn no_name() -> AgentError {
	AgentError { kind: ErrorKind::Invalid, message: "a copy's name that is none".into() }
}

fn failed(path: &Path, error: &io::Error) -> AgentError {
	let path = path.display();
	match error.kind() {
		io::ErrorKind::NotFound => {
			AgentError { kind: ErrorKind::NotFound, message: format!("the guest has no {path}") }
		}
		io::ErrorKind::PermissionDenied => {
			AgentError { kind: ErrorKind::Denied, message: format!("the guest denies {path}: {error}") }
		}
		_ => AgentError { kind: ErrorKind::Failed, message: format!("{path} in the guest: {error}") },
	}
}
