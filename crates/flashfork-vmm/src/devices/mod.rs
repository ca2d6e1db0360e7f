//! What the guest finds at its I/O ports and in its MMIO windows.

#[cfg(test)]
mod fuzz;
mod serial;
mod signal;
mod state;
pub mod virtio;
mod vmgenid;

pub use state::{DeviceState, DeviceStateError};

use crate::{
	events::Outbox,
	kvm::Vm,
	layout,
	memory::{Copying, GuestMemory, Watch},
};
use flashfork_proto::{
	shape::Shape,
	shell::Renewal,
	signal::{COMMAND_PORT, PORTS, Signal, Status},
};
use serial::Console;
use signal::SignalPort;
use std::{
	io::{self, Write},
	os::fd::AsFd,
	sync::{
		Arc, Mutex, MutexGuard, PoisonError,
		atomic::{AtomicBool, Ordering},
	},
};
use virtio::{
	Rng, Service, Transport, VirtioDevice, Window,
	blk::{Blk, Disk, DiskError, DiskSlot, FrozenDisk},
	vsock::{Connector, Vsock},
};

/// What an access asks of the vCPU's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
	/// Nothing: back to the guest.
	None,
	/// To stop for a signal.
	Signal(Signal),
	/// To end the VM.
	PowerOff,
	/// To end the VM.
	Reset,
}

/// All devices of a VM. Locks are held for one access each, or while a virtio device serves its queues.
#[derive(Debug)]
pub struct Devices {
	console: Mutex<Console>,
	signal: Mutex<SignalPort>,
	virtio: Vec<Window>,
	/// Set while they are, or are going to be, paused.
	held: Arc<AtomicBool>,
	vsock: Connector,
	/// That of the shape's own disk first, if it has one.
	disks: Vec<DiskSlot>,
	/// It boots from the first.
	boots_from_disk: bool,
	events: Outbox,
	/// Serves `virtio`.
	_service: Service,
}

/// ACPI sleep control register: enter the state of type 5.
const SLEEP_S5: u8 = 1 << 5 | 5 << 2;

impl Devices {
	/// Makes those of `shape` and connects their interrupts to `vm`. What the guest writes to its console goes to
	/// `console`.
	pub fn new(
		vm: &Vm,
		shape: &Shape,
		memory: &GuestMemory,
		console: Box<dyn Write + Send>,
		events: Outbox,
	) -> io::Result<Self> {
		let vsock = Connector::new()?;
		let mut devices: Vec<Box<dyn VirtioDevice>> = vec![Box::new(Rng), Box::new(Vsock::new(vsock.clone()))];
		let disks: Vec<_> = (0..shape.block_devices()).map(|_| DiskSlot::default()).collect();
		devices.extend(disks.iter().map(|disk| Box::new(Blk(disk.clone())) as Box<dyn VirtioDevice>));
		debug_assert_eq!(devices.len(), usize::from(virtio_devices(shape)));
		let (mut virtio, held) = (Vec::new(), Arc::default());
		for (index, device) in (0..).zip(devices) {
			virtio.push(Arc::new(Mutex::new(Transport::new(vm, index, device, memory.clone(), &held)?)));
		}
		let service = Service::start(&virtio)?;
		Ok(Self {
			virtio: virtio.into_iter().map(Window::new).collect(),
			held,
			vsock,
			disks,
			boots_from_disk: shape.disk,
			_service: service,
			console: Mutex::new(Console::new(vm, console)?),
			signal: Mutex::new(SignalPort::new(events.clone())),
			events,
		})
	}

	/// The guest writes `data` to `port`; more bytes than one access has come from a string instruction.
	pub fn port_write(&self, port: u16, data: &[u8]) -> Action {
		match port {
			COMMAND_PORT..SIGNAL_END => return lock(&self.signal).write(port, data),
			layout::SERIAL_PORT..SERIAL_END => lock(&self.console).write(port - layout::SERIAL_PORT, data),
			layout::SLEEP_PORT if data.first() == Some(&SLEEP_S5) => return Action::PowerOff,
			layout::RESET_PORT => return Action::Reset,
			_ => {}
		}
		Action::None
	}

	/// The guest reads from `port`.
	pub fn port_read(&self, port: u16, data: &mut [u8]) {
		match port {
			COMMAND_PORT..SIGNAL_END => lock(&self.signal).read(port, data),
			layout::SERIAL_PORT..SERIAL_END => lock(&self.console).read(port - layout::SERIAL_PORT, data),
			layout::SLEEP_STATUS_PORT => data.fill(0),
			// Nothing there.
			_ => data.fill(0xff),
		}
	}

	/// The guest writes to an address without RAM.
	pub fn mmio_write(&self, address: u64, data: &[u8]) {
		if let Some((window, offset)) = self.window(address) {
			window.write(offset, data);
		}
	}

	/// The guest reads from an address without RAM.
	pub fn mmio_read(&self, address: u64, data: &mut [u8]) {
		match self.window(address) {
			Some((window, offset)) => window.read(offset, data),
			None => data.fill(0xff),
		}
	}

