//! One end of the socket: packets with descriptors.

use std::{
	io::{self, IoSlice, IoSliceMut},
	mem::MaybeUninit,
	os::fd::{AsFd, BorrowedFd, OwnedFd},
	time::Instant,
};

use rustix::net::{
	AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
	SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socketpair,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{MAX_DESCRIPTORS, MAX_MESSAGE};
use crate::{
	PREAMBLE_LEN, Preamble, PreambleError, Protocol,
	frame::{self, FrameError},
};

/// Why a message did not get across. After any but [`ChannelError::Message`] and [`ChannelError::Full`]
/// on sending, the channel is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
	/// The message is too long, or what came is no message.
	#[error(transparent)]
	Message(#[from] FrameError),
	/// More descriptors than a message may carry.
	#[error("a message with more descriptors than may come with it: the peer is broken or hostile")]
	Descriptors,
	/// The peer is no shell or daemon of this version.
	#[error(transparent)]
	Preamble(#[from] PreambleError),
	/// The peer is gone.
	#[error("the peer closed the channel")]
	Closed,
	/// The same, and it has not read what it was sent last.
	#[error("the peer closed the channel before it read what it was sent")]
	Unread,
	/// The peer has not read what it was sent before.
	#[error("the peer doesn't read")]
	Full,
	/// The socket failed.
	#[error("the channel failed: {0}")]
	Io(#[from] io::Error),
}

impl ChannelError {
	/// Whether the peer is gone.
	#[must_use]
	pub fn is_gone(&self) -> bool {
		matches!(self, Self::Closed | Self::Unread)
	}
}

/// A message as it came.
#[derive(Debug)]
pub struct Received<T> {
	/// The message.
	pub message: T,
	/// What came with it, closed on exec.
	pub descriptors: Vec<OwnedFd>,
	/// When it was there, before it was decoded.
	pub arrived: Instant,
}

/// One end of a daemon's channel to a shell. Both ends may send at any time, from any thread.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
	/// Both ends of a new channel, closed on exec.
	///
	/// # Errors
	/// Those of socketpair(2).
	pub fn pair() -> io::Result<(Self, Self)> {
		let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
		Ok((Self(a), Self(b)))
	}

	/// The channel over a `SOCK_SEQPACKET` socket.
	#[must_use]
	pub fn new(socket: OwnedFd) -> Self {
		Self(socket)
	}

	/// Its socket, for another process.
	#[must_use]
	pub fn into_descriptor(self) -> OwnedFd {
		self.0
	}

	/// Sends the preamble. First thing on either end.
	pub fn greet(&self) -> Result<(), ChannelError> {
		self.send_packet(&Preamble(Protocol::Shell).bytes(), &[], SendFlags::empty())
	}

	/// Waits for the peer's preamble.
	pub fn expect_greeting(&self) -> Result<(), ChannelError> {
		// One more than it may have, to see that it has more.
		let mut packet = [0; PREAMBLE_LEN + 1];
		let (length, _) = match self.receive_packet(&mut packet) {
			Err(ChannelError::Message(FrameError::TooLong { .. })) => (PREAMBLE_LEN + 1, Vec::new()),
			other => other?,
		};
		let bytes = std::array::from_fn(|i| packet[i]);
		if length != PREAMBLE_LEN {
			return Err(PreambleError::Stranger(bytes).into());
		}
		Ok(Preamble(Protocol::Shell).check(&bytes)?)
	}

	/// Sends `message` with `descriptors`, of which the peer gets duplicates. Waits until there is room.
	pub fn send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
		self.send_with(message, descriptors, SendFlags::empty())
	}

	/// As [`Channel::send`], but never waits: for a peer not trusted to read.
	///
	/// # Errors
	/// As those of [`Channel::send`]; [`ChannelError::Full`] when there is no room.
	pub fn try_send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
		self.send_with(message, descriptors, SendFlags::DONTWAIT)
	}

	fn send_with<T: Serialize>(
		&self,
		message: &T,
		descriptors: &[BorrowedFd<'_>],
		flags: SendFlags,
	) -> Result<(), ChannelError> {
		let bytes = frame::to_bytes(message)?;
		if bytes.len() > MAX_MESSAGE {
			return Err(FrameError::TooLong { length: bytes.len(), limit: MAX_MESSAGE }.into());
		}
		self.send_packet(&bytes, descriptors, flags)
	}

	/// Waits for a message and the descriptors that came with it, which are closed on exec. Memory is taken when a
	/// message has come, and no more than its length: most of a daemon's channels wait most of the time.
	///
	/// # Errors
	/// See [`ChannelError`]. Descriptors that came with what is no message are closed.
	pub fn receive<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), ChannelError> {
		let mut packet = vec![0; self.wait_for_packet()?.min(MAX_MESSAGE)];
		let (length, descriptors) = self.receive_packet(&mut packet)?;
		Ok((frame::from_bytes(&packet[..length])?, descriptors))
	}

	/// As [`Channel::receive`], of messages with no descriptors: the kernel closes what comes along.
	///
	/// # Errors
	/// As those of [`Channel::receive`]; [`ChannelError::Descriptors`] if some came.
	pub fn receive_bare<T: DeserializeOwned>(&self) -> Result<T, ChannelError> {
		let mut packet = vec![0; self.wait_for_packet()?.min(MAX_MESSAGE)];
		let (length, _) = self.receive_packet_with(&mut packet, RecvAncillaryBuffer::default())?;
		Ok(frame::from_bytes(&packet[..length])?)
	}

	/// Waits until there is a packet, and gives its length; it stays where it is, its descriptors too.
	fn wait_for_packet(&self) -> Result<usize, ChannelError> {
		let mut nothing = [0; 0];
		loop {
			match recv(&self.0, &mut nothing, RecvFlags::PEEK | RecvFlags::TRUNC) {
				Ok((_, length)) => return Ok(length),
				Err(rustix::io::Errno::INTR) => {}
				Err(rustix::io::Errno::CONNRESET) => return Err(ChannelError::Unread),
				Err(errno) => return Err(ChannelError::Io(errno.into())),
			}
		}
	}

	/// As [`Channel::receive`], in memory used again, and with the time of arrival: for who counts microseconds.
	///
	/// # Errors
	/// As those of [`Channel::receive`].
	pub fn receive_into<T: DeserializeOwned>(&self, buffer: &mut Vec<u8>) -> Result<Received<T>, ChannelError> {
		buffer.resize(MAX_MESSAGE, 0);
		let (length, descriptors) = self.receive_packet(buffer)?;
		let arrived = Instant::now();
		Ok(Received { message: frame::from_bytes(&buffer[..length])?, descriptors, arrived })
	}

	fn send_packet(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>], flags: SendFlags) -> Result<(), ChannelError> {
		if descriptors.len() > MAX_DESCRIPTORS {
			return Err(ChannelError::Descriptors);
		}
		let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
		let mut ancillary = SendAncillaryBuffer::new(&mut space);
		// Never fails: the space is for as many as there may be.
		if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
			return Err(ChannelError::Descriptors);
		}
		loop {
			match sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, flags | SendFlags::NOSIGNAL) {
				// A packet is taken whole.
				Ok(_) => return Ok(()),
				Err(rustix::io::Errno::INTR) => {}
				Err(rustix::io::Errno::AGAIN) => return Err(ChannelError::Full),
				Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => return Err(ChannelError::Unread),
				Err(errno) => return Err(ChannelError::Io(errno.into())),
			}
		}
	}

	fn receive_packet(&self, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), ChannelError> {
		let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
		self.receive_packet_with(bytes, RecvAncillaryBuffer::new(&mut space))
	}

	fn receive_packet_with(
		&self,
		bytes: &mut [u8],
		mut ancillary: RecvAncillaryBuffer<'_>,
	) -> Result<(usize, Vec<OwnedFd>), ChannelError> {
		let limit = bytes.len();
		let received = loop {
			match recvmsg(&self.0, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
				Err(rustix::io::Errno::INTR) => {}
				Err(rustix::io::Errno::CONNRESET) => return Err(ChannelError::Unread),
				other => break other.map_err(io::Error::from)?,
			}
		};
		// Taken first, so that they are closed whatever comes next.
		let descriptors: Vec<OwnedFd> = ancillary
			.drain()
			.flat_map(|message| match message {
				RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
				_ => Vec::new(),
			})
			.collect();
		if received.flags.contains(ReturnFlags::TRUNC) {
			return Err(FrameError::TooLong { length: received.bytes.max(limit + 1), limit }.into());
		}
		// Room is rounded up: one more may fit.
		if received.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > MAX_DESCRIPTORS {
			return Err(ChannelError::Descriptors);
		}
		// No message is empty, so this is the end.
		if received.bytes == 0 {
			return Err(ChannelError::Closed);
		}
		Ok((received.bytes, descriptors))
	}
}

impl AsFd for Channel {
	fn as_fd(&self) -> BorrowedFd<'_> {
		self.0.as_fd()
	}
}
