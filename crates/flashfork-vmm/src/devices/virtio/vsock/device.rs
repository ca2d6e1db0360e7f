//! The device: what it is to its transport, and what is done in which order.

use super::{
	super::device::{Broken, OWN_EVENTS, Queues, VirtioDevice},
	connection::Connection,
	connections::{FIRST_PORT, register, unregister},
	connector::Connector,
	gate::Gate,
	header::Header,
	wire::{MAX_DATA, RX, op},
};
use event_manager::{EventOps, Events};
use std::collections::{BTreeMap, VecDeque};
use virtio_bindings::virtio_ids::VIRTIO_ID_VSOCK;
use vmm_sys_util::epoll::EventSet;

/// Data of the event of [`Connector::wake`].
const WAKE: u32 = OWN_EVENTS;

/// The vsock device.
#[derive(Debug)]
pub struct Vsock {
	pub(super) connector: Connector,
	/// By the host's port.
	pub(super) connections: BTreeMap<u32, Connection>,
	/// Connections of a life before this one, shut down but not closed yet.
	pub(super) dead: Vec<Connection>,
	pub(super) replies: VecDeque<Header>,
	pub(super) next_port: u32,
	pub(super) gate: Gate,
	/// The guest has given no buffers for packets.
	pub(super) starved: bool,
	pub(super) data: Vec<u8>,
}

impl Vsock {
	/// A device that `connector` leads to.
	pub fn new(connector: Connector) -> Self {
		Self {
			connector,
			connections: BTreeMap::new(),
			dead: Vec::new(),
			replies: VecDeque::new(),
			next_port: FIRST_PORT,
			gate: Gate::Open,
			starved: false,
			data: vec![0; MAX_DATA],
		}
	}

	pub(super) fn open(&self) -> bool {
		self.gate == Gate::Open && !self.starved
	}

	/// Everything that can be done now, after something has changed.
	fn go_on(&mut self, queues: &mut Queues<'_>, ops: &mut EventOps<'_>) -> Result<(), Broken> {
		for dead in self.dead.drain(..) {
			unregister(&dead, ops);
		}
		self.gate(queues)?;
		self.accept();
		self.flush(queues)?;
		self.take(queues)?;
		self.flush(queues)?;
		let open = self.open();
		let mut lost = Vec::new();
		for (&port, connection) in &mut self.connections {
			if register(connection, port, open, ops).is_err() {
				lost.push(port);
			}
		}
		for port in lost {
			self.end(port, op::RST, 0);
			self.flush(queues)?;
		}
		for dead in self.dead.drain(..) {
			unregister(&dead, ops);
		}
		Ok(())
	}
}

impl VirtioDevice for Vsock {
	fn kind(&self) -> u32 {
		VIRTIO_ID_VSOCK
	}

	fn queue_sizes(&self) -> &[u16] {
		&[128, 128, 16]
	}

	/// The guest's context id.
	fn config(&self) -> Vec<u8> {
		u64::from(self.connector.cid()).to_le_bytes().to_vec()
	}

	fn init(&mut self, ops: &mut EventOps<'_>) {
		// As for the queues' own descriptors.
		ops.add(Events::with_data(self.connector.wake(), WAKE, EventSet::IN)).expect("a new epoll takes an eventfd");
	}

	fn notified(&mut self, index: usize, queues: &mut Queues<'_>, ops: &mut EventOps<'_>) -> Result<(), Broken> {
		self.starved &= index != RX;
		self.go_on(queues, ops)
	}

	fn ready(&mut self, events: Events, queues: &mut Queues<'_>, ops: &mut EventOps<'_>) -> Result<(), Broken> {
		if events.data() == WAKE {
			// Empty if it was read for an earlier event.
			let _ = self.connector.wake().read();
		} else {
			self.stream(events.data(), events.event_set(), queues)?;
		}
		self.go_on(queues, ops)
	}

	fn defer(&mut self, events: Events, ops: &mut EventOps<'_>) {
		if events.data() == WAKE {
			let _ = self.connector.wake().read();
		} else if let Some(connection) = self.connections.get_mut(&events.data()) {
			unregister(connection, ops);
			connection.registered = None;
		}
		for dead in self.dead.drain(..) {
			unregister(&dead, ops);
		}
	}

	fn reset(&mut self) {
		self.forget();
		self.gate = Gate::Open;
	}

	/// The next port: a guest that has not closed its end of an old connection yet answers a new one from the same port
	/// by a reset.
	fn save(&self) -> Vec<u8> {
		self.next_port.to_le_bytes().into()
	}

	fn restore(&mut self, state: &[u8]) -> Result<bool, String> {
		let port = state.try_into().map(u32::from_le_bytes).ok().filter(|port| (FIRST_PORT..u32::MAX).contains(port));
		self.next_port = port.ok_or("state that names no port")?;
		self.forget();
		self.connector.take();
		self.gate = Gate::Closed;
		Ok(false)
	}
}
