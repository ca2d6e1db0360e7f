//! A driver for tests: what a guest's would do, and what only a hostile one would.

use super::{
	Service, Transport, VirtioDevice, VirtioState, Window,
	registers::{self as reg, status},
};
use crate::memory::GuestMemory;
use std::{
	sync::{
		Arc, Mutex, MutexGuard,
		atomic::{AtomicBool, Ordering},
	},
	thread,
	time::{Duration, Instant},
};
use virtio_bindings::{
	virtio_config::VIRTIO_F_VERSION_1,
	virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE},
};
use vm_memory::{Bytes, GuestAddress};

/// Guest memory; rings are in the first 256 KB, a test's buffers behind.
pub(super) const MEMORY: usize = 4 << 20;
pub(super) const BUFFERS: u64 = 256 << 10;

/// A piece of a chain: address, length, whether the device writes.
pub(super) type Piece = (u64, u32, bool);

pub(super) struct Driver {
	pub transport: Arc<Mutex<Transport>>,
	pub window: Window,
	pub memory: GuestMemory,
	pub held: Arc<AtomicBool>,
	rings: Vec<Ring>,
	event_idx: bool,
	_service: Service,
}

#[derive(Clone)]
struct Ring {
	at: u64,
	size: u16,
	next_descriptor: u16,
	avail: u16,
	used: u16,
}

impl Ring {
	fn descriptors(&self) -> GuestAddress {
		GuestAddress(self.at)
	}
	fn avail(&self, offset: u64) -> GuestAddress {
		GuestAddress(self.at + 0x4000 + offset)
	}
	fn used(&self, offset: u64) -> GuestAddress {
		GuestAddress(self.at + 0x6000 + offset)
	}
}

pub(super) fn memory() -> GuestMemory {
	GuestMemory::from_ranges(&[(GuestAddress(0), MEMORY)]).unwrap()
}

pub(super) fn copy(memory: &GuestMemory) -> GuestMemory {
	let mut bytes = vec![0; MEMORY];
	memory.read_slice(&mut bytes, GuestAddress(0)).unwrap();
	let copy = self::memory();
	copy.write_slice(&bytes, GuestAddress(0)).unwrap();
	copy
}

impl Driver {
	/// A device that has not been touched, paused.
	pub(super) fn raw(device: Box<dyn VirtioDevice>, memory: GuestMemory) -> Self {
		let sizes = device.queue_sizes().to_vec();
		let held = Arc::default();
		let transport = Arc::new(Mutex::new(Transport::alone(device, memory.clone(), &held)));
		let service = Service::start(std::slice::from_ref(&transport)).unwrap();
		let ring = |(at, size)| Ring { at, size, next_descriptor: 0, avail: 0, used: 0 };
		let rings = (0..).step_by(0x8000).zip(sizes).map(ring).collect();
		let window = Window::new(transport.clone());
		Self { transport, window, memory, held, rings, event_idx: false, _service: service }
	}

	/// A device that is ready to serve.
	pub(super) fn start(device: Box<dyn VirtioDevice>, event_idx: bool) -> Self {
		let mut driver = Self::raw(device, memory());
		driver.event_idx = event_idx;
		driver.transport().resume();
		driver.set_up(event_idx);
		driver
	}

	/// Another device in the state of this one, over a copy of its memory, paused.
	pub(super) fn restored(&self, device: Box<dyn VirtioDevice>, state: &VirtioState) -> Self {
		let mut other = Self::raw(device, copy(&self.memory));
		other.rings = self.rings.clone();
		other.event_idx = self.event_idx;
		other.transport().restore(state).unwrap();
		other
	}

