//! The monitor's side: the ports as a state machine that touches nothing else.

use serde::{Deserialize, Serialize};

use super::{COMMAND_PORT, DATA_PORT, LENGTH_PORT, MAX_PAYLOAD, Signal, Status, VERSION, command};

/// The ports' state; part of a machine's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
	#[serde(with = "serde_bytes")]
	payload: Vec<u8>,
	/// The guest wrote more than a payload may have.
	overflow: bool,
	#[serde(with = "serde_bytes")]
	reply: Vec<u8>,
	taken: usize,
	status: Status,
}

/// What a write asks of the monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
	/// Nothing.
	None,
	/// To act on a signal and give its answer with [`Device::answer`] before the guest goes on.
	Signal(Signal),
}

impl Device {
	/// The guest wrote `data` to `port`. Ports between the three are ignored.
	pub fn write(&mut self, port: u16, data: &[u8]) -> Access {
		match port {
			COMMAND_PORT => {
				// A string instruction writes several commands at once; no guest means that.
				if let [number] = data {
					return self.command(*number);
				}
				self.answer(Status::BadPayload, &[]);
			}
			LENGTH_PORT => self.forget(),
			DATA_PORT => {
				let room = MAX_PAYLOAD - self.payload.len();
				self.overflow |= data.len() > room;
				self.payload.extend_from_slice(&data[..data.len().min(room)]);
			}
			_ => {}
		}
		Access::None
	}

	/// The guest reads `data.len()` bytes from `port`.
	pub fn read(&mut self, port: u16, data: &mut [u8]) {
		data.fill(0);
		match port {
			COMMAND_PORT => data.fill(self.status as u8),
			LENGTH_PORT => {
				let left = self.left().len() as u32;
				data.iter_mut().zip(left.to_le_bytes()).for_each(|(to, from)| *to = from);
			}
			DATA_PORT => {
				let count = self.left().len().min(data.len());
				data[..count].copy_from_slice(&self.left()[..count]);
				// A reply may hold a secret, and the guest has it now: no state of the machine does from here on.
				self.reply.iter_mut().skip(self.taken).take(count).for_each(|byte| *byte = 0);
				self.taken += count;
			}
			_ => {}
		}
	}

	/// What the guest will find: the status, and a reply cut at [`MAX_PAYLOAD`].
	pub fn answer(&mut self, status: Status, reply: &[u8]) {
		self.status = status;
		self.reply.fill(0);
		// Else the compiler might leave out what nobody reads.
		std::hint::black_box(&mut self.reply);
		self.reply = reply[..reply.len().min(MAX_PAYLOAD)].to_vec();
		self.taken = 0;
	}

	fn command(&mut self, number: u8) -> Access {
		let overflow = self.overflow;
		let payload = std::mem::take(&mut self.payload);
		self.forget();
		if overflow {
			self.answer(Status::BadPayload, &[]);
		} else if number == command::VERSION {
			self.answer(Status::Ok, &VERSION.to_le_bytes());
		} else {
			match Signal::decode(number, &payload) {
				// Until answered otherwise, all is well: the thesis's programs never ask.
				Ok(signal) => {
					self.answer(Status::Ok, &[]);
					return Access::Signal(signal);
				}
				Err(status) => self.answer(status, &[]),
			}
		}
		Access::None
	}

	fn forget(&mut self) {
		self.payload.clear();
		self.overflow = false;
	}

	/// What the guest has not taken of the reply. A loaded state may hold any position.
	fn left(&self) -> &[u8] {
		self.reply.get(self.taken..).unwrap_or_default()
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::signal::Done;

	#[test]
	fn one_byte_is_all_the_thesis_knows() {
		let mut device = Device::default();
		assert_eq!(device.write(COMMAND_PORT, &[0x10]), Access::Signal(Signal::Fork));
		assert_eq!(device.write(COMMAND_PORT, &[0x30]), Access::Signal(Signal::Reset));
		assert_eq!(device.write(COMMAND_PORT, &[0x20]), Access::Signal(Signal::Done(Done::default())));
	}

	#[test]
	fn a_payload_belongs_to_one_command() {
		let mut device = Device::default();
		device.write(DATA_PORT, &[1; 16]);
		assert_eq!(device.write(COMMAND_PORT, &[command::ALIVE]), Access::Signal(Signal::Alive([1; 16])));
		assert_eq!(device.write(COMMAND_PORT, &[command::ALIVE]), Access::None);
		let mut status = [0];
		device.read(COMMAND_PORT, &mut status);
		assert_eq!(status, [Status::BadPayload as u8]);
	}

	#[test]
	fn a_guest_that_never_stops_writing_fills_one_payload() {
		let mut device = Device::default();
		for _ in 0..1000 {
			device.write(DATA_PORT, &[0xaa; 4096]);
		}
		assert_eq!(device.payload.len(), MAX_PAYLOAD);
		assert_eq!(device.write(COMMAND_PORT, &[command::DONE]), Access::None);
		assert_eq!(device.status, Status::BadPayload);
		assert!(matches!(device.write(COMMAND_PORT, &[command::DONE]), Access::Signal(_)));
	}

	#[test]
	fn reseed_bytes_that_the_guest_has_taken_are_wiped_from_the_reply() {
		let mut device = Device::default();
		let secret = [0x5a; 32];
		device.answer(Status::Ok, &secret);
		device.read(DATA_PORT, &mut [0; 20]);
		assert!(device.reply.starts_with(&[0; 20]) && device.reply[20..] == secret[20..]);
		device.read(DATA_PORT, &mut [0; 100]);
		assert_eq!(device.reply, [0; 32]);
	}

	#[test]
	fn a_reply_is_taken_piece_by_piece_and_then_zeros() {
		let mut device = Device::default();
		device.answer(Status::Ok, &[1, 2, 3, 4, 5]);
		let mut data = [9; 3];
		device.read(DATA_PORT, &mut data);
		assert_eq!(data, [1, 2, 3]);
		let mut length = [9; 4];
		device.read(LENGTH_PORT, &mut length);
		assert_eq!(length, [2, 0, 0, 0]);
		device.read(DATA_PORT, &mut data);
		assert_eq!(data, [4, 5, 0]);
	}
}
