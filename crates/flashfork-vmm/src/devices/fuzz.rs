//! Whole guests from bytes, at the I/O ports: serial and signals.

use super::{serial::Console, signal::SignalPort};
use crate::{
	events,
	fuzz::{Input, fuzz},
};
use flashfork_proto::signal::{COMMAND_PORT, PORTS, Status};

#[test]
fn ports() {
	fuzz("ports", 5000, |input| {
		let mut console = Console::unconnected(Box::new(std::io::sink())).unwrap();
		let (outbox, inbox) = events::queue().unwrap();
		let mut signal = SignalPort::new(outbox);
		let mut input = Input(input);
		while !input.is_over() {
			let (what, number) = (input.u8(), input.u8());
			// String instructions move as much as a page at once.
			let length = usize::from(input.u16() % 4097);
			let mut data = vec![0; length];
			let bytes = input.bytes(length);
			data[..bytes.len()].copy_from_slice(bytes);
			let port = COMMAND_PORT + u16::from(number) % PORTS;
			match what % 8 {
				0 => console.write(u16::from(number % 8), &data),
				1 => console.read(u16::from(number % 8), &mut data),
				2 => assert!(console.input(&data) <= length),
				3 => {
					let state = console.save();
					console.restore(&state).unwrap();
					assert_eq!(console.save(), state);
				}
				// Bytes as a state: refused, or taken.
				4 => drop(postcard::from_bytes(&data).map(|state| console.restore(&state))),
				5 => drop(signal.write(port, &data)),
				6 => signal.read(port, &mut data),
				_ => match postcard::from_bytes(&data) {
					Ok(state) => signal.restore(&state),
					Err(_) => signal.answer(Status::Ok, &data),
				},
			}
			while inbox.take(Some(std::time::Duration::ZERO)).is_some() {}
		}
	});
}
