//! From a warm VM to a template.

use super::{Machine, MachineError};
use crate::{
	cpu::{VcpuState, VcpuStateError},
	devices::virtio::blk::{DiskError, FrozenDisk},
	kvm::VmState,
	memory::{self, Layered},
	state::MachineState,
};
use flashfork_proto::shape::Pages;
use std::sync::Arc;

/// What clones are made of. Nothing of it ever changes; it may have come from another process.
#[derive(Debug)]
pub struct Frozen {
	/// Sealed.
	pub ram: Layered,
	/// Those that it has; then, for a clone, those attached to it.
	pub disks: Vec<FrozenDisk>,
	/// Everything else.
	pub state: Arc<MachineState>,
}

impl Frozen {
	/// Whether the images of its disks are what they were.
	///
	/// # Errors
	/// [`DiskError::Changed`].
	pub fn check_images(&self) -> Result<(), DiskError> {
		self.disks.iter().try_for_each(FrozenDisk::check)
	}
}

impl Machine {
	/// Freezes a paused machine that was booted. Its memory becomes immutable; the machine itself may go on, as another
	/// copy of the template. `forked`: the guest asked for it by signal.
	///
	/// The order: vCPUs are out of the guest, devices have nothing under way, state is saved, then memory is unmapped,
	/// sealed (`F_SEAL_WRITE` is EBUSY while a writable mapping exists) and mapped again, privately; so is what was
	/// written to the disk. If sealing fails the machine has its memory as before.
	pub fn freeze(&mut self, forked: bool) -> Result<Frozen, MachineError> {
		if self.running != 0 {
			return Err(MachineError::Phase("still runs"));
		}
		let file = self.own.as_ref().ok_or(MachineError::Phase("was not booted, or is a template already"))?;
		let descriptor = |e| MachineError::Resource("descriptor", e);
		let ram = file.try_clone().map_err(descriptor)?;
		let state = self.save(forked)?;
		self.ram.unmap()?;
		if self.shape.pages == Pages::Small {
			memory::collapse(&ram, self.shape.memory_bytes());
		}
		if let Err(e) = memory::seal(&ram) {
			self.ram.map_shared(&ram)?;
			return Err(e.into());
		}
		self.ram.map_private(&ram)?;
		self.own = None;
		let ram = Layered::single(ram, self.shape.memory_bytes());
		self.template = Some(ram.clone());
		let disks = self.devices.freeze_disks()?;
		let state = Arc::new(state);
		self.origin = Some(state.clone());
		Ok(Frozen { ram, disks, state })
	}

	pub(super) fn save(&self, forked: bool) -> Result<MachineState, MachineError> {
		let vcpus = self.save_vcpus()?;
		let vm = VmState::save(&self.vm)?;
		let devices = self.devices.save();
		Ok(MachineState { shape: self.shape, cpuid: self.vm.cpuid.clone(), forked, vcpus, vm, devices })
	}

	fn save_vcpus(&self) -> Result<Vec<VcpuState>, MachineError> {
		let saves: Vec<_> = self.vcpus.iter().map(|vcpu| vcpu.call(|vcpu| vcpu.save())).collect();
		let wait = |(id, save): (u8, std::sync::mpsc::Receiver<Result<VcpuState, VcpuStateError>>)| {
			save.recv().map_err(|_| MachineError::Gone(id))?.map_err(|e| MachineError::Vcpu(id, e))
		};
		(0..).zip(saves).map(wait).collect()
	}
}
