//! A whole VM's state without its RAM.

use super::envelope::{Envelope, StateError, VERSION};
use crate::{
	cpu::VcpuState,
	devices::{DeviceState, virtio::blk::DiskState},
	kvm::{CpuidEntries, VmState},
};
use flashfork_proto::shape::Shape;
use serde::{Deserialize, Serialize};

/// First bytes and version of a state.
const ENVELOPE: Envelope = Envelope { magic: *b"FLFKVM\r\n", version: VERSION };

/// Saved in one pause, together with the RAM it belongs to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MachineState {
	/// What it fits into.
	pub shape: Shape,
	/// What its CPUs can do.
	pub(crate) cpuid: CpuidEntries,
	/// The guest asked for the template by signal: `FORK` returns in every clone.
	pub forked: bool,
	pub(crate) vcpus: Vec<VcpuState>,
	pub(crate) vm: VmState,
	pub(crate) devices: DeviceState,
}

impl MachineState {
	/// Bytes that a VM in this state may write to its disks; none without one.
	pub fn disk_limit(&self) -> u64 {
		self.disks().iter().fold(0, |sum, disk| sum.saturating_add(disk.limit()))
	}

	/// What its disks are, in the order of the devices.
	pub(crate) fn disks(&self) -> Vec<DiskState> {
		self.devices.disks().collect()
	}

	/// Where the time stamp counter stood, in cycles; all vCPUs of a clone go on from there.
	pub fn tsc(&self) -> Option<u64> {
		self.vcpus.first().and_then(VcpuState::tsc)
	}

	/// With magic number, version and checksum.
	pub fn encode(&self) -> Result<Vec<u8>, StateError> {
		ENVELOPE.seal(self)
	}

	/// The opposite of [`Self::encode`]; never trusts `bytes`. Whether the state fits a VM is for that VM to say.
	pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
		let state: Self = ENVELOPE.open(bytes)?;
		state.shape.check().map_err(|e| StateError::Nonsense(e.to_string()))?;
		if state.vcpus.len() != usize::from(state.shape.vcpus) {
			return Err(StateError::Nonsense("as many vCPU states as vCPUs are needed".into()));
		}
		Ok(state)
	}
}
