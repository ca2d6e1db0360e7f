//! Traces, as a collector of OpenTelemetry's gets them.

use crate::common::{Server, until};
use std::{
	io::{Read, Write},
	net::TcpListener,
	sync::{Arc, Mutex},
};

#[test]
fn a_call_goes_on_with_the_trace_of_its_caller() {
	let collector = TcpListener::bind("127.0.0.1:0").unwrap();
	let place = format!("http://{}", collector.local_addr().unwrap());
	let got = Arc::<Mutex<Vec<u8>>>::default();
	let keeper = got.clone();
	std::thread::spawn(move || {
		for stream in collector.incoming() {
			let (mut stream, keeper) = (stream.unwrap(), keeper.clone());
			std::thread::spawn(move || {
				let mut bytes = [0; 4096];
				while let Ok(count @ 1..) = stream.read(&mut bytes) {
					keeper.lock().unwrap().extend(&bytes[..count]);
					// For each part of a request; one answer too many closes the connection.
					stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
				}
			});
		}
	});
	let server = Server::start_as("traces", &[], |command| {
		command.env("OTEL_EXPORTER_OTLP_ENDPOINT", place).env("OTEL_BSP_SCHEDULE_DELAY", "50");
	});
	server.deploy("f", &["--timeout", "20"]);
	let parent = "Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
	let (status, _, _) = server.ask("POST", "/2015-03-31/functions/f/invocations", parent, b"{}");
	assert_eq!(status, 200);
	let parts: [&[u8]; 6] = [
		&[0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36],
		&[0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7],
		b"invoke",
		b"admit",
		b"clone",
		b"run",
	];
	until("the trace is not sent", || {
		let got = got.lock().unwrap();
		parts.iter().all(|part| got.windows(part.len()).any(|window| window == *part))
	});
}
