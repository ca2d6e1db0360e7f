//! The transport: registers, status, queues, interrupt. Devices never see any of these change hands.

use super::{
	device::{Broken, OWN_EVENTS, Queues, VirtioDevice},
	registers::{self as reg, status},
	state::VirtioState,
	window::Reasons,
};
use crate::{devices::DeviceStateError, kvm::Vm, layout, memory::GuestMemory};
use event_manager::{EventOps, Events, MutEventSubscriber};
use kvm_ioctls::IoEventAddress;
use std::{
	fmt, io,
	sync::{
		Arc,
		atomic::{AtomicBool, Ordering},
	},
};
use virtio_bindings::{virtio_config::VIRTIO_F_VERSION_1, virtio_ring::VIRTIO_RING_F_EVENT_IDX};
use virtio_queue::{Queue, QueueState, QueueT};
use vmm_sys_util::{
	epoll::EventSet,
	eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd},
};

/// Offered by the transport for every device.
const FEATURES: u64 = 1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX;

/// One device in its MMIO window.
pub struct Transport {
	device: Box<dyn VirtioDevice>,
	queues: Vec<Queue>,
	memory: GuestMemory,
	driver_features: u64,
	device_features_sel: u32,
	driver_features_sel: u32,
	queue_sel: u32,
	status: u32,
	reasons: Reasons,
	/// How often the config space has changed: who reads it in pieces can tell that they belong together.
	config_generation: u32,
	interrupt: EventFd,
	/// One per queue; the guest's notifications come here without an exit (ioeventfd).
	kicks: Vec<EventFd>,
	/// The VM is paused: nothing is served, guest memory may not be there.
	paused: bool,
	/// It is to be paused: no more requests are taken, so that who waits for the lock gets it soon.
	held: Arc<AtomicBool>,
}

impl Transport {
	/// Puts `device` into window `index` of `vm`: interrupt and notifications are connected now, never at a claim.
	/// Nothing is taken from queues while `held` is set.
	pub(in crate::devices) fn new(
		vm: &Vm,
		index: u8,
		device: Box<dyn VirtioDevice>,
		memory: GuestMemory,
		held: &Arc<AtomicBool>,
	) -> io::Result<Self> {
		let transport = Self::unconnected(device, memory, held)?;
		vm.fd.register_irqfd(&transport.interrupt, layout::virtio_irq(index))?;
		let notify = IoEventAddress::Mmio(layout::virtio_window(index) + reg::QUEUE_NOTIFY);
		for (number, kick) in (0u32..).zip(&transport.kicks) {
			vm.fd.register_ioevent(kick, &notify, number)?;
		}
		Ok(transport)
	}

	fn unconnected(device: Box<dyn VirtioDevice>, memory: GuestMemory, held: &Arc<AtomicBool>) -> io::Result<Self> {
		let interrupt = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
		let mut kicks = Vec::new();
		let mut queues = Vec::new();
		for size in device.queue_sizes() {
			kicks.push(EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?);
			queues.push(Queue::new(*size).map_err(io::Error::other)?);
		}
		Ok(Self {
			device,
			queues,
			memory,
			driver_features: 0,
			device_features_sel: 0,
			driver_features_sel: 0,
			queue_sel: 0,
			status: 0,
			reasons: Reasons::default(),
			config_generation: 0,
			interrupt,
			kicks,
			paused: true,
			held: held.clone(),
		})
	}

	/// Why it interrupts, for its window.
	pub(super) fn reasons(&self) -> Reasons {
		self.reasons.clone()
	}

	/// The guest reads a register, other than those that its window answers. Registers are 32 bits wide; the config
	/// space may be read by bytes.
	pub(in crate::devices) fn read(&self, offset: u64, data: &mut [u8]) {
		if let Some(at) = offset.checked_sub(reg::CONFIG) {
			let config = self.device.config();
			let from = config.get(at as usize..).unwrap_or_default();
			data.fill(0);
			data.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
			return;
		}
		let value = if data.len() == 4 { self.register(offset) } else { 0 };
		data.iter_mut().zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
	}

	fn register(&self, offset: u64) -> u32 {
		let queue = self.queues.get(self.queue_sel as usize);
		match offset {
			reg::MAGIC => reg::MAGIC_VALUE,
			reg::VERSION_REG => reg::VERSION,
			reg::DEVICE_ID => self.device.kind(),
			reg::VENDOR_ID => reg::VENDOR,
			reg::DEVICE_FEATURES => half(self.offered(), self.device_features_sel),
			reg::QUEUE_SIZE_MAX => queue.map_or(0, |queue| queue.max_size().into()),
			reg::QUEUE_READY => queue.is_some_and(|queue| queue.ready()).into(),
			reg::STATUS => self.status,
			reg::CONFIG_GENERATION => self.config_generation,
			_ => 0,
		}
	}

