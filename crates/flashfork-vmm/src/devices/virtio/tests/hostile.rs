//! Guests that mean harm: whatever they put into registers, rings and descriptors ends in an answer, a reset device or
//! silence, and the device's thread lives. Cases that once were worth a thought are replayed by name, random ones are
//! added; each must be over in a moment.

use super::{
	blk::{image, slot},
	vsock::{Guest, header},
};
use crate::devices::virtio::{
	Rng, VirtioDevice,
	blk::{Blk, DEFAULT_LIMIT, Disk, Image},
	device::{Broken, Queues},
	driver::{BUFFERS, Driver, MEMORY, descriptor, memory},
	registers as reg,
	vsock::{Connector, Vsock},
};
use event_manager::EventOps;
use proptest::prelude::*;
use std::{
	sync::{
		Arc,
		atomic::{AtomicU64, Ordering},
		mpsc,
	},
	time::{Duration, Instant},
};
use virtio_queue::QueueT;
use vm_memory::{Bytes, GuestAddress};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

fn disk() -> Box<dyn VirtioDevice> {
	let image = Image { file: image(64), read_only: false, serial: String::new(), limit: DEFAULT_LIMIT };
	Box::new(Blk(slot(Disk::new(image).unwrap())))
}

fn devices() -> [Box<dyn VirtioDevice>; 3] {
	[disk(), Box::new(Rng), Box::new(Vsock::new(Connector::new().unwrap()))]
}

/// Registers can be read and written, and after a reset the device answers requests again.
fn lives(driver: &mut Driver) {
	driver.settle();
	assert_eq!(driver.register(0), 0x7472_6976);
	driver.set(0x70, 0);
	assert_eq!(driver.register(0x70), 0);
}

/// One chain of descriptors, in a queue of a device of each kind.
fn offer(chain: &[(u64, u32, u16, u16)], head: u16) {
	for device in devices() {
		let queues = device.queue_sizes().len();
		let mut driver = Driver::start(device, true);
		// A header that asks for something.
		driver.write(BUFFERS, &header(3, 1024, 5, 0, u32::MAX, 0, 0));
		driver.write(BUFFERS + 0x100, &[0; 16]);
		for queue in 0..queues {
			for (index, content) in (0..).zip(chain) {
				descriptor(&driver.memory, driver.ring(queue), index, *content);
			}
			driver.offer(queue, head);
		}
		lives(&mut driver);
	}
}

#[test]
fn chains_that_loop() {
	offer(&[(BUFFERS, 16, NEXT, 0)], 0);
	offer(&[(BUFFERS, 16, NEXT | WRITE, 0)], 0);
	offer(&[(BUFFERS, 16, NEXT, 1), (BUFFERS, 1 << 20, NEXT | WRITE, 0)], 0);
	offer(&[(BUFFERS, u32::MAX, NEXT, 1), (BUFFERS, u32::MAX, NEXT, 0)], 0);
}

#[test]
fn descriptors_outside_memory() {
	for address in [MEMORY as u64, MEMORY as u64 - 1, u64::MAX, u64::MAX - 15, 1 << 63] {
		for length in [0, 1, 16, 4096, u32::MAX] {
			offer(&[(address, length, 0, 0)], 0);
			offer(&[(BUFFERS + 0x100, 16, NEXT, 1), (address, length, WRITE, 0)], 0);
		}
	}
}

#[test]
fn heads_and_next_numbers_outside_the_table() {
	for number in [16, 128, 256, u16::MAX] {
		offer(&[(BUFFERS, 16, NEXT, number)], 0);
		offer(&[(BUFFERS, 16, 0, 0)], number);
	}
}

#[test]
fn indirect_tables_that_are_none() {
	for (address, length) in [(BUFFERS, 0), (BUFFERS, 15), (BUFFERS, 1 << 20), (u64::MAX - 3, 16), (0, 16 * 65535)] {
		offer(&[(address, length, INDIRECT, 0)], 0);
		offer(&[(address, length, INDIRECT | NEXT, 0)], 0);
	}
	// A table within a table.
	offer(&[(0, 256, INDIRECT, 0)], 0);
}

#[test]
fn empty_and_one_sided_chains() {
	offer(&[(BUFFERS, 0, 0, 0)], 0);
	offer(&[(BUFFERS, 0, WRITE, 0)], 0);
	offer(&[(BUFFERS, 16, 0, 0)], 0);
	offer(&[(BUFFERS, 16, WRITE, 0)], 0);
	offer(&[(BUFFERS, 1, WRITE | NEXT, 1), (BUFFERS, 16, 0, 0)], 0);
}

#[test]
fn a_request_longer_than_any_driver_makes_is_an_error_and_not_served() {
	let mut driver = Driver::start(disk(), true);
	driver.write(BUFFERS, &[0; 16]);
	let mut chain = vec![(BUFFERS, 16, false)];
	chain.extend(std::iter::repeat_n((BUFFERS + 0x1000, 1 << 20, true), 9));
	chain.push((BUFFERS + 0x20, 1, true));
	driver.submit(0, &chain);
	assert!(driver.used(0).is_some());
	assert_eq!(driver.read(BUFFERS + 0x20, 1), [1]);
}

