//! Packets from the guest.

use super::{
	super::device::{Broken, Queues},
	connection::Gone,
	device::Vsock,
	header::{Bytes, Header},
	wire::{HOST_CID, MAX_DATA, SHUTDOWN_RECEIVE, SHUTDOWN_SEND, STREAM, TX, op},
};
use std::io::Read;
use virtio_queue::QueueT;

/// Packets without data that may wait for the guest to take them; a guest that doesn't is not listened to meanwhile.
const MAX_REPLIES: usize = 512;

impl Vsock {
	/// Packets from the guest.
	pub(super) fn take(&mut self, queues: &mut Queues<'_>) -> Result<(), Broken> {
		if !queues.queues[TX].ready() {
			return Ok(());
		}
		while self.replies.len() < MAX_REPLIES
			&& let Some(chain) = queues.pop(TX)
		{
			let head = chain.head_index();
			let mut reader = chain.reader(queues.memory).map_err(|e| Broken(e.to_string()))?;
			let mut header: Bytes = [0; _];
			// Without a header it is no packet; with less data than it says it is one that lies.
			if reader.read_exact(&mut header).is_ok() {
				let header = Header::decode(&header);
				let length = header.len as usize;
				let mut data = std::mem::take(&mut self.data);
				let whole = length <= MAX_DATA && reader.read_exact(&mut data[..length]).is_ok();
				self.packet(&header, whole.then(|| &data[..length]));
				self.data = data;
			}
			queues.push(TX, head, 0)?;
		}
		Ok(())
	}

	/// One packet from the guest; `data` is missing if it isn't as long as the header says.
	pub(super) fn packet(&mut self, header: &Header, data: Option<&[u8]>) {
		if header.src_cid != u64::from(self.connector.cid()) || header.dst_cid != HOST_CID {
			// Of a life before a restore, or from nobody.
			return;
		}
		let port = header.dst_port;
		let known = self
			.connections
			.get_mut(&port)
			.filter(|connection| header.kind == STREAM && connection.guest_port == header.src_port);
		let Some(connection) = known else {
			// Also the guest's own requests: nothing listens on the host.
			if header.op != op::RST {
				self.refuse(header);
			}
			return;
		};
		connection.note_credit(header);
		let result = match (header.op, data) {
			(op::RESPONSE, Some(_)) if !connection.established => {
				connection.established = true;
				Ok(())
			}
			(op::RW, Some(data)) if connection.established => connection.deliver(data),
			(op::SHUTDOWN, Some(_)) if connection.established => {
				connection.to_guest_ended |= header.flags & SHUTDOWN_RECEIVE != 0;
				if header.flags & SHUTDOWN_SEND != 0 { connection.end_from_guest() } else { Ok(()) }
			}
			(op::CREDIT_UPDATE, Some(_)) if connection.established => Ok(()),
			(op::CREDIT_REQUEST, Some(_)) if connection.established => {
				self.reply(port, op::CREDIT_UPDATE, 0);
				return;
			}
			// Linux waits 8 seconds for the end of a stream that it has closed. The host may read more slowly.
			(op::RST, _) if connection.has_last_words() => {
				connection.to_guest_ended = true;
				return;
			}
			(op::RST, _) => {
				self.bury(port);
				return;
			}
			_ => Err(Gone),
		};
		self.settle(port, result);
	}
}