	/// The guest writes a register, other than those that its window answers; the config space is read-only.
	pub(in crate::devices) fn write(&mut self, offset: u64, data: &[u8]) {
		let Ok(value) = <[u8; 4]>::try_from(data).map(u32::from_le_bytes) else { return };
		match offset {
			reg::DEVICE_FEATURES_SEL => self.device_features_sel = value,
			reg::DRIVER_FEATURES_SEL => self.driver_features_sel = value,
			reg::DRIVER_FEATURES if self.status & status::FEATURES_OK == 0 => {
				let shift = if self.driver_features_sel == 0 { 0 } else { 32 };
				if self.driver_features_sel < 2 {
					self.driver_features = self.driver_features & !(0xffff_ffff << shift) | u64::from(value) << shift;
				}
			}
			reg::QUEUE_SEL => self.queue_sel = value,
			reg::STATUS => self.set_status(value),
			_ if self.status & status::DRIVER_OK == 0 => self.set_up_queue(offset, value),
			_ => {}
		}
	}

	fn set_up_queue(&mut self, offset: u64, value: u32) {
		let Some(queue) = self.queues.get_mut(self.queue_sel as usize) else { return };
		match offset {
			reg::QUEUE_SIZE => queue.set_size(value.try_into().unwrap_or(0)),
			reg::QUEUE_READY => queue.set_ready(value == 1),
			reg::QUEUE_DESC_LOW => queue.set_desc_table_address(Some(value), None),
			reg::QUEUE_DESC_HIGH => queue.set_desc_table_address(None, Some(value)),
			reg::QUEUE_DRIVER_LOW => queue.set_avail_ring_address(Some(value), None),
			reg::QUEUE_DRIVER_HIGH => queue.set_avail_ring_address(None, Some(value)),
			reg::QUEUE_DEVICE_LOW => queue.set_used_ring_address(Some(value), None),
			reg::QUEUE_DEVICE_HIGH => queue.set_used_ring_address(None, Some(value)),
			_ => {}
		}
	}

	fn set_status(&mut self, value: u32) {
		if value == 0 {
			return self.reset();
		}
		let mut new = value & status::DRIVERS | self.status & status::NEEDS_RESET;
		let asked = value & !self.status;
		let acceptable =
			self.driver_features & !self.offered() == 0 && self.driver_features & 1 << VIRTIO_F_VERSION_1 != 0;
		if asked & status::FEATURES_OK != 0 && !acceptable {
			new &= !status::FEATURES_OK;
		}
		let start = asked & status::DRIVER_OK != 0 && new & status::FEATURES_OK != 0;
		self.status = new;
		if start {
			let event_idx = self.driver_features & 1 << VIRTIO_RING_F_EVENT_IDX != 0;
			self.queues.iter_mut().for_each(|queue| queue.set_event_idx(event_idx));
			if self.queues.iter().any(|queue| queue.ready() && !queue.is_valid(&self.memory)) {
				return self.give_up();
			}
			self.device.activate(self.driver_features);
		}
	}

	fn reset(&mut self) {
		self.queues.iter_mut().for_each(QueueT::reset);
		self.device.reset();
		self.reasons.remove(u32::MAX);
		(self.status, self.driver_features, self.queue_sel) = (0, 0, 0);
	}

	/// Tells the guest that only a reset helps.
	fn give_up(&mut self) {
		self.status |= status::NEEDS_RESET;
		self.raise(reg::CONFIG_CHANGED);
	}

	fn raise(&mut self, why: u32) {
		self.reasons.add(why);
		// A counter that is full means that the interrupt is pending already.
		let _ = self.interrupt.write(1);
	}

	fn offered(&self) -> u64 {
		FEATURES | self.device.features()
	}

	/// Whether queues may be served.
	fn live(&self) -> bool {
		!self.paused && self.status & (status::DRIVER_OK | status::NEEDS_RESET) == status::DRIVER_OK
	}

