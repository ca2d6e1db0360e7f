//! What a directory says of itself: one small file, checked as a whole; it vouches for the others.

use super::{host::Host, quota::SavedQuota};
use crate::state::{Envelope, StateError};
use serde::{Deserialize, Serialize};

/// First bytes and version of the manifest. Another version is refused: templates are cheap to make again.
const ENVELOPE: Envelope = Envelope { magic: *b"FLFKTPL\n", version: 2 };

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
	pub host: Host,
	pub quota: SavedQuota,
	pub created_s: u64,
	pub ram: Sum,
	/// In the order of the devices.
	pub disks: Vec<DiskSums>,
	/// [`MachineState`](crate::state::MachineState), encoded.
	pub state: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DiskSums {
	pub image: Sum,
	pub overlay: Sum,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sum {
	pub bytes: u64,
	pub crc: u32,
}

impl Manifest {
	pub(super) fn encode(&self) -> Result<Vec<u8>, StateError> {
		ENVELOPE.seal(self)
	}

	pub(super) fn decode(bytes: &[u8]) -> Result<Self, StateError> {
		ENVELOPE.open(bytes)
	}
}