	pub(super) fn transport(&self) -> MutexGuard<'_, Transport> {
		self.transport.lock().unwrap()
	}

	pub(super) fn register(&self, offset: u64) -> u32 {
		let mut bytes = [0; 4];
		self.window.read(offset, &mut bytes);
		u32::from_le_bytes(bytes)
	}

	pub(super) fn set(&self, offset: u64, value: u32) {
		self.window.write(offset, &value.to_le_bytes());
	}

	pub(super) fn set_up(&self, event_idx: bool) {
		self.set(reg::STATUS, 0);
		self.set(reg::STATUS, 3);
		self.set(reg::DEVICE_FEATURES_SEL, 0);
		let offered = self.register(reg::DEVICE_FEATURES);
		self.set(reg::DRIVER_FEATURES_SEL, 0);
		let wanted = if event_idx { offered } else { offered & !(1 << VIRTIO_RING_F_EVENT_IDX) };
		self.set(reg::DRIVER_FEATURES, wanted);
		self.set(reg::DRIVER_FEATURES_SEL, 1);
		self.set(reg::DRIVER_FEATURES, 1 << (VIRTIO_F_VERSION_1 - 32));
		self.set(reg::STATUS, 3 | status::FEATURES_OK);
		for (index, ring) in self.rings.iter().enumerate() {
			self.set(reg::QUEUE_SEL, index as u32);
			self.set(reg::QUEUE_SIZE, ring.size.into());
			self.set(reg::QUEUE_DESC_LOW, ring.descriptors().0 as u32);
			self.set(reg::QUEUE_DRIVER_LOW, ring.avail(0).0 as u32);
			self.set(reg::QUEUE_DEVICE_LOW, ring.used(0).0 as u32);
			self.set(reg::QUEUE_READY, 1);
		}
		self.set(reg::STATUS, 3 | status::FEATURES_OK | status::DRIVER_OK);
	}

	/// Puts a chain into a queue; gives its head. Notifies if the device wants it, or always without event indices.
	pub(super) fn submit(&mut self, queue: usize, chain: &[Piece]) -> u16 {
		let ring = &mut self.rings[queue];
		let head = ring.next_descriptor;
		for (n, &(address, length, writable)) in chain.iter().enumerate() {
			let at = ring.next_descriptor;
			ring.next_descriptor = (at + 1) % ring.size;
			let last = n + 1 == chain.len();
			let flags = if last { 0 } else { VRING_DESC_F_NEXT } | if writable { VRING_DESC_F_WRITE } else { 0 };
			descriptor(&self.memory, ring.at, at, (address, length, flags as u16, ring.next_descriptor));
		}
		self.offer(queue, head);
		head
	}

	/// Puts any descriptor's number into a queue.
	pub(super) fn offer(&mut self, queue: usize, head: u16) {
		let ring = &mut self.rings[queue];
		let place = 4 + 2 * u64::from(ring.avail % ring.size);
		self.memory.write_obj(head, ring.avail(place)).unwrap();
		let old = ring.avail;
		ring.avail = ring.avail.wrapping_add(1);
		self.memory.store(ring.avail, ring.avail(2), Ordering::SeqCst).unwrap();
		std::sync::atomic::fence(Ordering::SeqCst);
		// vring_need_event() of Linux: avail_event lies behind the used ring.
		let event: u16 = self.memory.read_obj(ring.used(4 + 8 * u64::from(ring.size))).unwrap();
		if !self.event_idx || ring.avail.wrapping_sub(event).wrapping_sub(1) < ring.avail.wrapping_sub(old) {
			self.transport.lock().unwrap().kick(queue);
		}
	}

	/// The next used chain's head and length; nothing for a while if there is none.
	pub(super) fn used(&mut self, queue: usize) -> Option<(u16, u32)> {
		self.used_within(queue, Duration::from_secs(120))
	}

	/// How many chains the device has given back, as the ring counts.
	pub(super) fn used_so_far(&self, queue: usize) -> u16 {
		self.memory.load(self.rings[queue].used(2), Ordering::Acquire).unwrap()
	}

	/// Waits, without sleeping, until that reaches `count`.
	pub(super) fn spin_until_used(&self, queue: usize, count: u16) {
		let end = Instant::now() + Duration::from_secs(120);
		while count.wrapping_sub(self.used_so_far(queue)).cast_signed() > 0 {
			assert!(Instant::now() < end, "the device has given back {} of {count}", self.used_so_far(queue));
			std::hint::spin_loop();
		}
	}

	pub(super) fn used_within(&mut self, queue: usize, patience: Duration) -> Option<(u16, u32)> {
		let ring = &mut self.rings[queue];
		let end = Instant::now() + patience;
		loop {
			let there: u16 = self.memory.load(ring.used(2), Ordering::Acquire).unwrap();
			if there != ring.used {
				let [id, length]: [u32; 2] = {
					let at = 4 + 8 * u64::from(ring.used % ring.size);
					[0, 4].map(|part| self.memory.read_obj(ring.used(at + part)).unwrap())
				};
				ring.used = ring.used.wrapping_add(1);
				// used_event: an interrupt for the next one too.
				self.memory.write_obj(ring.used, ring.avail(4 + 2 * u64::from(ring.size))).unwrap();
				return Some((id as u16, length));
			}
			if Instant::now() >= end {
				return None;
			}
			thread::sleep(Duration::from_micros(200));
		}
	}

	/// Where the rings of a queue are: descriptors.
	pub(super) fn ring(&self, queue: usize) -> u64 {
		self.rings[queue].at
	}

	pub(super) fn write(&self, address: u64, bytes: &[u8]) {
		self.memory.write_slice(bytes, GuestAddress(address)).unwrap();
	}

	pub(super) fn read(&self, address: u64, length: usize) -> Vec<u8> {
		let mut bytes = vec![0; length];
		self.memory.read_slice(&mut bytes, GuestAddress(address)).unwrap();
		bytes
	}

	/// Waits until everything offered so far was looked at.
	pub(super) fn settle(&self) {
		for queue in 0..self.rings.len() {
			self.transport().kick(queue);
		}
		thread::sleep(Duration::from_millis(20));
		drop(self.transport());
	}
}

/// Writes descriptor number `index` of the table at `table`: address, length, flags, next.
pub(super) fn descriptor(memory: &GuestMemory, table: u64, index: u16, content: (u64, u32, u16, u16)) {
	let at = table + 16 * u64::from(index);
	memory.write_obj(content.0, GuestAddress(at)).unwrap();
	memory.write_obj(content.1, GuestAddress(at + 8)).unwrap();
	memory.write_obj(content.2, GuestAddress(at + 12)).unwrap();
	memory.write_obj(content.3, GuestAddress(at + 14)).unwrap();
}