	fn serve(&mut self, what: impl FnOnce(&mut dyn VirtioDevice, &mut Queues<'_>) -> Result<(), Broken>) {
		let left = self.queues.iter().map(|queue| usize::from(queue.max_size())).sum();
		let (queues, memory, held) = (&mut self.queues, &self.memory, &*self.held);
		let mut queues = Queues { queues, memory, interrupt: false, left, held };
		let result = what(&mut *self.device, &mut queues);
		if queues.left == 0 {
			// There may be more, after others had their turn.
			kick_all(&self.kicks);
		}
		if queues.interrupt {
			self.raise(reg::USED_BUFFER);
		}
		if result.is_err() {
			self.give_up();
		}
	}

	/// Nothing is served from here on, and nothing is under way. Notifications are kept.
	pub(in crate::devices) fn pause(&mut self) {
		self.paused = true;
	}

	/// Serves again. Every queue is kicked: what the guest put in while nobody looked, or before the template was
	/// made, is served now; a kick too many finds nothing.
	pub(in crate::devices) fn resume(&mut self) {
		self.paused = false;
		if self.live() {
			kick_all(&self.kicks);
		}
	}

	/// Saves it; paused.
	pub(in crate::devices) fn save(&self) -> VirtioState {
		VirtioState {
			kind: self.device.kind(),
			driver_features: self.driver_features,
			device_features_sel: self.device_features_sel,
			driver_features_sel: self.driver_features_sel,
			queue_sel: self.queue_sel,
			status: self.status,
			interrupt_status: self.reasons.get(),
			config_generation: self.config_generation,
			queues: self.queues.iter().map(|queue| queue.state().into()).collect(),
			device: self.device.save(),
		}
	}

	/// Restores it; paused. An interrupt that the guest had not taken note of is raised again, and
	/// one if the device's config space has changed.
	pub(in crate::devices) fn restore(&mut self, state: &VirtioState) -> Result<(), DeviceStateError> {
		let refused = |why: &dyn fmt::Display| DeviceStateError::Virtio { kind: state.kind, why: why.to_string() };
		if state.kind != self.device.kind() || state.queues.len() != self.queues.len() {
			return Err(refused(&"another device is in its place"));
		}
		if state.driver_features & !self.offered() != 0 {
			return Err(refused(&"its driver uses features this monitor doesn't offer"));
		}
		for (queue, ring) in self.queues.iter_mut().zip(&state.queues) {
			let ring = QueueState::from(*ring);
			if ring.max_size != queue.max_size() {
				return Err(refused(&"its queues have another size"));
			}
			*queue = ring.try_into().map_err(|e: virtio_queue::Error| refused(&e))?;
		}
		self.driver_features = state.driver_features;
		self.device_features_sel = state.device_features_sel;
		self.driver_features_sel = state.driver_features_sel;
		self.queue_sel = state.queue_sel;
		self.status = state.status & (status::DRIVERS | status::NEEDS_RESET);
		self.device.reset();
		if self.status & status::DRIVER_OK != 0 {
			if self.queues.iter().any(|queue| queue.ready() && !queue.is_valid(&self.memory)) {
				return Err(refused(&"its queues are not in memory"));
			}
			self.device.activate(self.driver_features);
		}
		let changed = self.device.restore(&state.device).map_err(|e| refused(&e))?;
		self.config_generation = state.config_generation.wrapping_add(changed.into());
		self.reasons.remove(u32::MAX);
		let mut reasons = state.interrupt_status & (reg::USED_BUFFER | reg::CONFIG_CHANGED);
		if changed && self.status & status::DRIVER_OK != 0 {
			reasons |= reg::CONFIG_CHANGED;
		}
		if reasons != 0 {
			self.raise(reasons);
		}
		Ok(())
	}
}

fn kick_all(kicks: &[EventFd]) {
	for kick in kicks {
		// A full counter is a kick too.
		let _ = kick.write(1);
	}
}

/// The low or high half of a feature word.
fn half(word: u64, sel: u32) -> u32 {
	match sel {
		0 => word as u32,
		1 => (word >> 32) as u32,
		_ => 0,
	}
}

impl MutEventSubscriber for Transport {
	fn init(&mut self, ops: &mut EventOps<'_>) {
		for (data, kick) in (0..).zip(&self.kicks) {
			// Fails only without memory for the kernel's list; the device would then be deaf, as would everything else.
			ops.add(Events::with_data(kick, data, EventSet::IN)).expect("a new epoll takes an eventfd");
		}
		self.device.init(ops);
	}

	fn process(&mut self, events: Events, ops: &mut EventOps<'_>) {
		if events.data() < OWN_EVENTS {
			let index = events.data() as usize;
			// Before the queue is looked at: a notification that comes meanwhile is kept for the next time.
			let _ = self.kicks[index].read();
			if self.live() && self.queues[index].ready() {
				self.serve(|device, queues| {
					loop {
						let (before, seen) = (queues.queues[index].next_avail(), queues.avail(index)?);
						device.notified(index, queues, ops)?;
						// More may have come before notifications were on again; a device that took nothing of what
						// was there before it looked waits for something else.
						let mut more = queues.rearm(index)?;
						if more && queues.queues[index].next_avail() == before {
							more = queues.rearm_behind(index, seen)?;
						}
						if !more || queues.left == 0 || queues.held.load(Ordering::Acquire) {
							return Ok(());
						}
					}
				});
			}
		} else {
			// A device's own descriptor is level-triggered; one that can't be served now is looked at again on resume.
			if self.live() {
				self.serve(|device, queues| device.ready(events, queues, ops));
			} else {
				self.device.defer(events, ops);
			}
		}
	}
}

impl fmt::Debug for Transport {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		f.debug_struct("Transport")
			.field("kind", &self.device.kind())
			.field("status", &self.status)
			.finish_non_exhaustive()
	}
}

#[cfg(test)]
impl Transport {
	/// Behind no VM: a test is the driver.
	pub(super) fn alone(device: Box<dyn VirtioDevice>, memory: GuestMemory, held: &Arc<AtomicBool>) -> Self {
		Self::unconnected(device, memory, held).unwrap()
	}

	/// What an ioeventfd does.
	pub(super) fn kick(&self, queue: usize) {
		self.kicks[queue].write(1).unwrap();
	}

	/// Number of interrupts since the last call, at least one if any.
	pub(super) fn interrupts(&self) -> u64 {
		self.interrupt.read().unwrap_or(0)
	}
}
