//! Messages with descriptors, on sockets of type `SOCK_SEQPACKET`.

use rustix::{
	io::{Errno, Result},
	net::{
		AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
		SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
	},
};
use std::{
	io::{IoSlice, IoSliceMut},
	mem::MaybeUninit,
	os::fd::{BorrowedFd, OwnedFd},
};

const MOST: usize = 16;

/// A pair of sockets.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
	socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Has a socket tell who sends: also of processes that have ended meanwhile.
pub fn tell_senders(socket: BorrowedFd<'_>) -> Result<()> {
	rustix::net::sockopt::set_socket_passcred(socket, true)
}

/// Sends; who doesn't read is no reason to wait.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
	let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
	let mut control = SendAncillaryBuffer::new(&mut space);
	if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
		return Err(Errno::TOOBIG);
	}
	sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
}

/// What has come.
pub struct Received {
	/// Bytes of it; 0 is the end.
	pub len: usize,
	/// What came with it.
	pub descriptors: Vec<OwnedFd>,
	/// Whether there was no room for some of them.
	pub short: bool,
	/// Who has sent it, where the socket tells that ([`tell_senders`]): its process here.
	pub sender: Option<i32>,
}

/// Takes a message without waiting; `None` if there is none.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Option<Received>> {
	let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST), ScmCredentials(1))];
	let mut control = RecvAncillaryBuffer::new(&mut space);
	let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
	let told = match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags) {
		Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
		told => told?,
	};
	let (mut descriptors, mut sender) = (Vec::new(), None);
	for message in control.drain() {
		match message {
			RecvAncillaryMessage::ScmRights(all) => descriptors.extend(all),
			RecvAncillaryMessage::ScmCredentials(who) => sender = Some(who.pid.as_raw_pid()),
			_ => {}
		}
	}
	let short = told.flags.contains(rustix::net::ReturnFlags::CTRUNC);
	Ok(Some(Received { len: told.bytes, descriptors, short, sender }))
}
