//! Whole guests from bytes: registers, rings, descriptors, packets, pauses and restores in any order. The devices are
//! served by this thread, so that a panic is the input's.

use super::blk::{image, slot};
use crate::{
	devices::virtio::{
		Rng, Transport, VirtioDevice, VirtioState, Window,
		blk::{Blk, Disk, Image},
		driver::{BUFFERS, MEMORY, memory},
		registers as reg,
		vsock::{Connector, Vsock},
	},
	fuzz::{Input, fuzz},
	memory::GuestMemory,
};
use event_manager::{EventManager, SubscriberOps};
use std::{
	fs::File,
	io::{Read, Write},
	os::unix::net::UnixStream,
	sync::{Arc, Mutex, MutexGuard},
};
use vm_memory::{Bytes, GuestAddress};

const CID: u32 = 42;

/// Turns of the event loop after each step: a device that is never content is not to hold up the others' turns.
const TURNS: usize = 40;

struct World {
	transport: Arc<Mutex<Transport>>,
	window: Window,
	manager: EventManager<Arc<Mutex<Transport>>>,
	memory: GuestMemory,
	connector: Option<Connector>,
	streams: Vec<UnixStream>,
	queues: usize,
}

impl World {
	fn new(device: Box<dyn VirtioDevice>, connector: Option<Connector>) -> Self {
		let (memory, queues) = (memory(), device.queue_sizes().len());
		let transport = Arc::new(Mutex::new(Transport::alone(device, memory.clone(), &Arc::default())));
		let mut manager = EventManager::new().unwrap();
		manager.add_subscriber(transport.clone());
		let window = Window::new(transport.clone());
		Self { transport, window, manager, memory, connector, streams: Vec::new(), queues }
	}

	fn transport(&self) -> MutexGuard<'_, Transport> {
		self.transport.lock().unwrap()
	}

	fn serve(&mut self) {
		for _ in 0..TURNS {
			if self.manager.run_with_timeout(0).unwrap() == 0 {
				return;
			}
		}
	}

	fn set(&self, register: u64, value: u32) {
		self.window.write(register, &value.to_le_bytes());
	}

	/// A driver that does what drivers do, with its rings where [`Self::ring`] says.
	fn start(&self, queues: u32, event_idx: bool) {
		self.transport().resume();
		self.set(reg::STATUS, 3);
		self.set(reg::DRIVER_FEATURES_SEL, 0);
		self.set(reg::DRIVER_FEATURES, if event_idx { 1 << 29 } else { 0 });
		self.set(reg::DRIVER_FEATURES_SEL, 1);
		self.set(reg::DRIVER_FEATURES, 1);
		self.set(reg::STATUS, 11);
		for queue in 0..queues {
			let at = Self::ring(queue) as u32;
			self.set(reg::QUEUE_SEL, queue);
			self.set(reg::QUEUE_SIZE, 16);
			self.set(reg::QUEUE_DESC_LOW, at);
			self.set(reg::QUEUE_DRIVER_LOW, at + 0x1000);
			self.set(reg::QUEUE_DEVICE_LOW, at + 0x2000);
			self.set(reg::QUEUE_READY, 1);
		}
		self.set(reg::STATUS, 15);
	}

	fn ring(queue: u32) -> u64 {
		u64::from(queue % 4) * 0x4000
	}

	/// Puts bytes into guest memory, as far as there is some.
	fn put(&self, address: u64, bytes: &[u8]) {
		// Beyond its end is nothing.
		let _ = self.memory.write(bytes, GuestAddress(address));
	}

	fn step(&mut self, input: &mut Input<'_>) {
		match input.u8() % 12 {
			0 => self.set(u64::from(input.u8()) * 4, input.u32()),
			1 => {
				let (offset, length) = (u64::from(input.u16() % 0x200), usize::from(input.u8() % 17));
				self.window.read(offset, &mut [0; 16][..length]);
			}
			2 => {
				let (offset, length) = (u64::from(input.u16() % 0x200), usize::from(input.u8() % 17));
				let bytes = input.bytes(length);
				self.window.write(offset, bytes);
			}
			3 => {
				let (address, length) = (u64::from(input.u32()) % MEMORY as u64, usize::from(input.u8()));
				self.put(address, input.bytes(length));
			}
			// A descriptor: queue, number, address, length, flags, next.
			4 => {
				let at = Self::ring(input.u8().into()) + 16 * u64::from(input.u8() % 16);
				let bytes = [&input.u64().to_le_bytes()[..], &input.u32().to_le_bytes(), &input.u32().to_le_bytes()];
				self.put(at, &bytes.concat());
			}
			// The same inside memory, which chance would seldom find.
			5 => {
				let at = Self::ring(input.u8().into()) + 16 * u64::from(input.u8() % 16);
				let address = BUFFERS + u64::from(input.u16()) * 16;
				let (length, flags, next) =
					(u32::from(input.u16()), u16::from(input.u8() & 7), u16::from(input.u8() % 18));
				let bytes =
					[&address.to_le_bytes()[..], &length.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
				self.put(at, &bytes.concat());
			}
			// Offers a chain, and notifies.
			6 => {
				let (queue, head) = (u32::from(input.u8() % 4), u16::from(input.u8() % 18));
				let avail = Self::ring(queue) + 0x1000;
				let index: u16 = self.memory.read_obj(GuestAddress(avail + 2)).unwrap();
				self.put(avail + 4 + 2 * u64::from(index % 16), &head.to_le_bytes());
				self.put(avail + 2, &index.wrapping_add(1).to_le_bytes());
				if (queue as usize) < self.queues {
					self.transport().kick(queue as usize);
				}
			}
			7 => {
				let (queues, event_idx) = (u32::from(input.u8() % 4), input.u8() & 1 == 1);
				self.start(queues, event_idx);
			}
			8 => self.transport().pause(),
			9 => self.transport().resume(),
			// Back to a state, which may be anything: the last, or bytes.
			10 => {
				let length = usize::from(input.u8());
				let mut transport = self.transport();
				transport.pause();
				let state = match postcard::from_bytes::<VirtioState>(input.bytes(length)) {
					Ok(state) => state,
					Err(_) => transport.save(),
				};
				// Refused, or taken.
				let _ = transport.restore(&state);
				transport.resume();
			}
			// The host's side of vsock.
			_ => self.host(input),
		}
		self.serve();
	}

	fn host(&mut self, input: &mut Input<'_>) {
		let Some(connector) = &self.connector else { return };
		match input.u8() % 4 {
			0 if self.streams.len() < 300 => {
				let (ours, theirs) = UnixStream::pair().unwrap();
				ours.set_nonblocking(true).unwrap();
				connector.connect(theirs.into(), input.u32());
				self.streams.push(ours);
			}
			1 => {
				// A full stream takes no more; a dead one nothing.
				let bytes = input.bytes(32);
				self.streams.last_mut().map(|stream| stream.write(bytes));
			}
			2 => {
				self.streams.last_mut().map(|stream| stream.read(&mut [0; 100]));
			}
			_ => drop(self.streams.pop()),
		}
	}
}

