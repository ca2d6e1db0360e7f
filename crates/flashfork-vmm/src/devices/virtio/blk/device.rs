//! The device: queue, config space, features.

use super::{
	super::device::{Broken, Queues, VirtioDevice},
	disk::{Disk, SECTOR},
	overlay::BLOCK,
	request,
};
use crate::devices::lock;
use event_manager::EventOps;
use std::sync::{Arc, Mutex};
use virtio_bindings::{
	virtio_blk::{
		VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_TOPOLOGY,
		VIRTIO_BLK_F_WRITE_ZEROES,
	},
	virtio_ids::VIRTIO_ID_BLOCK,
};

/// Requests that may wait.
const QUEUE: u16 = 256;
/// Data segments of a request: what the queue has room for beside header and status.
const SEGMENTS: u32 = QUEUE as u32 - 2;
/// Bytes of one: with `SEGMENTS` of them a request is no longer than [`request::MAX_DATA`].
const SEGMENT: u32 = 32 << 10;
const _: () = assert!(SEGMENTS as usize * SEGMENT as usize <= request::MAX_DATA);

/// The place of a VM's disk, which comes with boot or claim, long after the device. Without one it has no sectors.
pub type DiskSlot = Arc<Mutex<Option<Disk>>>;

/// The block device. It answers every request before it returns: nothing is ever in flight while the VM is paused.
#[derive(Debug)]
pub struct Blk(pub DiskSlot);

impl VirtioDevice for Blk {
	fn kind(&self) -> u32 {
		VIRTIO_ID_BLOCK
	}

	fn features(&self) -> u64 {
		let read_only = lock(&self.0).as_ref().is_some_and(Disk::read_only);
		1 << VIRTIO_BLK_F_SIZE_MAX
			| 1 << VIRTIO_BLK_F_SEG_MAX
			| 1 << VIRTIO_BLK_F_TOPOLOGY
			| 1 << VIRTIO_BLK_F_DISCARD
			| 1 << VIRTIO_BLK_F_WRITE_ZEROES
			| u64::from(read_only) << VIRTIO_BLK_F_RO
	}

	fn queue_sizes(&self) -> &[u16] {
		&[QUEUE]
	}

	/// capacity, size_max, seg_max, geometry, blk_size, topology, writeback, queues, discard, write zeroes (virtio 1.2,
	/// 5.2.4). Sectors, but blocks of eight: of what is aligned to them the rest need not be read from the image.
	fn config(&self) -> Vec<u8> {
		let bytes = lock(&self.0).as_ref().map_or(0, Disk::bytes);
		let most = [request::MAX_CLEARED.to_le_bytes(), request::MAX_PIECES.to_le_bytes()].concat();
		let fields: [&[u8]; 13] = [
			&(bytes / SECTOR).to_le_bytes(),
			&SEGMENT.to_le_bytes(),
			&SEGMENTS.to_le_bytes(),
			&[0; 4],
			&(SECTOR as u32).to_le_bytes(),
			&[(BLOCK as u64 / SECTOR).ilog2() as u8, 0],
			&(BLOCK as u16 / SECTOR as u16).to_le_bytes(),
			&0u32.to_le_bytes(),
			&[0; 4],
			&most,
			&(BLOCK as u32 / SECTOR as u32).to_le_bytes(),
			&most,
			&[1, 0, 0, 0],
		];
		fields.concat()
	}

	fn notified(&mut self, index: usize, queues: &mut Queues<'_>, _: &mut EventOps<'_>) -> Result<(), Broken> {
		let mut disk = lock(&self.0);
		while let Some(chain) = queues.pop(index) {
			let head = chain.head_index();
			let written = request::serve(disk.as_mut(), chain, queues.memory)?;
			queues.push(index, head, written)?;
		}
		Ok(())
	}

	fn reset(&mut self) {}

	fn save(&self) -> Vec<u8> {
		let disk = lock(&self.0);
		let state = disk.as_ref().map(|disk| postcard::to_stdvec(disk.state()));
		// Numbers and bytes: they have an encoding.
		state.transpose().expect("plain values encode").unwrap_or_default()
	}

	fn restore(&mut self, state: &[u8]) -> Result<bool, String> {
		match lock(&self.0).as_mut() {
			None if state.is_empty() => Ok(false),
			None => Err("the template's disk is missing".into()),
			// The template had none in this place: the capacity has grown from nothing.
			Some(disk) if state.is_empty() && disk.is_attached() => Ok(true),
			Some(disk) => {
				disk.set_state(postcard::from_bytes(state).map_err(|e| e.to_string())?)?;
				Ok(false)
			}
		}
	}
}
