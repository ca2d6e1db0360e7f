//! What daemon, shells and agent say to each other, from bytes: an error or a message, whatever comes.

#[path = "common/fuzz.rs"]
mod fuzz;

use flashfork_proto::{
	Preamble, Protocol,
	agent::{MAX_FRAME, Reply, Request},
	frame,
	shell::{Channel, FromShell, ToShell},
	signal::{Forked, Signal},
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

/// What decodes encodes to what decodes to the same.
fn frames<T: Serialize + DeserializeOwned + PartialEq + Debug>(mut stream: &[u8]) {
	while let Ok(Some(message)) = frame::read::<T>(&mut stream, MAX_FRAME) {
		let mut again = Vec::new();
		frame::write(&mut again, &message, MAX_FRAME * 2).unwrap();
		assert_eq!(frame::read::<T>(&mut again.as_slice(), MAX_FRAME * 2).unwrap(), Some(message));
	}
}

fn packet<T: DeserializeOwned>(bytes: &[u8]) {
	let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
	if !bytes.is_empty() && send(&ours, bytes, SendFlags::empty()).is_ok() {
		// An error, or a message.
		let _ = Channel::new(theirs).receive::<T>();
	}
}

#[test]
fn messages() {
	fuzz::fuzz("messages", 5000, |input| {
		let Some((kind, bytes)) = input.split_first() else { return };
		match kind % 7 {
			0 => frames::<Request>(bytes),
			1 => frames::<Reply>(bytes),
			2 => frames::<ToShell>(bytes),
			3 => frames::<FromShell>(bytes),
			4 => packet::<ToShell>(bytes),
			5 => packet::<FromShell>(bytes),
			_ => {
				let _ = Preamble(Protocol::Agent).expect(&mut &*bytes);
				if let Some(forked) = Forked::decode(bytes) {
					assert_eq!(Forked::decode(&forked.encode()), Some(forked));
				}
				if let Some((number, payload)) = bytes.split_first()
					&& let Ok(signal) = Signal::decode(*number, payload)
				{
					let (number, payload) = signal.encode();
					assert_eq!(Signal::decode(number, &payload), Ok(signal));
				}
			}
		}
	});
}
