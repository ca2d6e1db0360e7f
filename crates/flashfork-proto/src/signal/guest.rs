//! The guest's side, over whatever can reach I/O ports.

use super::{COMMAND_PORT, DATA_PORT, Done, Forked, LENGTH_PORT, MAX_PAYLOAD, Signal, Status, VERSION, command};
use crate::Generation;

/// Access to I/O ports.
pub trait PortIo {
	/// `out`, one byte.
	fn write_byte(&mut self, port: u16, value: u8);
	/// `out`, four bytes.
	fn write_word(&mut self, port: u16, value: u32);
	/// `in`, one byte.
	fn read_byte(&mut self, port: u16) -> u8;
	/// `in`, four bytes.
	fn read_word(&mut self, port: u16) -> u32;
	/// `rep outsb`.
	fn write_bytes(&mut self, port: u16, bytes: &[u8]);
	/// `rep insb`.
	fn read_bytes(&mut self, port: u16, bytes: &mut [u8]);
}

/// Why a signal had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestError {
	/// Nobody listens on the ports.
	#[error("no monitor answers on I/O port {COMMAND_PORT:#x}: this machine does not run under flashfork")]
	NoMonitor,
	/// The monitor speaks another version.
	#[error("the monitor speaks version {0} of the signal ports, this is {VERSION}: rebuild the image")]
	Version(u32),
	/// The monitor did not do it.
	#[error("the monitor answered {0:?}")]
	Status(Status),
	/// The monitor's reply is not of the documented form.
	#[error("the monitor's reply makes no sense")]
	Reply,
}

/// The signals a guest can give.
#[derive(Debug)]
pub struct Signals<P>(P);

