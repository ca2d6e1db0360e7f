//! A TCP connection here and its other half in another machine, with messages between.

use rustix::{
	event::{PollFd, PollFlags, poll},
	io::{Errno, retry_on_intr},
	net::{SendFlags, send, sockopt::set_socket_linger},
};
use serde_bytes::ByteBuf;
use std::{
	io::{self, ErrorKind, Read},
	net::{Shutdown, TcpStream},
	os::fd::{AsFd, BorrowedFd},
	sync::atomic::{AtomicU8, Ordering},
	thread,
	time::Duration,
};

const CHUNK: usize = 32 << 10;

/// Who connected, or was connected to, here has sent all.
const OURS: u8 = 1;
/// Who is at the other half has.
const THEIRS: u8 = 2;
/// It ends before both have.
const CUT: u8 = 4;
/// The other machine is about to be told of [`OURS`]: it may hang up before that is noted, and has cut nothing.
const SAYING: u8 = 8;

/// What comes from the other machine.
pub enum Passed {
	/// Bytes for the connection here.
	Data(ByteBuf),
	/// No more will come.
	End,
}

/// The way to the other machine, over this descriptor.
pub trait Peer: Sync + AsFd {
	/// Passes bytes on, or with none the end; whether it could.
	fn send(&self, data: Option<&[u8]>) -> bool;
	/// Ends the connection to the other machine, so that waiting for it ends, too.
	fn hang_up(&self);
}

/// Which of the two this is.
#[derive(Clone, Copy)]
pub enum Side {
	/// The host, which waits for the guest to hang up: what it has sent is taken then.
	Host,
	/// The guest, which hangs up when both have sent all. The host's end is closed before that only if nobody is there
	/// any more.
	Guest,
}

/// Passes `tcp` on until both have sent all, and the end of one is passed on while the other goes on. If it ends in any
/// other way, then so does `tcp`: with a reset, since an end would say that all had come. Whether it ended well.
///
/// Nothing is kept but what is under way: who doesn't read holds up who writes.
///
/// # Errors
/// There can be no threads for it.
pub fn relay(
	tcp: &TcpStream,
	peer: &impl Peer,
	receive: impl FnMut() -> Option<Passed>,
	side: Side,
) -> io::Result<bool> {
	// Also if this process is killed.
	set_socket_linger(tcp, Some(Duration::ZERO))?;
	let ends = AtomicU8::new(0);
	thread::scope(|scope| {
		let watches = thread::Builder::new().spawn_scoped(scope, || watch(tcp, peer));
		let passes =
			watches.and_then(|_| thread::Builder::new().spawn_scoped(scope, || pass_on(tcp, peer, &ends, side)));
		if passes.is_ok() {
			take(tcp, receive, &ends, matches!(side, Side::Guest).then(|| peer.as_fd()));
		}
		if ends.load(Ordering::Acquire) & (SAYING | THEIRS) != SAYING | THEIRS {
			ends.fetch_or(CUT, Ordering::AcqRel);
		}
		peer.hang_up();
		// Wakes the thread. Fails if the connection is gone already.
		let _ = tcp.shutdown(Shutdown::Read);
		passes.map(drop)
	})?;
	let well = ends.into_inner() == SAYING | OURS | THEIRS;
	if well {
		set_socket_linger(tcp, None)?;
	}
	Ok(well)
}

/// From the connection here to the other machine.
fn pass_on(tcp: &TcpStream, peer: &impl Peer, ends: &AtomicU8, side: Side) {
	let mut buffer = vec![0; CHUNK];
	loop {
		match (&mut &*tcp).read(&mut buffer) {
			Ok(0) => {
				// After a cut nobody hears of it.
				if ends.fetch_or(SAYING, Ordering::AcqRel) & CUT != 0 || !peer.send(None) {
					return peer.hang_up();
				}
				let before = ends.fetch_or(OURS, Ordering::AcqRel);
				if before & THEIRS != 0 && matches!(side, Side::Guest) {
					peer.hang_up();
				}
				return;
			}
			Ok(count) if peer.send(Some(&buffer[..count])) => {}
			Err(error) if error.kind() == ErrorKind::Interrupted => {}
			Ok(_) | Err(_) => return peer.hang_up(),
		}
	}
}

/// Hangs up if the connection here is reset, which nobody sees while the other machine takes nothing.
fn watch(tcp: &TcpStream, peer: &impl Peer) {
	// Told in any case: POLLERR of a reset, and POLLHUP when both have sent all, or `peer` has hung up.
	let mut fds = [PollFd::new(tcp, PollFlags::empty()), PollFd::new(peer, PollFlags::empty())];
	if retry_on_intr(|| poll(&mut fds, None)).is_err() || fds[0].revents().contains(PollFlags::ERR) {
		peer.hang_up();
	}
}

/// From the other machine to the connection here, until it is over. In the guest there is a `host`.
fn take(tcp: &TcpStream, mut receive: impl FnMut() -> Option<Passed>, ends: &AtomicU8, host: Option<BorrowedFd<'_>>) {
	loop {
		match receive() {
			Some(Passed::Data(bytes)) => {
				if !write_all(tcp, &bytes, host) {
					return;
				}
			}
			Some(Passed::End) => {
				// Fails if the connection is gone, which the thread notices.
				let _ = tcp.shutdown(Shutdown::Write);
				let before = ends.fetch_or(THEIRS, Ordering::AcqRel);
				if before & OURS != 0 && host.is_some() {
					return;
				}
			}
			None => return,
		}
	}
}

/// Whether all could be written; in the guest not if the host has gone meanwhile, whom nobody would wait for.
fn write_all(tcp: &TcpStream, mut bytes: &[u8], host: Option<BorrowedFd<'_>>) -> bool {
	while !bytes.is_empty() {
		match send(tcp, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
			Ok(count) => bytes = &bytes[count..],
			Err(Errno::INTR) => {}
			Err(Errno::AGAIN) => {
				let room = PollFd::new(tcp, PollFlags::OUT);
				let gone = host.map(|host| PollFd::from_borrowed_fd(host, PollFlags::RDHUP));
				let mut fds: Vec<_> = [room].into_iter().chain(gone).collect();
				match poll(&mut fds, None) {
					Err(Errno::INTR) => {}
					Ok(_) if fds.get(1).is_none_or(|host| host.revents().is_empty()) => {}
					Ok(_) | Err(_) => return false,
				}
			}
			Err(_) => return false,
		}
	}
	true
}
