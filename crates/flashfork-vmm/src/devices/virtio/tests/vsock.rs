//! Streams between sockets of the host and a guest, played by the test.

use crate::devices::virtio::{
	device::{Broken, Queues, VirtioDevice},
	driver::{BUFFERS, Driver},
	vsock::{Connector, Vsock},
};
use event_manager::{EventOps, Events};
use std::{
	io::{ErrorKind, Read, Write},
	net::Shutdown,
	os::unix::net::UnixStream,
	time::Duration,
};

const REQUEST: u16 = 1;
const RESPONSE: u16 = 2;
const RST: u16 = 3;
const SHUTDOWN: u16 = 4;
const RW: u16 = 5;
const CREDIT_UPDATE: u16 = 6;
const CREDIT_REQUEST: u16 = 7;

const CID: u32 = 42;
const PORT: u32 = 6640;
const RX: usize = 0;
const TX: usize = 1;
const EVENT: usize = 2;
/// Size of a receive buffer, as Linux has it.
const BUFFER: u32 = 4096;
const EVENTS: u64 = BUFFERS + 0x20_0000;
const SENT: u64 = BUFFERS + 0x21_0000;

pub(super) struct Guest {
	pub driver: Driver,
	pub connector: Connector,
	next: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Packet {
	host_port: u32,
	op: u16,
	flags: u32,
	fwd_cnt: u32,
	data: Vec<u8>,
}

impl Guest {
	/// With a driver that has given the device no buffers.
	pub(super) fn without_buffers() -> Self {
		let connector = Connector::new().unwrap();
		connector.set_cid(CID);
		let driver = Driver::start(Box::new(Vsock::new(connector.clone())), true);
		Self { driver, connector, next: 0 }
	}

	fn start() -> Self {
		let mut guest = Self::without_buffers();
		guest.give_buffers(64);
		guest.give_event_buffers();
		guest
	}

	fn cloned(&self) -> Self {
		self.cloned_as(|device| Box::new(device))
	}

	fn cloned_as(&self, device: impl FnOnce(Vsock) -> Box<dyn VirtioDevice>) -> Self {
		self.driver.settle();
		self.driver.transport().pause();
		let state = self.driver.transport().save();
		let connector = Connector::new().unwrap();
		connector.set_cid(CID);
		let driver = self.driver.restored(device(Vsock::new(connector.clone())), &state);
		Self { driver, connector, next: self.next }
	}

	/// The same clone once it runs, and a stream for which it is asked: it has been told that connections are gone.
	fn resumed_clone(&self) -> (Self, UnixStream) {
		let mut clone = self.cloned();
		let host = clone.call();
		clone.driver.transport().resume();
		for _ in 0..8 {
			let (_, length) = clone.driver.used(EVENT).expect("TRANSPORT_RESET");
			assert_eq!(length, 4);
		}
		(clone, host)
	}

	fn give_buffers(&mut self, count: u64) {
		for _ in 0..count {
			let at = BUFFERS + self.next % 128 * u64::from(BUFFER);
			self.next += 1;
			self.driver.submit(RX, &[(at, BUFFER, true)]);
		}
	}

	fn give_event_buffers(&mut self) {
		for n in 0..8 {
			self.driver.submit(EVENT, &[(EVENTS + 16 * n, 4, true)]);
		}
	}

	/// The next packet; its buffer is given back.
	fn packet(&mut self) -> Packet {
		self.packet_within(Duration::from_secs(120)).expect("a packet")
	}

	fn packet_within(&mut self, patience: Duration) -> Option<Packet> {
		let (head, length) = self.driver.used_within(RX, patience)?;
		let at =
			u64::from_le_bytes(self.driver.read(self.driver.ring(RX) + 16 * u64::from(head), 8).try_into().unwrap());
		let bytes = self.driver.read(at, length as usize);
		let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
		assert_eq!((word(0), word(8)), (2, CID), "from the host to the guest");
		assert_eq!((word(20), word(24)), (PORT, length - 44));
		self.driver.submit(RX, &[(at, BUFFER, true)]);
		Some(Packet {
			host_port: word(16),
			op: word(28).to_le_bytes()[2].into(),
			flags: word(32),
			fwd_cnt: word(40),
			data: bytes[44..].to_vec(),
		})
	}

	fn expect(&mut self, op: u16) -> Packet {
		let packet = self.packet();
		assert_eq!(packet.op, op, "{packet:?}");
		packet
	}

	fn send(&mut self, host_port: u32, op: u16, data: &[u8]) {
		self.send_with(host_port, op, 0, (1 << 20, 0), data);
	}

