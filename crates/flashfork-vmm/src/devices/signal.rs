//! The signal ports: `flashfork_proto::signal` has the protocol, this is what its signals do.

use super::Action;
use crate::events::{Event, Outbox};
use flashfork_proto::{
	Generation,
	shell::Renewal,
	signal::{Access, Device, Signal, Status},
};
use std::time::{Instant, SystemTime};

/// The ports and what they know of the VM.
#[derive(Debug)]
pub(super) struct SignalPort {
	device: Device,
	/// Of the clone; none while there is no template yet.
	generation: Option<Generation>,
	lap: Instant,
	events: Outbox,
}

impl SignalPort {
	pub(super) fn new(events: Outbox) -> Self {
		Self { device: Device::default(), generation: None, lap: Instant::now(), events }
	}

	pub(super) fn write(&mut self, port: u16, data: &[u8]) -> Action {
		let Access::Signal(signal) = self.device.write(port, data) else { return Action::None };
		match signal {
			Signal::Reset => {
				let lap = u64::try_from(self.lap.elapsed().as_nanos()).unwrap_or(u64::MAX);
				self.lap = Instant::now();
				self.device.answer(Status::Ok, &lap.to_le_bytes());
				self.events.put(Event::Lap(lap));
			}
			Signal::Alive(generation) if self.generation == Some(generation) => {
				self.events.put(Event::Alive(generation));
			}
			Signal::Alive(_) => self.device.answer(Status::Refused, &[]),
			signal @ (Signal::Fork | Signal::Done(_)) => return Action::Signal(signal),
		}
		Action::None
	}

	pub(super) fn read(&mut self, port: u16, data: &mut [u8]) {
		self.device.read(port, data);
	}

	pub(super) fn answer(&mut self, status: Status, reply: &[u8]) {
		self.device.answer(status, reply);
	}

	pub(super) fn save(&self) -> Device {
		self.device.clone()
	}

	pub(super) fn restore(&mut self, state: &Device) {
		self.device = state.clone();
	}

	pub(super) fn renew(&mut self, renewal: &Renewal, forked: bool) {
		self.generation = Some(renewal.identity.generation);
		self.lap = Instant::now();
		if forked {
			let mut reply = renewal.forked(realtime_ns()).encode();
			self.device.answer(Status::Ok, &reply);
			reply.fill(0);
			// Else the compiler might leave out what nobody reads.
			std::hint::black_box(&mut reply);
		}
	}
}

/// The host's wall clock. Read here, in the last step before the guest runs: whoever asked for the clone may have
/// waited for long.
fn realtime_ns() -> u64 {
	let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
	u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::events;
	use flashfork_proto::{
		agent::CloneIdentity,
		signal::{COMMAND_PORT, DATA_PORT, MAX_PAYLOAD, PORTS, command},
	};
	use proptest::prelude::*;
	use std::time::Duration;

	const GENERATION: Generation = [7; 16];

	fn clone_of(name: &str) -> Renewal {
		let identity = CloneIdentity { name: name.into(), index: 1, generation: GENERATION, job: Vec::new() };
		Renewal { identity, entropy: [1; 32], disks: Vec::new() }
	}

	fn is_alive(generation: Generation, port: &mut SignalPort) {
		port.write(DATA_PORT, &generation);
		assert_eq!(port.write(COMMAND_PORT, &[command::ALIVE]), Action::None);
	}

	#[test]
	fn a_clone_is_alive_only_by_its_own_generation() {
		let (outbox, inbox) = events::queue().unwrap();
		let mut port = SignalPort::new(outbox);
		is_alive(GENERATION, &mut port);
		assert!(inbox.take(Some(Duration::ZERO)).is_none(), "there is no clone yet");
		port.renew(&clone_of("c"), true);
		is_alive([8; 16], &mut port);
		assert!(inbox.take(Some(Duration::ZERO)).is_none(), "the template's, or a sibling's");
		is_alive(GENERATION, &mut port);
		assert!(matches!(inbox.take(Some(Duration::ZERO)), Some(Event::Alive(GENERATION))));
	}

	proptest! {
		#![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

		/// Any accesses of any length, also after a restore in their middle: nothing but signals comes of them, and a
		/// reply or payload never outgrows its place.
		#[test]
		fn any_port_access(accesses in prop::collection::vec(
			(any::<bool>(), 0..PORTS, prop::collection::vec(any::<u8>(), 0..300), prop_oneof![Just(0x10u8), Just(0x20), Just(0x30), Just(0x40), any::<u8>()]),
			1..80,
		)) {
			let (outbox, inbox) = events::queue().unwrap();
			let mut port = SignalPort::new(outbox);
			port.renew(&clone_of("c"), true);
			for (write, offset, mut bytes, number) in accesses {
				let at = COMMAND_PORT + offset;
				if write {
					if at == COMMAND_PORT {
						bytes = vec![number];
					}
					if let Action::Signal(_) = port.write(at, &bytes) {
						port.answer(Status::Ok, &[3; MAX_PAYLOAD]);
					}
				} else {
					port.read(at, &mut bytes);
				}
				let state = port.save();
				port.restore(&state);
				prop_assert_eq!(port.save(), state);
			}
			while let Some(event) = inbox.take(Some(Duration::ZERO)) {
				let fine = matches!(event, Event::Lap(_) | Event::Alive(GENERATION));
				prop_assert!(fine, "{event:?}");
			}
		}
	}
}
