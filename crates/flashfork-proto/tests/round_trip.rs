//! Every message comes back as it was; arbitrary and damaged bytes are errors, never a panic, and what
//! decodes encodes to something that decodes to the same.

mod any;

use any::any;
use flashfork_proto::{
	agent::{MAX_FRAME, Reply, Request},
	frame,
	function::Said,
	shell::{FromShell, Renewal, ToShell},
	signal::{Access, Device, Forked, MAX_PAYLOAD, Signal},
};
use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

/// Values tried at a time.
const MANY: u64 = 4;

fn encoded<T: Serialize>(message: &T) -> Vec<u8> {
	let mut stream = Vec::new();
	frame::write(&mut stream, message, MAX_FRAME).unwrap();
	stream
}

fn comes_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(message: &T) {
	let stream = encoded(message);
	assert_eq!(frame::read::<T>(&mut stream.as_slice(), MAX_FRAME).unwrap().as_ref(), Some(message));
}

/// Whatever `stream` is, reading it ends, and what was read is a message that comes back.
fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(mut stream: &[u8]) {
	while let Ok(Some(message)) = frame::read::<T>(&mut stream, MAX_FRAME) {
		comes_back(&message);
	}
}

proptest! {
	#[test]
	fn requests_come_back(seed: u64) {
		(0..MANY).for_each(|i| comes_back::<Request>(&any(seed ^ i)));
	}

	#[test]
	fn replies_come_back(seed: u64) {
		(0..MANY).for_each(|i| comes_back::<Reply>(&any(seed ^ i)));
	}

	#[test]
	fn shell_messages_come_back(seed: u64) {
		(0..MANY).for_each(|i| comes_back::<ToShell>(&any(seed ^ i)));
		(0..MANY).for_each(|i| comes_back::<FromShell>(&any(seed ^ i)));
	}

	#[test]
	fn arbitrary_bytes_are_survived(content in prop::collection::vec(prop::num::u8::ANY, 0..200)) {
		let mut stream = (content.len() as u32).to_le_bytes().to_vec();
		stream.extend_from_slice(&content);
		for stream in [&stream, &content] {
			survives::<Request>(stream);
			survives::<Reply>(stream);
			survives::<Said>(stream);
			survives::<ToShell>(stream);
			survives::<FromShell>(stream);
		}
	}

	#[test]
	fn damaged_messages_are_survived(seed: u64, at: usize, value: u8) {
		for mut stream in [encoded(&any::<Request>(seed)), encoded(&any::<ToShell>(seed))] {
			let at = at % stream.len();
			stream[at] = value;
			survives::<Request>(&stream);
			survives::<ToShell>(&stream);
		}
	}

	#[test]
	fn a_guest_may_do_anything_to_the_ports(
		accesses in prop::collection::vec(
			(prop::bool::ANY, 0x1230_u16..0x1244, prop::collection::vec(prop::num::u8::ANY, 0..5000)), 0..30)
	) {
		let mut device = Device::default();
		for (write, port, mut data) in accesses {
			if write {
				if let Access::Signal(signal) = device.write(port, &data) {
					let (number, payload) = signal.encode();
					prop_assert!(payload.len() <= MAX_PAYLOAD);
					prop_assert_eq!(Signal::decode(number, &payload), Ok(signal));
					device.answer(Default::default(), &data);
				}
			} else {
				device.read(port, &mut data);
			}
		}
	}

	#[test]
	fn replies_to_a_fork_come_back(
		seed: u64,
		time: u64,
		name in "[a-z][a-z0-9.-]{0,63}",
		other in prop::collection::vec(prop::num::u8::ANY, 0..200),
	) {
		let mut renewal: Renewal = any(seed);
		renewal.identity.name = name;
		let forked = renewal.forked(time);
		prop_assert_eq!(Forked::decode(&forked.encode()), Some(forked));
		if let Some(forked) = Forked::decode(&other) {
			prop_assert_eq!(Forked::decode(&forked.encode()), Some(forked));
		}
	}
}

#[test]
fn a_list_that_claims_to_be_endless_is_an_error() {
	// Exec with 2^63 arguments.
	let content = [1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
	let mut stream = vec![content.len() as u8, 0, 0, 0];
	stream.extend(content);
	assert!(frame::read::<Request>(&mut stream.as_slice(), MAX_FRAME).is_err());
}