	fn send_with(&mut self, host_port: u32, op: u16, flags: u32, (alloc, forwarded): (u32, u32), data: &[u8]) {
		let header = header(CID.into(), host_port, op, flags, data.len() as u32, alloc, forwarded);
		self.driver.write(SENT, &[&header, data].concat());
		// In several pieces, as newer kernels send large ones.
		let half = data.len() as u32 / 2;
		let rest = data.len() as u32 - half;
		let mut chain = vec![(SENT, 44, false)];
		chain.extend([(SENT + 44, half, false), (SENT + 44 + u64::from(half), rest, false)].iter().filter(|p| p.1 > 0));
		self.driver.submit(TX, &chain);
		assert!(self.driver.used(TX).is_some());
	}

	fn close(&mut self, host_port: u32) {
		self.send_with(host_port, SHUTDOWN, 3, (1 << 20, 0), &[]);
	}

	/// The host's end of a stream for which the guest is asked.
	fn call(&self) -> UnixStream {
		let (host, device) = UnixStream::pair().unwrap();
		self.connector.connect(device.into(), PORT);
		host
	}

	/// A stream that the guest has accepted.
	fn connect(&mut self) -> (UnixStream, u32) {
		let host = self.call();
		let port = self.expect(REQUEST).host_port;
		self.send(port, RESPONSE, &[]);
		host.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
		(host, port)
	}
}

pub(super) fn header(cid: u64, port: u32, op: u16, flags: u32, length: u32, alloc: u32, forwarded: u32) -> Vec<u8> {
	let parts: [&[u8]; 10] = [
		&cid.to_le_bytes(),
		&2u64.to_le_bytes(),
		&PORT.to_le_bytes(),
		&port.to_le_bytes(),
		&length.to_le_bytes(),
		&1u16.to_le_bytes(),
		&op.to_le_bytes(),
		&flags.to_le_bytes(),
		&alloc.to_le_bytes(),
		&forwarded.to_le_bytes(),
	];
	parts.concat()
}

fn read(stream: &mut UnixStream, length: usize) -> Vec<u8> {
	let mut bytes = vec![0; length];
	stream.read_exact(&mut bytes).unwrap();
	bytes
}

/// Whether the host's side has ended, in whichever way.
fn ended(stream: &mut UnixStream) -> bool {
	match stream.read(&mut [0; 16]) {
		Ok(length) => length == 0,
		Err(e) => e.kind() == ErrorKind::ConnectionReset,
	}
}

#[test]
fn bytes_go_both_ways_and_streams_end_in_order() {
	let mut guest = Guest::start();
	let (mut host, port) = guest.connect();
	host.write_all(b"question").unwrap();
	assert_eq!(guest.expect(RW).data, b"question");
	guest.send(port, RW, b"answer");
	assert_eq!(read(&mut host, 6), b"answer");
	// The host ends its half, the guest says a last word and closes.
	host.shutdown(Shutdown::Write).unwrap();
	assert_eq!(guest.expect(SHUTDOWN).flags, 2);
	guest.send(port, RW, b"last");
	guest.close(port);
	assert_eq!(guest.expect(RST).host_port, port);
	assert_eq!(read(&mut host, 4), b"last");
	assert!(ended(&mut host));
}

#[test]
fn what_a_guest_sent_before_it_closed_reaches_a_host_that_reads_late() {
	let mut guest = Guest::start();
	let (mut host, port) = guest.connect();
	host.shutdown(Shutdown::Write).unwrap();
	assert_eq!(guest.expect(SHUTDOWN).flags, 2);
	// More than the socket takes: the rest is in the device.
	let text: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
	for piece in text.chunks(60_000) {
		guest.send(port, RW, piece);
	}
	guest.close(port);
	guest.send(port, RST, &[]);
	guest.driver.settle();
	let mut got = Vec::new();
	host.read_to_end(&mut got).unwrap();
	assert!(got == text, "{} of {}", got.len(), text.len());
	// After news of room.
	while guest.packet().op != RST {}
}

#[test]
fn a_port_where_nobody_listens_ends_the_stream_and_the_next_works() {
	let mut guest = Guest::start();
	let mut host = guest.call();
	let port = guest.expect(REQUEST).host_port;
	guest.send(port, RST, &[]);
	assert!(ended(&mut host));
	let (mut host, port) = guest.connect();
	guest.send(port, RW, b"x");
	assert_eq!(read(&mut host, 1), b"x");
}

#[test]
fn a_host_that_goes_away_is_a_shutdown_of_both_halves() {
	let mut guest = Guest::start();
	let (mut host, _) = guest.connect();
	host.write_all(b"bye").unwrap();
	drop(host);
	assert_eq!(guest.expect(RW).data, b"bye");
	let mut packet = guest.expect(SHUTDOWN);
	if packet.flags == 2 {
		packet = guest.expect(SHUTDOWN);
	}
	assert_eq!(packet.flags, 3);
}

#[test]
fn the_guest_reaches_nothing_on_the_host_by_itself() {
	let mut guest = Guest::start();
	for op in [REQUEST, RW, RESPONSE, SHUTDOWN, CREDIT_REQUEST] {
		guest.send(6641, op, &[]);
		assert_eq!(guest.expect(RST).host_port, 6641);
	}
}

#[test]
fn no_more_is_sent_than_the_guest_has_room_for() {
	let mut guest = Guest::start();
	let mut host = guest.call();
	let port = guest.expect(REQUEST).host_port;
	guest.send_with(port, RESPONSE, 0, (10, 0), &[]);
	host.write_all(&[7; 25]).unwrap();
	assert_eq!(guest.expect(RW).data.len(), 10);
	guest.expect(CREDIT_REQUEST);
	assert_eq!(guest.packet_within(Duration::from_millis(50)), None);
	guest.send_with(port, CREDIT_UPDATE, 0, (10, 10), &[]);
	assert_eq!(guest.expect(RW).data.len(), 10);
	guest.expect(CREDIT_REQUEST);
	guest.send_with(port, CREDIT_UPDATE, 0, (10, 20), &[]);
	assert_eq!(guest.expect(RW).data.len(), 5);
}

#[test]
fn a_guest_that_sends_more_than_it_may_loses_the_connection_only() {
	let mut guest = Guest::start();
	let (mut slow, port) = guest.connect();
	let (mut other, other_port) = guest.connect();
	let mut packets = 0;
	// Nobody reads: the socket's buffer fills, then the device's. It may tell of room before that.
	while guest.packet_within(Duration::ZERO).is_none_or(|packet| packet.op != RST) {
		guest.send(port, RW, &[1; 60_000]);
		packets += 1;
		assert!(packets < 1000, "it is bounded");
	}
	while slow.read(&mut [0; 65536]).is_ok_and(|length| length > 0) {}
	guest.send(other_port, RW, b"fine");
	assert_eq!(read(&mut other, 4), b"fine");
}

#[test]
fn the_guest_hears_of_room_that_becomes_free() {
	let mut guest = Guest::start();
	let (mut host, port) = guest.connect();
	let mut sent = 0;
	for _ in 0..3 {
		guest.send(port, RW, &[2; 60_000]);
		sent += 60_000;
		read(&mut host, 60_000);
	}
	let update = guest.expect(CREDIT_UPDATE);
	assert!(update.fwd_cnt >= 128 << 10 && update.fwd_cnt <= sent, "{update:?}");
}

#[test]
fn packets_wait_for_buffers_and_nothing_is_lost_or_spins() {
	let mut guest = Guest::without_buffers();
	guest.give_event_buffers();
	let mut host = guest.call();
	guest.driver.settle();
	guest.give_buffers(1);
	let port = guest.expect(REQUEST).host_port;
	guest.send(port, RESPONSE, &[]);
	let text: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
	let writer = std::thread::spawn({
		let text = text.clone();
		move || host.write_all(&text).map(|()| host)
	});
	let mut got = Vec::new();
	while got.len() < text.len() {
		got.extend(guest.expect(RW).data);
	}
	assert!(got == text);
	writer.join().unwrap().unwrap();
}

#[test]
fn event_buffers_that_come_back_one_by_one_say_that_the_guest_has_forgotten() {
	let parent = Guest::start();
	let (mut clone, _host) = parent.resumed_clone();
	for n in 0..8 {
		clone.driver.submit(EVENT, &[(EVENTS + 16 * n, 4, true)]);
		// The device sees each before there is another; without its own kick, which a driver wouldn't give.
		std::thread::sleep(Duration::from_millis(20));
		drop(clone.driver.transport());
	}
	assert_eq!(clone.packet().op, REQUEST);
}

#[test]
fn after_a_restore_connections_are_dead_and_new_ones_wait_until_the_guest_has_forgotten_the_old() {
	let mut parent = Guest::start();
	let (mut old, old_port) = parent.connect();
	let (mut clone, mut host) = parent.resumed_clone();
	assert_eq!(clone.driver.read(EVENTS, 4), [0; 4]);
	clone.send(old_port, RW, b"from the life before");
	assert_eq!(clone.packet_within(Duration::from_millis(100)), None, "the guest has not forgotten yet");
	clone.give_event_buffers();
	// The refusal of the old connection's packet may come first.
	let mut packet = clone.packet();
	if packet.op == RST {
		packet = clone.packet();
	}
	assert_eq!(packet.op, REQUEST);
	clone.send(packet.host_port, RESPONSE, &[]);
	clone.send(packet.host_port, RW, b"listener alive");
	assert_eq!(read(&mut host, 14), b"listener alive");

	// The template's own connection goes on.
	parent.driver.transport().resume();
	parent.send(old_port, RW, b"here");
	assert_eq!(read(&mut old, 4), b"here");
}

#[test]
fn a_stream_after_a_restore_has_no_port_of_the_life_before() {
	let mut parent = Guest::start();
	let (_old, old_port) = parent.connect();
	let (mut clone, _host) = parent.resumed_clone();
	clone.give_event_buffers();
	assert_ne!(clone.expect(REQUEST).host_port, old_port);
}

/// They were told anew, and so many waited for as the guest doesn't have.
#[test]
fn event_buffers_that_come_back_while_others_are_told_are_answers() {
	let parent = Guest::start();
	for _ in 0..100 {
		let mut clone = parent.cloned();
		let _host = clone.call();
		let told = clone.driver.used_so_far(EVENT);
		clone.driver.transport().resume();
		for n in 0..8 {
			clone.driver.spin_until_used(EVENT, told.wrapping_add(n + 1));
			clone.driver.submit(EVENT, &[(EVENTS + 16 * u64::from(n), 4, true)]);
		}
		clone.expect(REQUEST);
	}
}

/// Takes three chains in its first turn, as one does that a pause cuts short.
struct CutShort(Vsock, bool);

impl CutShort {
	fn cut(&mut self, queues: &mut Queues<'_>) {
		if !std::mem::replace(&mut self.1, true) {
			queues.left = 3;
		}
	}
}

impl VirtioDevice for CutShort {
	fn kind(&self) -> u32 {
		self.0.kind()
	}
	fn queue_sizes(&self) -> &[u16] {
		self.0.queue_sizes()
	}
	fn init(&mut self, ops: &mut EventOps<'_>) {
		self.0.init(ops);
	}
	fn notified(&mut self, index: usize, queues: &mut Queues<'_>, ops: &mut EventOps<'_>) -> Result<(), Broken> {
		self.cut(queues);
		self.0.notified(index, queues, ops)
	}
	fn ready(&mut self, events: Events, queues: &mut Queues<'_>, ops: &mut EventOps<'_>) -> Result<(), Broken> {
		self.cut(queues);
		self.0.ready(events, queues, ops)
	}
	fn defer(&mut self, events: Events, ops: &mut EventOps<'_>) {
		self.0.defer(events, ops);
	}
	fn reset(&mut self) {
		self.0.reset();
	}
	fn restore(&mut self, state: &[u8]) -> Result<bool, String> {
		self.0.restore(state)
	}
}

/// Those that were not told yet passed for the guest's answers.
#[test]
fn event_buffers_that_a_pause_has_kept_from_being_told_are_no_answers() {
	let parent = Guest::start();
	let mut clone = parent.cloned_as(|device| Box::new(CutShort(device, false)));
	let _host = clone.call();
	clone.driver.transport().resume();
	for _ in 0..3 {
		assert!(clone.driver.used(EVENT).is_some());
	}
	clone.driver.settle();
	assert_eq!(clone.packet_within(Duration::from_millis(50)), None, "it has answered nothing");
	for n in 0..3 {
		clone.driver.submit(EVENT, &[(EVENTS + 16 * n, 4, true)]);
	}
	clone.expect(REQUEST);
}

#[test]
fn a_rollback_ends_the_streams() {
	let mut guest = Guest::start();
	guest.driver.transport().pause();
	let state = guest.driver.transport().save();
	guest.driver.transport().resume();
	let (mut host, _) = guest.connect();
	guest.driver.transport().pause();
	guest.driver.transport().restore(&state).unwrap();
	assert!(ended(&mut host), "before anything runs again");
}

#[test]
fn many_streams_at_once_and_more_than_there_may_be() {
	let mut guest = Guest::start();
	let mut streams: Vec<_> = (0..200).map(|_| guest.connect()).collect();
	for (n, (_, port)) in streams.iter().enumerate() {
		guest.send(*port, RW, &(n as u32).to_le_bytes());
	}
	for (n, (host, _)) in streams.iter_mut().enumerate() {
		assert_eq!(read(host, 4), (n as u32).to_le_bytes());
	}
	let more: Vec<_> = (0..100).map(|_| guest.call()).collect();
	for _ in 0..56 {
		guest.expect(REQUEST);
	}
	guest.driver.settle();
	let refused = more.into_iter().filter(|host| {
		host.set_nonblocking(true).unwrap();
		matches!((&*host).read(&mut [0; 1]), Ok(0))
	});
	assert_eq!(refused.count(), 44);
}
