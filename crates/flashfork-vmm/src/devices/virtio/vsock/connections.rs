//! Connections: how they begin and end, and what of their streams is waited for.

use super::{
	connection::{Connection, Gone},
	device::Vsock,
	gate::Gate,
	wire::op,
};
use event_manager::{EventOps, Events};
use rustix::net::{Shutdown, shutdown};
use std::os::fd::AsRawFd;

/// Ports of the host's ends start here; they are their events' data too.
pub(super) const FIRST_PORT: u32 = 1024;
/// Streams at once.
const MAX_CONNECTIONS: usize = 256;

impl Vsock {
	pub(super) fn accept(&mut self) {
		// The guest has no use for them while it must not hear of them.
		if self.gate != Gate::Open {
			return;
		}
		for (stream, guest_port) in self.connector.take() {
			// Closed at once, which is what the host sees.
			if self.connections.len() >= MAX_CONNECTIONS {
				continue;
			}
			while self.connections.contains_key(&self.next_port) {
				self.next_port = following(self.next_port);
			}
			let port = self.next_port;
			self.next_port = following(port);
			self.connections.insert(port, Connection::new(stream, guest_port));
			self.reply(port, op::REQUEST, 0);
		}
	}

	/// After something came from the guest, or went to the host.
	pub(super) fn settle(&mut self, port: u32, result: Result<(), Gone>) {
		let Some(connection) = self.connections.get(&port) else { return };
		if result.is_err() || connection.is_over() {
			// A shutdown of both sides is answered with a reset: the guest keeps the port until then.
			self.end(port, op::RST, 0);
		} else if connection.owes_credit() {
			self.reply(port, op::CREDIT_UPDATE, 0);
		}
	}

	/// Ends a connection, with a last packet to the guest.
	pub(super) fn end(&mut self, port: u32, op: u16, flags: u32) {
		self.reply(port, op, flags);
		self.bury(port);
	}

	/// The host's side sees the end at once; closed is it when nobody waits for it any more.
	pub(super) fn bury(&mut self, port: u32) {
		if let Some(connection) = self.connections.remove(&port) {
			// Fails for a stream that is none any more.
			let _ = shutdown(&connection.stream, Shutdown::Both);
			self.dead.push(connection);
		}
	}

	/// Forgets all connections, which belong to a life before.
	pub(super) fn forget(&mut self) {
		while let Some((&port, _)) = self.connections.first_key_value() {
			self.bury(port);
		}
		self.replies.clear();
		self.starved = false;
	}
}

/// Waits for what `connection` wants now.
pub(super) fn register(
	connection: &mut Connection,
	port: u32,
	open: bool,
	ops: &mut EventOps<'_>,
) -> Result<(), event_manager::Error> {
	let wanted = connection.interest(open);
	if wanted == connection.registered {
		return Ok(());
	}
	let events = |set| Events::with_data(&connection.stream, port, set);
	match (connection.registered, wanted) {
		(None, Some(set)) => ops.add(events(set))?,
		(Some(_), Some(set)) => ops.modify(events(set))?,
		(_, None) => unregister(connection, ops),
	}
	connection.registered = wanted;
	Ok(())
}

pub(super) fn unregister(connection: &Connection, ops: &mut EventOps<'_>) {
	if connection.registered.is_some() {
		// It was added, and it is still open.
		let _ = ops.remove(Events::empty_raw(connection.stream.as_raw_fd()));
	}
}

/// The port after `port`; the last one means "any" to Linux.
fn following(port: u32) -> u32 {
	if port >= u32::MAX - 1 { FIRST_PORT } else { port + 1 }
}