	fn window(&self, address: u64) -> Option<(&Window, u64)> {
		let offset = address.checked_sub(layout::VIRTIO)?;
		let window = self.virtio.get((offset / layout::VIRTIO_STRIDE) as usize)?;
		Some((window, offset % layout::VIRTIO_STRIDE))
	}

	/// Makes every device end its turn after the request it is at: a guest that always has another would else keep its
	/// lock, and vCPUs that wait for it, for ever.
	pub fn hold(&self) {
		self.held.store(true, Ordering::Release);
	}

	/// Stops serving: when it returns no device touches guest memory.
	pub fn pause(&self) {
		self.hold();
		self.virtio.iter().for_each(|window| window.transport().pause());
	}

	/// Serves again, whatever has come meanwhile first.
	pub fn resume(&self) {
		self.held.store(false, Ordering::Release);
		self.virtio.iter().for_each(|window| window.transport().resume());
	}

	/// The way to the guest's vsock ports, and its context id.
	pub fn vsock(&self) -> &Connector {
		&self.vsock
	}

	/// Gives the first block devices their disks; paused.
	pub fn attach_disks(&self, disks: Vec<Disk>) -> Result<(), DiskError> {
		if self.boots_from_disk && disks.is_empty() {
			return Err(DiskError::Shape("the VM's shape has a disk: give its image"));
		}
		if disks.len() > self.disks.len() {
			return Err(DiskError::Shape("the VM's shape has no place for so many disks"));
		}
		for (slot, mut disk) in self.disks.iter().zip(disks) {
			disk.report_to(self.events.clone());
			*lock(slot) = Some(disk);
		}
		Ok(())
	}

	/// How many disks it has.
	pub fn disks(&self) -> usize {
		self.disks.iter().filter(|slot| lock(slot).is_some()).count()
	}

	/// Makes the disks a template's; paused. The VM goes on with copies of them.
	pub fn freeze_disks(&self) -> Result<Vec<FrozenDisk>, DiskError> {
		self.disks.iter().filter_map(|slot| lock(slot).as_mut().map(Disk::freeze)).collect()
	}

	/// Begins to copy what was written to disk number `index` since the template, if any.
	pub fn copy_disk_writes(&self, index: usize, watch: &Watch, file: impl AsFd) -> Result<Option<Copying>, DiskError> {
		let slot = self.disks.get(index);
		slot.and_then(|slot| lock(slot).as_ref().map(|disk| disk.copy_writes(watch, file))).transpose()
	}

	/// Drops what was written to the disks since the template, or since they were attached; paused.
	pub fn discard_disk_writes(&self) -> Result<(), DiskError> {
		self.disks.iter().try_for_each(|slot| lock(slot).as_mut().map_or(Ok(()), Disk::discard_writes))
	}

	/// Bytes of memory that what the VM wrote to its disks takes.
	pub fn disk_written(&self) -> u64 {
		self.disks.iter().filter_map(|slot| lock(slot).as_ref().map(Disk::written)).sum()
	}

	/// Bytes for the guest's console; gives the number taken.
	pub fn input(&self, bytes: &[u8]) -> usize {
		lock(&self.console).input(bytes)
	}

	/// The answer to the signal a vCPU stopped for.
	pub fn answer(&self, status: Status, reply: &[u8]) {
		lock(&self.signal).answer(status, reply);
	}

	/// What the guest can see of all devices; no vCPU runs.
	pub fn save(&self) -> DeviceState {
		DeviceState {
			serial: lock(&self.console).save(),
			signal: lock(&self.signal).save(),
			virtio: self.virtio.iter().map(|window| window.transport().save()).collect(),
		}
	}

	/// Makes the devices what `state` says; interrupts that were on their way are raised again, so the interrupt
	/// controllers are restored already.
	pub fn restore(&self, state: &DeviceState) -> Result<(), DeviceStateError> {
		lock(&self.console).restore(&state.serial)?;
		lock(&self.signal).restore(&state.signal);
		if state.virtio.len() != self.virtio.len() {
			return Err(DeviceStateError::Virtio { kind: 0, why: "the template has another number of them".into() });
		}
		for (window, state) in self.virtio.iter().zip(&state.virtio) {
			window.transport().restore(state)?;
		}
		Ok(())
	}

	/// Has the memory that [`Devices::renew`] writes to there before.
	pub fn prime(&self, memory: &GuestMemory) -> Result<(), DeviceStateError> {
		vmgenid::prime(memory)
	}

	/// Makes a restored VM one of its own: its generation, told to the guest by interrupt before any vCPU runs, and,
	/// if the guest asked for the template itself (`forked`), the answer to that.
	pub fn renew(
		&self,
		vm: &Vm,
		memory: &GuestMemory,
		renewal: &Renewal,
		forked: bool,
	) -> Result<(), DeviceStateError> {
		vmgenid::renew(vm, memory, renewal.identity.generation)?;
		lock(&self.signal).renew(renewal, forked);
		Ok(())
	}
}

/// Number of virtio devices of a VM of `shape`.
pub fn virtio_devices(shape: &Shape) -> u8 {
	2 + shape.block_devices()
}

const SIGNAL_END: u16 = COMMAND_PORT + PORTS;
const SERIAL_END: u16 = layout::SERIAL_PORT + 8;

/// Panics abort, so no lock is ever poisoned.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
	mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
