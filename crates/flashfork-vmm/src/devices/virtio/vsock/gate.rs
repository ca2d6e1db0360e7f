//! Whether packets go to the guest: not before it has understood a restore.

use super::{
	super::device::{Broken, Queues},
	device::Vsock,
	wire::{EVENT, TRANSPORT_RESET},
};
use std::io::Write;
use virtio_queue::QueueT;

/// Whether packets go to the guest.
///
/// After a restore the guest first has to forget the connections it had, and it does that later than it would take new
/// ones: a new connection that came too early would die with the old. Its driver puts an event's buffer back when it
/// has dealt with the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
	Open,
	/// The guest must be told.
	Closed,
	/// It was told, and has understood when its event buffers reach this place of the ring.
	Told(u16),
}

impl Vsock {
	/// Tells the guest of a restore, and notes when it has understood.
	pub(super) fn gate(&mut self, queues: &mut Queues<'_>) -> Result<(), Broken> {
		if !queues.queues[EVENT].ready() {
			return Ok(());
		}
		if self.gate == Gate::Closed {
			let mut told = 0;
			// No more than were there: those that come back meanwhile are the guest's answers.
			let there = queues.avail(EVENT)?;
			while queues.queues[EVENT].next_avail() != there
				&& let Some(chain) = queues.pop(EVENT)
			{
				let head = chain.head_index();
				let mut writer = chain.writer(queues.memory).map_err(|e| Broken(e.to_string()))?;
				writer.write_all(&TRANSPORT_RESET.to_le_bytes()).map_err(|e| Broken(e.to_string()))?;
				queues.push(EVENT, head, 4)?;
				told += 1;
			}
			// Those that a pause has kept from being taken are no answers.
			if told > 0 {
				self.gate = Gate::Told(there.wrapping_add(told));
			}
		}
		if let Gate::Told(answered) = self.gate {
			loop {
				let there = queues.avail(EVENT)?;
				if there.wrapping_sub(answered).cast_signed() >= 0 {
					self.gate = Gate::Open;
					break;
				}
				if !queues.rearm_behind(EVENT, there)? {
					break;
				}
			}
		}
		Ok(())
	}
}