#[test]
fn rings_outside_memory_need_a_reset_and_get_one() {
	let mut driver = Driver::raw(disk(), memory());
	driver.transport().resume();
	for address in [!0xfff, MEMORY as u32 - 16] {
		driver.set(0x70, 0);
		driver.set(0x70, 3);
		driver.set(0x24, 1);
		driver.set(0x20, 1);
		driver.set(0x70, 11);
		driver.set(0x80, address);
		driver.set(0x90, address);
		driver.set(0xa0, address);
		driver.set(0x44, 1);
		driver.set(0x70, 15);
		assert_ne!(driver.register(0x70) & 64, 0, "NEEDS_RESET");
		driver.transport().kick(0);
		lives(&mut driver);
	}
}

#[test]
fn an_available_index_that_runs_ahead_is_not_followed() {
	for device in devices() {
		let mut driver = Driver::start(device, true);
		driver.write(driver.ring(0) + 0x4000 + 2, &u16::MAX.to_le_bytes());
		lives(&mut driver);
	}
}

/// What a device of one queue does when it is notified.
trait Look: Send {
	fn look(&mut self, queues: &mut Queues<'_>) -> Result<(), Broken>;
}

impl<T: Look> VirtioDevice for T {
	fn kind(&self) -> u32 {
		4
	}

	fn queue_sizes(&self) -> &[u16] {
		&[16]
	}

	fn notified(&mut self, _: usize, queues: &mut Queues<'_>, _: &mut EventOps<'_>) -> Result<(), Broken> {
		self.look(queues)
	}

