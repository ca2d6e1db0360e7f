//! What a virtio device is to its transport.

use crate::memory::GuestMemory;
use event_manager::{EventOps, Events};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use virtio_queue::{DescriptorChain, Queue, QueueT};
use vm_memory::{Bytes, GuestAddress};

/// The guest broke the protocol in a way that leaves no answer: a ring outside memory, a chain without an end. The
/// transport tells it to reset the device; nobody else is harmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the guest broke the virtio protocol: {0}")]
pub struct Broken(pub String);

/// A device behind a [transport](super::Transport), which owns its queues, its status and its interrupt.
///
/// All methods are called under the transport's lock, so nothing is under way when it is held: a device that answers
/// every request before it returns needs no draining. None is called while the VM is paused, except `save`, `restore`.
pub trait VirtioDevice: Send {
	/// Number of its kind (`VIRTIO_ID_*`).
	fn kind(&self) -> u32;

	/// Feature bits offered besides those of the transport.
	fn features(&self) -> u64 {
		0
	}

	/// Greatest size of each queue, powers of two.
	fn queue_sizes(&self) -> &[u16];

	/// Its config space, up to 256 bytes. Reads behind the end give zeros; writes are ignored.
	fn config(&self) -> Vec<u8> {
		Vec::new()
	}

	/// The driver has accepted `features` and the queues are ready.
	fn activate(&mut self, features: u64) {
		let _ = features;
	}

	/// Once, when the device's events begin to be served: for descriptors it always has.
	fn init(&mut self, ops: &mut EventOps<'_>) {
		let _ = ops;
	}

	/// The guest put something into queue `index`, or may have: after a restore every queue is kicked once.
	fn notified(&mut self, index: usize, queues: &mut Queues<'_>, ops: &mut EventOps<'_>) -> Result<(), Broken>;

	/// One of the device's own descriptors, which it added to `ops` with an event's data of
	/// [`OWN_EVENTS`] or more, is ready.
	fn ready(&mut self, events: Events, queues: &mut Queues<'_>, ops: &mut EventOps<'_>) -> Result<(), Broken> {
		let _ = (events, queues, ops);
		Ok(())
	}

	/// One of the device's own descriptors is ready while nothing may be served: take it out of `ops` (else it is ready
	/// again at once) and put it back when a queue is [notified](Self::notified), as every queue is on resume.
	fn defer(&mut self, events: Events, ops: &mut EventOps<'_>) {
		let _ = (events, ops);
	}

	/// The driver reset the device.
	fn reset(&mut self);

	/// What of its own the guest can see, besides queues and status.
	fn save(&self) -> Vec<u8> {
		Vec::new()
	}

	/// Takes what [`Self::save`] gave, from a template; never trusts it. Connections to the outside are not part of it.
	/// Gives whether its config space is another now.
	fn restore(&mut self, state: &[u8]) -> Result<bool, String> {
		if state.is_empty() { Ok(false) } else { Err("state for a device that has none".into()) }
	}
}

/// Data of a device's own events start here; below are its queues.
pub const OWN_EVENTS: u32 = 64;

/// A device's queues, with the memory they are in.
#[derive(Debug)]
pub struct Queues<'a> {
	/// In the order of [`VirtioDevice::queue_sizes`].
	pub queues: &'a mut [Queue],
	/// Guest RAM.
	pub memory: &'a GuestMemory,
	/// Set to tell the guest that a used buffer waits.
	pub interrupt: bool,
	/// Chains that may still be taken before it is somebody else's turn: a guest can make new ones all the time.
	pub(super) left: usize,
	/// Somebody wants to pause: nothing more is taken.
	pub(super) held: &'a AtomicBool,
}

impl<'a> Queues<'a> {
	/// The next chain of buffers in queue `index`; none if this turn is over, and then there will be another.
	pub fn pop(&mut self, index: usize) -> Option<DescriptorChain<&'a GuestMemory>> {
		if self.held.load(Ordering::Acquire) {
			return None;
		}
		self.left = self.left.checked_sub(1)?;
		self.queues[index].pop_descriptor_chain(self.memory)
	}

	/// Gives a chain back, `written` bytes of it written.
	pub fn push(&mut self, index: usize, head: u16, written: u32) -> Result<(), Broken> {
		let queue = &mut self.queues[index];
		let broken = |e: virtio_queue::Error| Broken(e.to_string());
		queue.add_used(self.memory, head, written).map_err(broken)?;
		self.interrupt |= queue.needs_notification(self.memory).map_err(broken)?;
		Ok(())
	}

	/// Asks the driver to notify when it puts the next chain into queue `index`; whether there is one already.
	pub(super) fn rearm(&mut self, index: usize) -> Result<bool, Broken> {
		self.queues[index].enable_notification(self.memory).map_err(|e| Broken(e.to_string()))
	}

	/// Where the driver will put its next chain into queue `index`.
	pub(super) fn avail(&self, index: usize) -> Result<u16, Broken> {
		let there = self.queues[index].avail_idx(self.memory, Ordering::Acquire);
		Ok(there.map_err(|e| Broken(e.to_string()))?.0)
	}

	/// Asks the driver to notify of the chain that it puts at `seen` of queue `index`, the first that the device hasn't
	/// looked at; whether it is there already. Without it a driver with event indices, which were met by an earlier
	/// chain, would never notify of those behind it while the device takes none. Not for ever: a guest may play with
	/// its index.
	pub(super) fn rearm_behind(&mut self, index: usize, seen: u16) -> Result<bool, Broken> {
		let queue = &self.queues[index];
		if !queue.event_idx_enabled() || self.left == 0 {
			return Ok(false);
		}
		self.left -= 1;
		// avail_event, behind the used ring (virtio 1.2, 2.7.8).
		let place = queue.used_ring().checked_add(4 + 8 * u64::from(queue.size())).map(GuestAddress);
		let place = place.ok_or_else(|| Broken("a ring outside memory".into()))?;
		self.memory.store(seen.to_le(), place, Ordering::Relaxed).map_err(|e| Broken(e.to_string()))?;
		// Asked before looked, as the driver offers before it looks.
		fence(Ordering::SeqCst);
		Ok(self.avail(index)? != seen)
	}
}