impl<P: PortIo> Signals<P> {
	/// Makes sure that a monitor of this version listens.
	///
	/// # Errors
	/// [`GuestError::NoMonitor`], [`GuestError::Version`].
	pub fn find(ports: P) -> Result<Self, GuestError> {
		let mut signals = Self(ports);
		// Whoever wrote half a payload before is gone; from here each command takes what was written.
		signals.0.write_word(LENGTH_PORT, 0);
		let reply = match signals.transact(command::VERSION, &[], true) {
			Ok(reply) => reply,
			// Whatever else decodes these ports is no monitor.
			Err(_) => return Err(GuestError::NoMonitor),
		};
		let version = reply.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).ok_or(GuestError::NoMonitor)?;
		if version == VERSION { Ok(signals) } else { Err(GuestError::Version(version)) }
	}

	/// The ports of a monitor found before.
	pub fn known(ports: P) -> Self {
		Self(ports)
	}

	/// Says that the guest is warm. Returns in the template, if that goes on, and in every clone.
	///
	/// # Errors
	/// [`GuestError::Status`], [`GuestError::Reply`].
	pub fn fork(&mut self) -> Result<Forked, GuestError> {
		let reply = self.signal(&Signal::Fork, true)?;
		Forked::decode(&reply).ok_or(GuestError::Reply)
	}

	/// Says that the work is over. A monitor ends the guest and this does not return.
	///
	/// # Errors
	/// [`GuestError::Status`].
	pub fn done(&mut self, status: u32, result: &[u8]) -> Result<(), GuestError> {
		self.signal(&Signal::Done(Done { status, result: result.to_vec() }), false).map(drop)
	}

	/// Restarts the monitor's timer and returns the nanoseconds it had run.
	///
	/// # Errors
	/// [`GuestError::Status`], [`GuestError::Reply`].
	pub fn reset(&mut self) -> Result<u64, GuestError> {
		let reply = self.signal(&Signal::Reset, true)?;
		reply.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).ok_or(GuestError::Reply)
	}

	/// Says that this clone is ready for use.
	///
	/// # Errors
	/// [`GuestError::Status`] with [`Status::Refused`] if `generation` is not this clone's.
	pub fn alive(&mut self, generation: &Generation) -> Result<(), GuestError> {
		self.signal(&Signal::Alive(*generation), false).map(drop)
	}

	fn signal(&mut self, signal: &Signal, has_reply: bool) -> Result<Vec<u8>, GuestError> {
		let (number, payload) = signal.encode();
		self.transact(number, &payload, has_reply)
	}

	/// Every access is an exit of the guest, so there is none that need not be.
	fn transact(&mut self, number: u8, payload: &[u8], has_reply: bool) -> Result<Vec<u8>, GuestError> {
		if !payload.is_empty() {
			self.0.write_bytes(DATA_PORT, payload);
		}
		self.0.write_byte(COMMAND_PORT, number);
		match Status::from_number(self.0.read_byte(COMMAND_PORT)) {
			Some(Status::Ok) => {}
			Some(status) => return Err(GuestError::Status(status)),
			None => return Err(GuestError::NoMonitor),
		}
		if !has_reply {
			return Ok(Vec::new());
		}
		let length = self.0.read_word(LENGTH_PORT) as usize;
		if length > MAX_PAYLOAD {
			return Err(GuestError::Reply);
		}
		let mut reply = vec![0; length];
		if length > 0 {
			self.0.read_bytes(DATA_PORT, &mut reply);
		}
		Ok(reply)
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::{
		agent::CloneIdentity,
		signal::{Access, Device, Role},
	};

	/// A monitor that answers everything, and counts exits.
	#[derive(Default)]
	struct Monitor {
		device: Device,
		exits: u32,
	}

	fn forked() -> Forked {
		let identity = CloneIdentity { name: "c".into(), index: 4, generation: [8; 16], job: vec![7; 500] };
		Forked { role: Role::Clone, identity, realtime_ns: 6, entropy: [5; 32], disks: Vec::new() }
	}

	impl Monitor {
		fn write(&mut self, port: u16, data: &[u8]) {
			self.exits += 1;
			match self.device.write(port, data) {
				Access::None => {}
				Access::Signal(Signal::Fork) => self.device.answer(Status::Ok, &forked().encode()),
				Access::Signal(Signal::Reset) => self.device.answer(Status::Ok, &99_u64.to_le_bytes()),
				Access::Signal(Signal::Alive(generation)) => {
					let status = if generation == [8; 16] { Status::Ok } else { Status::Refused };
					self.device.answer(status, &[]);
				}
				Access::Signal(Signal::Done(done)) => assert_eq!((done.status, done.result.len()), (3, 4000)),
			}
		}

		fn read<const N: usize>(&mut self, port: u16) -> [u8; N] {
			let mut data = [0; N];
			self.take(port, &mut data);
			data
		}

		fn take(&mut self, port: u16, bytes: &mut [u8]) {
			self.exits += 1;
			self.device.read(port, bytes);
		}
	}

	impl PortIo for &mut Monitor {
		fn write_byte(&mut self, port: u16, value: u8) {
			self.write(port, &[value]);
		}
		fn write_word(&mut self, port: u16, value: u32) {
			self.write(port, &value.to_le_bytes());
		}
		fn read_byte(&mut self, port: u16) -> u8 {
			self.read::<1>(port)[0]
		}
		fn read_word(&mut self, port: u16) -> u32 {
			u32::from_le_bytes(self.read(port))
		}
		fn write_bytes(&mut self, port: u16, bytes: &[u8]) {
			self.write(port, bytes);
		}
		fn read_bytes(&mut self, port: u16, bytes: &mut [u8]) {
			self.take(port, bytes);
		}
	}

	#[test]
	fn guest_and_device_understand_each_other() {
		let mut monitor = Monitor::default();
		// Left by a program that was killed.
		monitor.device.write(DATA_PORT, &[1; 5]);
		let mut signals = Signals::find(&mut monitor).unwrap();
		assert_eq!(signals.fork().unwrap(), forked());
		assert_eq!(signals.reset().unwrap(), 99);
		assert_eq!(signals.alive(&[9; 16]), Err(GuestError::Status(Status::Refused)));
		signals.alive(&[8; 16]).unwrap();
		signals.done(3, &[1; 4000]).unwrap();
		assert_eq!(signals.done(3, &[1; 4093]), Err(GuestError::Status(Status::BadPayload)));
	}

	#[test]
	fn a_clone_is_alive_after_six_more_exits() {
		let mut monitor = Monitor::default();
		Signals::find(&mut monitor).unwrap();
		monitor.exits = 0;
		let mut signals = Signals(&mut monitor);
		signals.fork().unwrap();
		signals.alive(&[8; 16]).unwrap();
		// The fork's own and three for its reply; payload, command and status of the other.
		assert_eq!(monitor.exits, 4 + 3);
	}

	#[test]
	fn ports_without_a_monitor_are_told() {
		struct Empty;
		impl PortIo for Empty {
			fn write_byte(&mut self, _: u16, _: u8) {}
			fn write_word(&mut self, _: u16, _: u32) {}
			fn read_byte(&mut self, _: u16) -> u8 {
				0xff
			}
			fn read_word(&mut self, _: u16) -> u32 {
				u32::MAX
			}
			fn write_bytes(&mut self, _: u16, _: &[u8]) {}
			fn read_bytes(&mut self, _: u16, bytes: &mut [u8]) {
				bytes.fill(0xff);
			}
		}
		assert_eq!(Signals::find(Empty).err(), Some(GuestError::NoMonitor));
	}
}