	fn reset(&mut self) {}
}

/// Its queue is never empty, for `PATIENCE`: each chain it answers is there again.
struct Endless(Arc<AtomicU64>, Instant);

/// How long an endless queue lasts at most, so that a test that fails ends.
const PATIENCE: Duration = Duration::from_secs(240);

impl Look for Endless {
	fn look(&mut self, queues: &mut Queues<'_>) -> Result<(), Broken> {
		while let Some(chain) = queues.pop(0) {
			queues.push(0, chain.head_index(), 0)?;
			self.0.fetch_add(1, Ordering::Relaxed);
			if self.1.elapsed() < PATIENCE {
				let more = queues.queues[0].next_avail().wrapping_add(1);
				queues.memory.write_obj(more, GuestAddress(0x4000 + 2)).unwrap();
			}
		}
		Ok(())
	}
}

#[test]
fn a_queue_that_is_never_empty_does_not_keep_a_pause_waiting() {
	let answered = Arc::new(AtomicU64::new(0));
	let mut driver = Driver::start(Box::new(Endless(answered.clone(), Instant::now())), false);
	assert_eq!(driver.ring(0), 0);
	driver.submit(0, &[(BUFFERS, 16, false)]);
	let count = || answered.load(Ordering::Relaxed);
	for _ in 0..3 {
		let before = count();
		let start = Instant::now();
		while count() < before + 1000 {
			assert!(start.elapsed() < PATIENCE / 2, "it goes on turn after turn");
			std::thread::sleep(Duration::from_millis(1));
		}
		let (transport, (done, wait)) = (driver.transport.clone(), mpsc::channel::<()>());
		driver.held.store(true, Ordering::Release);
		std::thread::spawn(move || {
			transport.lock().unwrap().pause();
			drop(done);
		});
		let paused = wait.recv_timeout(PATIENCE / 2);
		assert_eq!(paused, Err(mpsc::RecvTimeoutError::Disconnected), "it is paused in time");
		let before = count();
		std::thread::sleep(Duration::from_millis(20));
		assert_eq!(count(), before, "nothing is served while paused");
		driver.held.store(false, Ordering::Release);
		driver.transport().resume();
	}
}

/// Is at its first request until it is told to go on.
struct Slow(mpsc::Sender<()>, mpsc::Receiver<()>);

impl Look for Slow {
	fn look(&mut self, queues: &mut Queues<'_>) -> Result<(), Broken> {
		while let Some(chain) = queues.pop(0) {
			self.0.send(()).unwrap();
			self.1.recv().unwrap();
			queues.push(0, chain.head_index(), 0)?;
		}
		Ok(())
	}
}

#[test]
fn an_interrupt_is_acknowledged_while_requests_are_served() {
	let (begun, at_request) = mpsc::channel();
	let (go_on, wait) = mpsc::channel();
	let mut driver = Driver::start(Box::new(Slow(begun, wait)), false);
	driver.submit(0, &[(BUFFERS, 16, false)]);
	at_request.recv().unwrap();
	go_on.send(()).unwrap();
	assert!(driver.used(0).is_some());
	driver.submit(0, &[(BUFFERS, 16, false)]);
	at_request.recv().unwrap();
	assert!(driver.transport.try_lock().is_err(), "it serves the second request");
	// The first one's interrupt, meanwhile: a guest's vCPU would wait here.
	let (accessed, done) = mpsc::channel();
	let window = &driver.window;
	std::thread::scope(|scope| {
		scope.spawn(move || {
			let (mut before, mut after) = ([0; 4], [9; 4]);
			window.read(reg::INTERRUPT_STATUS, &mut before);
			window.write(reg::INTERRUPT_ACK, &before);
			window.read(reg::INTERRUPT_STATUS, &mut after);
			accessed.send([before, after].map(u32::from_le_bytes)).unwrap();
		});
		let accessed = done.recv_timeout(PATIENCE);
		go_on.send(()).unwrap();
		assert_eq!(accessed, Ok([reg::USED_BUFFER, 0]));
	});
	assert!(driver.used(0).is_some());
}

#[test]
fn a_guest_that_floods_without_giving_buffers_fills_no_memory() {
	let mut guest = Guest::without_buffers();
	let at = BUFFERS;
	guest.driver.write(at, &header(42, 7, 5, 0, 0, 0, 0));
	let mut taken = 0;
	for _ in 0..2000 {
		guest.driver.submit(1, &[(at, 44, false)]);
		// The last one isn't answered: as long as that takes on a busy machine.
		match guest.driver.used_within(1, Duration::from_secs(3)) {
			Some(_) => taken += 1,
			None => break,
		}
	}
	assert!((500..600).contains(&taken), "{taken} packets were answered in memory");
	lives(&mut guest.driver);
}

proptest! {
	#![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

	#[test]
	fn any_register_access(
		start in any::<bool>(),
		accesses in prop::collection::vec((any::<bool>(), 0u64..0x120, prop_oneof![Just(4usize), 0usize..16], any::<u32>()), 1..60),
		which in 0usize..3,
	) {
		let device = devices().into_iter().nth(which).unwrap();
		let mut driver = if start { Driver::start(device, true) } else { Driver::raw(device, memory()) };
		driver.transport().resume();
		for (write, offset, length, value) in accesses {
			let offset = if length == 4 { offset & !3 } else { offset };
			// Small values more often than chance has them.
			let value = if value & 1 == 0 { value >> 1 & 15 } else { value };
			let mut bytes = [value.to_le_bytes(); 4].concat();
			bytes.truncate(length);
			if write {
				driver.window.write(offset, &bytes);
			} else {
				driver.window.read(offset, &mut bytes);
			}
			driver.transport().kick(0);
		}
		lives(&mut driver);
	}

	/// Any chain over memory that holds anything.
	#[test]
	fn any_chain(
		which in 0usize..3,
		chain in prop::collection::vec((0u64..MEMORY as u64 + 4096, prop_oneof![0u32..64, 0u32..8192, any::<u32>()], 0u16..8, 0u16..12), 1..10),
		head in 0u16..12,
		content in prop::collection::vec(any::<u8>(), 4096),
	) {
		let device = devices().into_iter().nth(which).unwrap();
		let queues = device.queue_sizes().len();
		let mut driver = Driver::start(device, true);
		for at in [0, BUFFERS, BUFFERS * 2] {
			driver.write(at.max(BUFFERS), &content);
		}
		for queue in 0..queues {
			for (index, content) in (0..).zip(&chain) {
				descriptor(&driver.memory, driver.ring(queue), index, *content);
			}
			driver.offer(queue, head);
		}
		lives(&mut driver);
	}

	/// Any packets, of which some belong to a connection.
	#[test]
	fn any_packets(packets in prop::collection::vec(
		(prop_oneof![3 => Just(1024u32), 1 => any::<u32>()], 0u16..10, any::<u32>(), 0u32..70_000, any::<u32>(), any::<u32>()), 1..40,
	)) {
		let mut guest = Guest::without_buffers();
		let (host, device) = std::os::unix::net::UnixStream::pair().unwrap();
		guest.connector.connect(device.into(), 6640);
		for n in 0..32 {
			guest.driver.submit(0, &[(BUFFERS + 0x10_0000 + n * 4096, 4096, true)]);
		}
		for (port, op, flags, length, alloc, forwarded) in packets {
			guest.driver.write(BUFFERS, &header(42, port, op, flags, length, alloc, forwarded));
			guest.driver.submit(1, &[(BUFFERS, 44 + length.min(66_000), false)]);
		}
		drop(host);
		lives(&mut guest.driver);
	}
}

/// If this is so, a chain comes just behind its next look.
struct Late(bool);

impl Look for Late {
	fn look(&mut self, queues: &mut Queues<'_>) -> Result<(), Broken> {
		while let Some(chain) = queues.pop(0) {
			queues.push(0, chain.head_index(), 0)?;
		}
		if std::mem::take(&mut self.0) {
			queues.memory.write_obj(1_u16, GuestAddress(0x4000 + 2)).unwrap();
		}
		Ok(())
	}
}

/// It was taken for one that the device had refused.
#[test]
fn a_chain_that_comes_just_behind_a_look_is_served() {
	let mut driver = Driver::start(Box::new(Late(true)), true);
	descriptor(&driver.memory, driver.ring(0), 0, (BUFFERS, 16, 0, 0));
	driver.transport().kick(0);
	assert!(driver.used(0).is_some());
}
