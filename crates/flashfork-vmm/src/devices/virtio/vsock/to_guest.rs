//! Packets to the guest.

use super::{
	super::device::{Broken, Queues},
	connection::{Gone, Received},
	device::Vsock,
	gate::Gate,
	header::{Bytes, Header},
	wire::{HOST_CID, MAX_DATA, RX, SHUTDOWN_RECEIVE, SHUTDOWN_SEND, STREAM, op},
};
use std::io::Write;
use virtio_queue::QueueT;
use vmm_sys_util::epoll::EventSet;

/// Packets from one stream in a row.
const TURN: usize = 32;

impl Vsock {
	pub(super) fn reply(&mut self, port: u32, op: u16, flags: u32) {
		let dst_cid = self.connector.cid().into();
		if let Some(connection) = self.connections.get_mut(&port) {
			let (buf_alloc, fwd_cnt) = connection.tell();
			self.replies.push_back(Header {
				src_cid: HOST_CID,
				dst_cid,
				src_port: port,
				dst_port: connection.guest_port,
				kind: STREAM,
				op,
				flags,
				buf_alloc,
				fwd_cnt,
				len: 0,
			});
		}
	}

	/// There is no such connection.
	pub(super) fn refuse(&mut self, header: &Header) {
		self.replies.push_back(Header {
			src_cid: HOST_CID,
			dst_cid: header.src_cid,
			src_port: header.dst_port,
			dst_port: header.src_port,
			kind: header.kind,
			op: op::RST,
			..Header::default()
		});
	}

	/// Packets without data to the guest, as many as it takes.
	pub(super) fn flush(&mut self, queues: &mut Queues<'_>) -> Result<(), Broken> {
		if self.gate != Gate::Open {
			return Ok(());
		}
		while let Some(&reply) = self.replies.front() {
			let Some(mut buffer) = self.buffer(queues)? else { return Ok(()) };
			buffer.put(&reply, &[])?;
			queues.push(RX, buffer.head, buffer.length)?;
			self.replies.pop_front();
		}
		Ok(())
	}

	/// From a stream to the guest.
	pub(super) fn pump(&mut self, port: u32, queues: &mut Queues<'_>) -> Result<(), Broken> {
		for _ in 0..TURN {
			self.flush(queues)?;
			let Some(connection) = self.connections.get(&port) else { return Ok(()) };
			if !self.open() || !connection.established || connection.to_guest_ended {
				return Ok(());
			}
			let credit = connection.credit();
			if credit == 0 {
				if !connection.asked {
					self.reply(port, op::CREDIT_REQUEST, 0);
					self.connections.get_mut(&port).expect("it is there").asked = true;
					self.flush(queues)?;
				}
				return Ok(());
			}
			let Some(mut buffer) = self.buffer(queues)? else { return Ok(()) };
			let room = buffer.room()?.min(credit).min(MAX_DATA);
			let connection = self.connections.get_mut(&port).expect("it is there");
			let received = connection.receive(&mut self.data[..room]);
			if let Ok(Received::Bytes(length)) = received {
				let (buf_alloc, fwd_cnt) = connection.tell();
				let header = Header {
					src_cid: HOST_CID,
					dst_cid: self.connector.cid().into(),
					src_port: port,
					dst_port: connection.guest_port,
					len: length as u32,
					kind: STREAM,
					op: op::RW,
					flags: 0,
					buf_alloc,
					fwd_cnt,
				};
				buffer.put(&header, &self.data[..length])?;
				queues.push(RX, buffer.head, buffer.length)?;
				continue;
			}
			// The buffer is for another time.
			let next = queues.queues[RX].next_avail().wrapping_sub(1);
			queues.queues[RX].set_next_avail(next);
			match received {
				Ok(Received::Bytes(_) | Received::Nothing) => {}
				Ok(Received::End) if connection.hung_up => {
					self.end(port, op::SHUTDOWN, SHUTDOWN_RECEIVE | SHUTDOWN_SEND);
				}
				Ok(Received::End) => {
					connection.to_guest_ended = true;
					let over = connection.is_over();
					self.reply(port, op::SHUTDOWN, SHUTDOWN_SEND);
					if over {
						self.settle(port, Ok(()));
					}
				}
				Err(Gone) => self.end(port, op::RST, 0),
			}
			return Ok(());
		}
		Ok(())
	}

	/// Something happened on a stream.
	pub(super) fn stream(&mut self, port: u32, events: EventSet, queues: &mut Queues<'_>) -> Result<(), Broken> {
		let Some(connection) = self.connections.get_mut(&port) else { return Ok(()) };
		connection.hung_up |= events.intersects(EventSet::HANG_UP | EventSet::ERROR);
		if connection.hung_up && !connection.established {
			self.end(port, op::RST, 0);
			return Ok(());
		}
		if connection.hung_up && connection.to_guest_ended {
			self.end(port, op::SHUTDOWN, SHUTDOWN_RECEIVE | SHUTDOWN_SEND);
			return Ok(());
		}
		if events.contains(EventSet::OUT) {
			let result = connection.flush();
			self.settle(port, result);
		}
		self.pump(port, queues)
	}

	fn buffer<'a>(&mut self, queues: &mut Queues<'a>) -> Result<Option<Buffer<'a>>, Broken> {
		if !queues.queues[RX].ready() {
			self.starved = true;
			return Ok(None);
		}
		loop {
			let there = queues.avail(RX)?;
			if let Some(chain) = queues.pop(RX) {
				self.starved = false;
				let head = chain.head_index();
				let writer = chain.writer(queues.memory).map_err(|e| Broken(e.to_string()))?;
				return Ok(Some(Buffer { head, writer, length: 0 }));
			}
			// Notified when it gives one; unless it just has.
			let more = queues.rearm(RX)?;
			// Buffers that were there already and can't be taken are a broken ring's.
			if !more || there != queues.queues[RX].next_avail() {
				self.starved = true;
				return Ok(None);
			}
		}
	}
}

/// A guest's buffer for one packet.
struct Buffer<'a> {
	head: u16,
	writer: virtio_queue::Writer<'a>,
	length: u32,
}

impl Buffer<'_> {
	/// For data.
	fn room(&self) -> Result<usize, Broken> {
		let room = self.writer.available_bytes().checked_sub(size_of::<Bytes>()).filter(|room| *room > 0);
		room.ok_or_else(|| Broken("a buffer too small for a packet".into()))
	}

	fn put(&mut self, header: &Header, data: &[u8]) -> Result<(), Broken> {
		let broken = |e: std::io::Error| Broken(e.to_string());
		self.writer.write_all(&header.encode()).map_err(broken)?;
		self.writer.write_all(data).map_err(broken)?;
		self.length = self.writer.bytes_written() as u32;
		Ok(())
	}
}
