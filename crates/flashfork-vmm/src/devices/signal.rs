//! The signal ports: `flashfork_proto::signal` has the protocol, this is what its signals do.

use super::Action;
use crate::events::{Event, Outbox};
use flashfork_proto::Generation;
use flashfork_proto::shell::Renewal;
use flashfork_proto::signal::{Access, Device, Signal, Status};
use std::time::Instant;

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
            self.device.answer(Status::Ok, &renewal.forked().encode());
        }
    }
}
