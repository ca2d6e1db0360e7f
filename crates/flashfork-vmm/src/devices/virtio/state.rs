//! A virtio device's state, as a template keeps it.

use super::blk::DiskState;
use serde::{Deserialize, Serialize};
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use virtio_queue::QueueState;

/// Transport, queues and device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtioState {
	pub(super) kind: u32,
	pub(super) driver_features: u64,
	pub(super) device_features_sel: u32,
	pub(super) driver_features_sel: u32,
	pub(super) queue_sel: u32,
	pub(super) status: u32,
	pub(super) interrupt_status: u32,
	pub(super) config_generation: u32,
	pub(super) queues: Vec<Ring>,
	pub(super) device: Vec<u8>,
}

impl VirtioState {
	/// Of a block device with a disk.
	pub(in crate::devices) fn disk(&self) -> Option<DiskState> {
		let has_disk = self.kind == VIRTIO_ID_BLOCK && !self.device.is_empty();
		has_disk.then(|| postcard::from_bytes(&self.device).ok()).flatten()
	}
}

/// One queue; virtio-queue's state, which has no encoding of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ring {
	max_size: u16,
	next_avail: u16,
	next_used: u16,
	event_idx: bool,
	size: u16,
	ready: bool,
	desc: u64,
	avail: u64,
	used: u64,
}

impl From<QueueState> for Ring {
	fn from(q: QueueState) -> Self {
		Self {
			max_size: q.max_size,
			next_avail: q.next_avail,
			next_used: q.next_used,
			event_idx: q.event_idx_enabled,
			size: q.size,
			ready: q.ready,
			desc: q.desc_table,
			avail: q.avail_ring,
			used: q.used_ring,
		}
	}
}

impl From<Ring> for QueueState {
	fn from(r: Ring) -> Self {
		Self {
			max_size: r.max_size,
			next_avail: r.next_avail,
			next_used: r.next_used,
			event_idx_enabled: r.event_idx,
			size: r.size,
			ready: r.ready,
			desc_table: r.desc,
			avail_ring: r.avail,
			used_ring: r.used,
		}
	}
}