/// A guest to its end.
fn run(device: Box<dyn VirtioDevice>, connector: Option<Connector>, input: &[u8]) -> World {
	let mut world = World::new(device, connector);
	let mut input = Input(input);
	while !input.is_over() {
		world.step(&mut input);
	}
	world
}

/// Runs a guest. Then its device can be read, and reset, and serves again.
fn guest(device: Box<dyn VirtioDevice>, connector: Option<Connector>, input: &[u8]) {
	let mut world = run(device, connector, input);
	world.set(reg::STATUS, 0);
	world.start(world.queues as u32, true);
	let mut status = [0; 4];
	world.window.read(reg::STATUS, &mut status);
	assert_eq!(status, [15, 0, 0, 0], "a device that was reset starts again");
	world.serve();
}

fn disk(image: &File) -> Disk {
	let file = image.try_clone().unwrap();
	Disk::new(Image { file, read_only: false, serial: "fuzz".into(), limit: 8 * 4096 }).unwrap()
}

fn connector() -> Connector {
	let connector = Connector::new().unwrap();
	connector.set_cid(CID);
	connector
}

#[test]
fn the_corpus_gets_to_where_it_should() {
	let disk = slot(disk(&image(64)));
	run(Box::new(Blk(disk.clone())), None, include_bytes!("../../../../tests/corpus/virtio-blk/full"));
	assert_eq!(disk.lock().unwrap().as_ref().unwrap().written(), 8 * 4096);
	let world = run(Box::new(Rng), None, include_bytes!("../../../../tests/corpus/virtio-rng/some"));
	let used: u16 = world.memory.read_obj(GuestAddress(World::ring(0) + 0x2002)).unwrap();
	assert_eq!(used, 1);
	let connector = connector();
	let talk = include_bytes!("../../../../tests/corpus/virtio-vsock/connect-and-talk");
	let mut world = run(Box::new(Vsock::new(connector.clone())), Some(connector), talk);
	// What the guest said was read in the course of it; this is what came to it.
	let mut packet = [0; 44 + 32];
	world.memory.read_slice(&mut packet, GuestAddress(BUFFERS + 0x2000)).unwrap();
	assert_eq!((packet[30], &packet[44..]), (5, &[b'x'; 32][..]));
	assert_eq!(world.streams[0].read(&mut [0; 9]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn disks() {
	let image = image(64);
	fuzz("virtio-blk", 3000, |input| guest(Box::new(Blk(slot(disk(&image)))), None, input));
}

#[test]
fn entropy() {
	fuzz("virtio-rng", 2000, |input| guest(Box::new(Rng), None, input));
}

#[test]
fn vsock() {
	fuzz("virtio-vsock", 3000, |input| {
		let connector = connector();
		guest(Box::new(Vsock::new(connector.clone())), Some(connector), input);
	});
}
