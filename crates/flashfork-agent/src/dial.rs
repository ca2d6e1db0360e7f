//! Connections of the host to ports of the guest.

use std::{
	io::{ErrorKind as Io, Read},
	net::{Ipv4Addr, TcpStream},
	os::fd::{AsFd, BorrowedFd},
	sync::atomic::{AtomicUsize, Ordering},
	time::Duration,
};

use flashfork_proto::{
	agent::{AgentError, ErrorKind, MAX_DIALED, MAX_FRAME, Reply, Request},
	frame,
};
use flashfork_transfer::{Passed, Peer, Side, relay};
use serde_bytes::ByteBuf;

use crate::conn::Conn;

/// A program whose queue of connections is full doesn't answer at all.
const PATIENCE: Duration = Duration::from_secs(30);

/// Those that are there.
static DIALED: AtomicUsize = AtomicUsize::new(0);

/// Connects to `port` and passes that on over `conn`, whose requests come from `reader`, to the end of either. An error
/// is for the host.
pub fn run(port: u16, conn: &Conn, reader: &mut impl Read) -> Result<(), AgentError> {
	let _seat = Seat::take()?;
	let place = (Ipv4Addr::LOCALHOST, port).into();
	let tcp = TcpStream::connect_timeout(&place, PATIENCE).map_err(|error| AgentError {
		kind: if error.kind() == Io::ConnectionRefused { ErrorKind::NotFound } else { ErrorKind::Failed },
		message: match error.kind() {
			Io::ConnectionRefused => format!("nobody listens at 127.0.0.1:{port} in the guest"),
			_ => format!("the guest can't connect to 127.0.0.1:{port}: {error}"),
		},
	})?;
	// A small answer isn't held back until there is more.
	let _ = tcp.set_nodelay(true);
	if conn.send(&Reply::Dialed) {
		let receive = || match frame::read(reader, MAX_FRAME) {
			Ok(Some(Request::Data(bytes))) => Some(Passed::Data(bytes)),
			Ok(Some(Request::DataEnd)) => Some(Passed::End),
			_ => None,
		};
		relay(&tcp, &Host(conn), receive, Side::Guest).map_err(|error| AgentError {
			kind: ErrorKind::Failed,
			message: format!("the connection can't be passed on: {error}"),
		})?;
	}
	Ok(())
}

struct Host<'a>(&'a Conn);

impl AsFd for Host<'_> {
	fn as_fd(&self) -> BorrowedFd<'_> {
		self.0.as_fd()
	}
}

impl Peer for Host<'_> {
	fn send(&self, data: Option<&[u8]>) -> bool {
		self.0.send(&data.map_or(Reply::DataEnd, |bytes| Reply::Data(ByteBuf::from(bytes))))
	}

	fn hang_up(&self) {
		self.0.hang_up();
	}
}

/// One of [`MAX_DIALED`].
struct Seat;

impl Seat {
	fn take() -> Result<Self, AgentError> {
		let more = |count| (count < MAX_DIALED).then_some(count + 1);
		if DIALED.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok() {
			return Ok(Self);
		}
		let message = format!("{MAX_DIALED} connections go to ports of the guest already, as many as there may be");
		Err(AgentError { kind: ErrorKind::Busy, message })
	}
}

impl Drop for Seat {
	fn drop(&mut self) {
		DIALED.fetch_sub(1, Ordering::AcqRel);
	}
}
