//! The store's process. It does one thing after the other, and waits for nobody for long.

use super::{BACKLOG, FromStore, HELLO, Hello, Kind, PATIENCE, ToStore};
use flashfork_proto::shell::{Channel, ChannelError};
use rustix::{
	io::Errno,
	net::{
		SocketFlags, accept_with, listen,
		sockopt::{Timeout, set_socket_timeout, socket_peercred},
	},
	process::{Resource, Rlimit, Signal, geteuid, getrlimit, pidfd_send_signal, setrlimit},
};
use serde_bytes::ByteBuf;
use std::{
	collections::BTreeMap,
	io,
	os::fd::{AsFd, BorrowedFd, OwnedFd},
	sync::mpsc::{Sender, channel},
	thread,
	time::{Duration, Instant},
};

/// How long who connects may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(2);

struct Entry {
	kind: Kind,
	record: ByteBuf,
	descriptors: Vec<OwnedFd>,
}

#[derive(Default)]
struct Entries {
	all: BTreeMap<u64, Entry>,
	/// Closes descriptors, which takes as long as there is memory to be freed.
	closer: Option<Sender<Vec<OwnedFd>>>,
}

/// Serves the daemon at the other end of `first`, and then whoever of its user connects to `listener`, one at a time,
/// until nothing is held and nobody is there.
///
/// # Errors
/// If there is no thread for it.
pub fn serve(listener: &OwnedFd, first: OwnedFd) -> io::Result<()> {
	// Whoever ends daemons by name does not mean this process, which holds what they leave.
	rustix::thread::set_name(c"flashfork-store")?;
	// Neither the daemon's terminal nor the end of its session is this process's. Fails where it has one of its own.
	let _ = rustix::process::setsid();
	// So that the next daemon finds this process at the other end, and not the one that made the socket.
	listen(listener, BACKLOG)?;
	let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
	setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
	let (closer, closed) = channel::<Vec<OwnedFd>>();
	thread::Builder::new().name("closer".into()).spawn(move || closed.into_iter().for_each(drop))?;
	let mut entries = Entries { closer: Some(closer), ..Entries::default() };
	let mut next = Some(first);
	loop {
		if let Some(peer) = next.take().and_then(introduced) {
			// Whatever ends the conversation, the daemon is gone, or is to be told that it is not understood. What it
			// has sent may come after the word that it is gone (ECONNRESET).
			if let Err(ChannelError::Unread) = entries.talk(&peer) {
				let _ = entries.talk(&peer);
			}
			drop(peer);
			entries.end(|kind| kind == Kind::Passing);
		}
		if !entries.all.values().any(|entry| entry.kind.lasts()) {
			return Ok(());
		}
		next = accept_with(listener, SocketFlags::CLOEXEC).ok();
		if next.is_none() {
			// Who came has gone again, or descriptors are short.
			thread::sleep(Duration::from_millis(100));
		}
	}
}

/// A daemon of the same user, which speaks these messages.
fn introduced(socket: OwnedFd) -> Option<Channel> {
	let is_ours = socket_peercred(&socket).ok()?.uid == geteuid();
	set_socket_timeout(&socket, Timeout::Recv, Some(INTRODUCTION)).ok()?;
	set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE)).ok()?;
	let channel = Channel::new(socket);
	let hello = if is_ours { channel.receive::<Hello>().ok()?.0 } else { return None };
	if hello.magic == HELLO.magic {
		// Who is of another version is told ours.
		channel.send(&HELLO, &[]).ok()?;
	}
	set_socket_timeout(&channel, Timeout::Recv, None).ok()?;
	(hello == HELLO).then_some(channel)
}

impl Entries {
	fn talk(&mut self, peer: &Channel) -> Result<(), ChannelError> {
		loop {
			let (message, descriptors) = match peer.receive() {
				// This process may open no more.
				Err(ChannelError::Descriptors) => {
					peer.send(&FromStore::Full, &[])?;
					continue;
				}
				other => other?,
			};
			match message {
				ToStore::Put { id, kind, record } => {
					let new = || Entry { kind, record: ByteBuf::new(), descriptors: Vec::new() };
					let entry = self.all.entry(id).or_insert_with(new);
					(entry.kind, entry.record) = (kind, record);
					if !descriptors.is_empty() {
						entry.descriptors.extend(descriptors);
						peer.send(&FromStore::End, &[])?;
					}
				}
				ToStore::Kill { id, record } => {
					if let Some(mut entry) = self.all.remove(&id) {
						entry.kill();
						self.close(std::mem::take(&mut entry.descriptors));
					}
					if let Some(record) = record {
						self.all.insert(id, Entry { kind: Kind::Ended, record, descriptors: Vec::new() });
					}
				}
				ToStore::Remove { id } => {
					if let Some(entry) = self.all.remove(&id) {
						self.close(entry.descriptors);
					}
				}
				ToStore::End => self.end(|_| true),
				ToStore::All => {
					for (id, Entry { kind, record, descriptors }) in &self.all {
						let held = FromStore::Held { id: *id, kind: *kind, record: record.clone() };
						give(peer, &held, &descriptors.iter().map(AsFd::as_fd).collect::<Vec<_>>())?;
					}
					peer.send(&FromStore::End, &[])?;
				}
			}
		}
	}

	/// Ends and forgets all of some kinds.
	fn end(&mut self, of: impl Fn(Kind) -> bool) {
		let ended: Vec<_> = self.all.extract_if(.., |_, entry| of(entry.kind)).collect();
		for (_, entry) in ended {
			entry.kill();
			self.close(entry.descriptors);
		}
	}

	fn close(&self, descriptors: Vec<OwnedFd>) {
		if let Some(closer) = &self.closer {
			// The thread lives as long as this.
			let _ = closer.send(descriptors);
		}
	}
}

/// Waits while too many of this user's descriptors are under way.
fn give(peer: &Channel, held: &FromStore, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
	let deadline = Instant::now() + PATIENCE;
	loop {
		match peer.send(held, descriptors) {
			Err(ChannelError::Io(e))
				if e.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error()) && Instant::now() < deadline =>
			{
				thread::sleep(Duration::from_millis(1));
			}
			other => return other,
		}
	}
}

impl Entry {
	/// If it is a process.
	fn kill(&self) {
		if let (true, Some(process)) = (self.kind.is_process(), self.descriptors.first()) {
			// Fails if it has ended.
			let _ = pidfd_send_signal(process, Signal::KILL);
		}
	}
}
