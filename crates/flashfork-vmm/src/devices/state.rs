//! What the guest can see of all devices, as a template keeps it.

use super::{
	serial::SerialState,
	virtio::{
		VirtioState,
		blk::{DiskError, DiskState},
	},
};
use flashfork_proto::signal::Device as SignalState;
use serde::{Deserialize, Serialize};

/// Saved while no vCPU runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceState {
	pub(super) serial: SerialState,
	pub(super) signal: SignalState,
	pub(super) virtio: Vec<VirtioState>,
}

impl DeviceState {
	/// What the VM's disks are; none of an empty slot.
	pub fn disks(&self) -> impl Iterator<Item = DiskState> {
		self.virtio.iter().filter_map(VirtioState::disk)
	}
}

/// Which device can't have the state.
#[derive(Debug, thiserror::Error)]
pub enum DeviceStateError {
	/// More input than its FIFO holds, or its interrupt can't be raised.
	#[error("cannot restore the serial port: {0}")]
	Serial(String),
	/// A virtio device.
	#[error("cannot restore the virtio device of kind {kind}: {why}")]
	Virtio {
		/// `VIRTIO_ID_*`.
		kind: u32,
		/// What doesn't fit.
		why: String,
	},
	/// Its disk.
	#[error(transparent)]
	Disk(#[from] DiskError),
	/// Guest memory or its interrupt is not there.
	#[error("cannot write the generation id: {0}")]
	Generation(String),
}
