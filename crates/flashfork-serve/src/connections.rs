//! Connections of a process's runtime client with the server, as many as it opens, so long as that is open by which it
//! asks for them (`warm/source.rs` of flashfork-preload).

use crate::runtime::{self, Line};
use futures_util::{StreamExt, stream::FuturesUnordered};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt::set_socket_linger};
use std::{
	io::{IoSlice, Result},
	net::TcpListener,
	os::fd::{AsFd, OwnedFd},
	sync::Arc,
	time::Duration,
};
use tokio::{
	io::AsyncReadExt,
	net::{TcpStream, UnixStream},
	time::timeout,
};

/// Most that are open at a time; more are refused after a while.
const MOST: usize = 32;
const PATIENCE: Duration = Duration::from_secs(1);

/// What is passed to a clone.
const CONNECTION: u8 = 0;
const DOOR: u8 = 1;

/// What they come from, for a clone that is to be made, with the first of them.
pub struct Source {
	socket: UnixStream,
	first: TcpStream,
}

impl Source {
	/// The other end is the clone's standard input. `door`: what it goes to its control group by, before all else.
	pub fn new(door: Option<OwnedFd>) -> Result<(Source, OwnedFd)> {
		let (socket, theirs) = std::os::unix::net::UnixStream::pair()?;
		if let Some(door) = door {
			pass(&socket, DOOR, door)?;
		}
		let first = give(&socket)?;
		socket.set_nonblocking(true)?;
		Ok((Source { socket: UnixStream::from_std(socket)?, first }, theirs.into()))
	}

	/// Serves all, until these have ended and no more can be asked for.
	pub async fn serve(mut self, line: Arc<Line>) {
		let serve = |stream| runtime::serve(stream, line.clone());
		let mut served = FuturesUnordered::from_iter([serve(self.first)]);
		let (mut is_open, mut byte) = (true, [0]);
		loop {
			tokio::select! {
				read = self.socket.read(&mut byte), if is_open => {
					is_open = matches!(read, Ok(1));
					if served.len() >= MOST {
						// What the clone has closed before it asked may not have been seen yet.
						let _ = timeout(PATIENCE, served.next()).await;
					}
					match (is_open && served.len() < MOST).then(|| give(&self.socket)) {
						Some(Ok(stream)) => served.push(serve(stream)),
						// The byte alone says that there is none.
						_ => is_open &= matches!(self.socket.try_write(b"n"), Ok(1)),
					}
				}
				Some(()) = served.next() => {}
				else => return,
			}
		}
	}
}

/// A connection, of which the other end is passed through the socket.
fn give(socket: impl AsFd) -> Result<TcpStream> {
	let (ours, theirs) = pair()?;
	pass(socket, CONNECTION, theirs.into())?;
	ours.set_nonblocking(true)?;
	TcpStream::from_std(ours)
}

fn pass(socket: impl AsFd, what: u8, descriptor: OwnedFd) -> Result<()> {
	let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
	let mut with = SendAncillaryBuffer::new(&mut room);
	let all = [descriptor.as_fd()];
	with.push(SendAncillaryMessage::ScmRights(&all));
	sendmsg(socket, &[IoSlice::new(&[what])], &mut with, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
	Ok(())
}

/// Two ends of a connection, both this process's: what is at either end is known. Nothing of it waits when it ends.
fn pair() -> Result<(std::net::TcpStream, std::net::TcpStream)> {
	let listener = TcpListener::bind("127.0.0.1:0")?;
	let theirs = std::net::TcpStream::connect(listener.local_addr()?)?;
	loop {
		let (ours, peer) = listener.accept()?;
		if peer == theirs.local_addr()? {
			ours.set_nodelay(true)?;
			theirs.set_nodelay(true)?;
			set_socket_linger(&ours, Some(Duration::ZERO))?;
			return Ok((ours, theirs));
		}
	}
}
