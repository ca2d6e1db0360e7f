//! One stream between a socket of the host and a port of the guest.

use super::header::Header;
use rustix::{
	io::Errno,
	net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown},
};
use std::{collections::VecDeque, os::fd::OwnedFd};
use vmm_sys_util::epoll::EventSet;

/// Bytes the guest may send ahead of what the host's socket takes.
pub(super) const BUFFER: u32 = 256 << 10;

/// The other side is gone: the connection is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gone;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
	Bytes(usize),
	Nothing,
	End,
}

#[derive(Debug)]
pub(super) struct Connection {
	pub stream: OwnedFd,
	pub guest_port: u32,
	/// The guest has accepted.
	pub established: bool,
	/// The guest gets no more: the host has sent everything, or the guest wants no more.
	pub to_guest_ended: bool,
	/// The guest sends no more.
	from_guest_ended: bool,
	/// The host's side of the socket is closed for both directions.
	pub hung_up: bool,
	/// The guest was asked for credit.
	pub asked: bool,
	/// What the stream is waited for; nothing if it isn't.
	pub registered: Option<EventSet>,
	/// From the guest, not taken by the stream yet; at most [`BUFFER`].
	pending: VecDeque<u8>,
	peer_alloc: u32,
	peer_forwarded: u32,
	sent: u32,
	forwarded: u32,
	told: u32,
}

impl Connection {
	pub(super) fn new(stream: OwnedFd, guest_port: u32) -> Self {
		Self {
			stream,
			guest_port,
			established: false,
			to_guest_ended: false,
			from_guest_ended: false,
			hung_up: false,
			asked: false,
			registered: None,
			pending: VecDeque::new(),
			peer_alloc: 0,
			peer_forwarded: 0,
			sent: 0,
			forwarded: 0,
			told: 0,
		}
	}

	/// Takes note of what every packet says of the guest's buffer.
	pub(super) fn note_credit(&mut self, header: &Header) {
		self.peer_alloc = header.buf_alloc;
		self.peer_forwarded = header.fwd_cnt;
		self.asked &= self.credit() == 0;
	}

	/// Bytes the guest has room for. A guest that claims nonsense gets, or gets not, what it claims.
	pub(super) fn credit(&self) -> usize {
		self.peer_alloc.saturating_sub(self.sent.wrapping_sub(self.peer_forwarded)) as usize
	}

	/// Fields of a packet that tell the guest of our buffer.
	pub(super) fn tell(&mut self) -> (u32, u32) {
		self.told = self.forwarded;
		(BUFFER, self.forwarded)
	}

	/// Whether the guest should hear of room that has become free.
	pub(super) fn owes_credit(&self) -> bool {
		self.forwarded.wrapping_sub(self.told) >= BUFFER / 2
	}

	/// What the host sent, at most `into.len()` bytes.
	pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<Received, Gone> {
		loop {
			match recv(&self.stream, &mut *into, RecvFlags::DONTWAIT) {
				Ok((_, 0)) => return Ok(Received::End),
				Ok((_, length)) => {
					self.sent = self.sent.wrapping_add(length as u32);
					return Ok(Received::Bytes(length));
				}
				Err(Errno::INTR) => {}
				Err(Errno::AGAIN) => return Ok(Received::Nothing),
				Err(_) => return Err(Gone),
			}
		}
	}

	/// What the guest sent. [`Gone`] too if it sent more than it may, or after it said that it had ended.
	pub(super) fn deliver(&mut self, bytes: &[u8]) -> Result<(), Gone> {
		if self.from_guest_ended || self.pending.len() + bytes.len() > BUFFER as usize {
			return Err(Gone);
		}
		self.pending.extend(bytes);
		self.flush()
	}

	/// Gives the stream as much as it takes.
	pub(super) fn flush(&mut self) -> Result<(), Gone> {
		while !self.pending.is_empty() {
			let (bytes, _) = self.pending.as_slices();
			match send(&self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
				Ok(length) => {
					self.pending.drain(..length);
					self.forwarded = self.forwarded.wrapping_add(length as u32);
				}
				Err(Errno::INTR) => {}
				Err(Errno::AGAIN) => return Ok(()),
				Err(_) => return Err(Gone),
			}
		}
		if self.from_guest_ended {
			// Fails only if the host's side is gone, which is noticed elsewhere.
			let _ = shutdown(&self.stream, Shutdown::Write);
		}
		Ok(())
	}

	/// The guest sends no more; what it sent goes out first.
	pub(super) fn end_from_guest(&mut self) -> Result<(), Gone> {
		self.from_guest_ended = true;
		self.flush()
	}

	/// Whether there still is something for the host from a guest that has sent all.
	pub(super) fn has_last_words(&self) -> bool {
		self.from_guest_ended && !self.pending.is_empty()
	}

	/// Whether nothing more will go either way.
	pub(super) fn is_over(&self) -> bool {
		self.to_guest_ended && self.from_guest_ended && self.pending.is_empty()
	}

	/// What to wait for on the stream. `open`: packets can go to the guest now. While nothing else is wanted a hang-up
	/// is still told, until it has been.
	pub(super) fn interest(&self, open: bool) -> Option<EventSet> {
		let reading = open && self.established && !self.to_guest_ended && self.credit() > 0;
		if self.hung_up && !reading {
			return None;
		}
		let mut events = EventSet::empty();
		events.set(EventSet::IN, reading);
		events.set(EventSet::OUT, !self.pending.is_empty());
		Some(events)
	}
}
