//! Connections passed on, both halves in this process: between them, channels in place of a machine's border.

use flashfork_transfer::{Passed, Peer, Side, relay};
use serde_bytes::ByteBuf;
use std::{
	io::{ErrorKind, Read, Write},
	net::{Shutdown, TcpListener, TcpStream},
	os::{
		fd::{AsFd, BorrowedFd},
		unix::net::UnixStream,
	},
	sync::Mutex,
	thread::{self, JoinHandle},
	time::{Duration, Instant},
};

/// More than anything here takes on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn connection() -> (TcpStream, TcpStream) {
	let listener = TcpListener::bind("127.0.0.1:0").unwrap();
	let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
	client.set_read_timeout(Some(PATIENCE)).unwrap();
	(client, listener.accept().unwrap().0)
}

/// Messages over a socket: a length, of which zero is the end, and bytes.
struct Wire {
	socket: UnixStream,
	writer: Mutex<UnixStream>,
}

impl AsFd for Wire {
	fn as_fd(&self) -> BorrowedFd<'_> {
		self.socket.as_fd()
	}
}

impl Peer for Wire {
	fn send(&self, data: Option<&[u8]>) -> bool {
		let data = data.unwrap_or_default();
		let message = [&(data.len() as u32).to_le_bytes(), data].concat();
		self.writer.lock().unwrap().write_all(&message).is_ok()
	}

	fn hang_up(&self) {
		let _ = self.socket.shutdown(Shutdown::Both);
	}
}

fn receive(mut socket: &UnixStream) -> Option<Passed> {
	let mut length = [0; 4];
	socket.read_exact(&mut length).ok()?;
	let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
	socket.read_exact(&mut bytes).ok()?;
	Some(if bytes.is_empty() { Passed::End } else { Passed::Data(ByteBuf::from(bytes)) })
}

fn serve(tcp: TcpStream, socket: UnixStream, host: bool) -> JoinHandle<bool> {
	thread::spawn(move || {
		let wire = Wire { writer: Mutex::new(socket.try_clone().unwrap()), socket };
		let side = if host { Side::Host } else { Side::Guest };
		relay(&tcp, &wire, || receive(&wire.socket), side).unwrap()
	})
}

/// A client, the server in the "guest", what passes between them, and the socket in between.
fn passed() -> (TcpStream, TcpStream, [JoinHandle<bool>; 2], UnixStream) {
	let (client, here) = connection();
	let (server, there) = connection();
	let (host, guest) = UnixStream::pair().unwrap();
	let cut = host.try_clone().unwrap();
	(client, server, [serve(here, host, true), serve(there, guest, false)], cut)
}

fn is_reset(stream: &mut TcpStream) -> bool {
	let mut rest = Vec::new();
	stream.read_to_end(&mut rest).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

fn rest(stream: &mut TcpStream) -> Vec<u8> {
	let mut rest = Vec::new();
	stream.read_to_end(&mut rest).unwrap();
	rest
}

#[test]
fn the_end_of_one_half_is_passed_on_and_the_other_goes_on() {
	for client_first in [true, false] {
		let (client, server, relays, _) = passed();
		let (mut first, mut second) = if client_first { (client, server) } else { (server, client) };
		first.write_all(b"question").unwrap();
		first.shutdown(Shutdown::Write).unwrap();
		assert_eq!(rest(&mut second), b"question");
		// More than all buffers on the way.
		let answer: Vec<u8> = (0..8 << 20).map(|i: u32| (i ^ (i >> 8)) as u8).collect();
		let writer = thread::spawn({
			let answer = answer.clone();
			move || second.write_all(&answer)
		});
		assert!(rest(&mut first) == answer);
		writer.join().unwrap().unwrap();
		assert!(relays.into_iter().all(|relay| relay.join().unwrap()), "ended well");
	}
}

#[test]
fn who_does_not_read_holds_up_who_writes() {
	let (mut client, mut server, relays, _) = passed();
	client.set_nonblocking(true).unwrap();
	let mut sent = 0_u64;
	let mut quiet = Instant::now();
	// Until no more is taken for a second.
	while quiet.elapsed() < Duration::from_secs(1) {
		match client.write(&[7; 65536]) {
			Ok(count) => {
				sent += count as u64;
				quiet = Instant::now();
			}
			Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(5)),
			Err(error) => panic!("{error}"),
		}
		assert!(sent < 64 << 20, "it is kept somewhere");
	}
	client.shutdown(Shutdown::Write).unwrap();
	assert_eq!(rest(&mut server).len() as u64, sent);
	drop(server);
	client.set_nonblocking(false).unwrap();
	assert_eq!(rest(&mut client), b"");
	assert!(relays.into_iter().all(|relay| relay.join().unwrap()));
}

#[test]
fn what_ends_in_the_middle_is_a_reset_and_no_end() {
	// The machine in between goes, one side is busy or not.
	for busy in [false, true] {
		let (mut client, mut server, relays, cut) = passed();
		client.write_all(b"x").unwrap();
		server.read_exact(&mut [0]).unwrap();
		server.write_all(b"half an answer").unwrap();
		client.read_exact(&mut [0; 14]).unwrap();
		let writer = busy.then(|| {
			let mut client = client.try_clone().unwrap();
			// Nobody reads it.
			thread::spawn(move || while client.write_all(&[0; 65536]).is_ok() {})
		});
		cut.shutdown(Shutdown::Both).unwrap();
		assert!(is_reset(&mut client) || busy, "not the client");
		if let Some(writer) = writer {
			writer.join().unwrap();
		}
		assert!(is_reset(&mut server), "not the server");
		assert!(relays.into_iter().all(|relay| !relay.join().unwrap()));
	}
	// One that resets resets the other.
	for client_resets in [true, false] {
		let (client, server, relays, _) = passed();
		let (resets, mut other) = if client_resets { (client, server) } else { (server, client) };
		rustix::net::sockopt::set_socket_linger(&resets, Some(Duration::ZERO)).unwrap();
		drop(resets);
		assert!(is_reset(&mut other), "{client_resets}");
		assert!(relays.into_iter().all(|relay| !relay.join().unwrap()));
	}
}

#[test]
fn a_host_that_goes_away_is_noticed_while_the_guest_s_program_reads_nothing() {
	let (mut server, there) = connection();
	let (host, guest) = UnixStream::pair().unwrap();
	let relay = serve(there, guest, false);
	let wire = Wire { writer: Mutex::new(host.try_clone().unwrap()), socket: host };
	wire.socket.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
	// As much as goes in; the last message may be cut.
	while wire.send(Some(&[1; 60_000])) {}
	drop(wire);
	assert!(!relay.join().unwrap());
	assert!(is_reset(&mut server));
}

#[test]
fn a_reset_is_noticed_while_the_other_machine_takes_nothing() {
	for host in [true, false] {
		let (mut client, here) = connection();
		let (socket, _takes_nothing) = UnixStream::pair().unwrap();
		let relay = serve(here, socket, host);
		client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
		while client.write(&[1; 60_000]).is_ok() {}
		rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
		drop(client);
		assert!(!relay.join().unwrap(), "{host}");
	}
}
