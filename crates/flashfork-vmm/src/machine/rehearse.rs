//! A claim for nothing, before there is one to be claimed.

use super::{Machine, MachineError};
use crate::{boot::Source, cpu::Vcpu, kvm::VmState, memory, state::MachineState};
use flashfork_proto::shape::Pages;

/// in al, 0x80: an exit that nobody listens to, and whose answer is written where `KVM_RUN` takes it from.
const GUEST: [u8; 2] = [0xe4, 0x80];

impl Machine {
	/// Goes through what [`Machine::become_clone`] and the first run do, with a guest of two bytes, and forgets it:
	/// pages of this program and its heap, KVM's page table roots and all else that is set up on first use is there
	/// afterwards. For an empty machine, on the thread of vCPU 0; the claim takes half the time then.
	pub fn rehearse(&mut self, vcpu0: &mut Vcpu) -> Result<(), MachineError> {
		if self.own.is_some() || self.origin.is_some() {
			return Err(MachineError::Phase("has memory already"));
		}
		// One page of it is ever there; of the small ones, which are never short.
		let file = memory::create("flashfork:rehearsal", self.shape.memory_bytes(), Pages::Small)?;
		self.ram.map_shared(&file)?;
		let entry = Source::Tiny(GUEST.to_vec()).load(&self.shape, &self.ram)?;
		self.ram.unmap()?;
		memory::seal(&file)?;
		self.ram.map_private(&file)?;
		let state = MachineState {
			shape: self.shape,
			cpuid: self.vm.cpuid.clone(),
			forked: false,
			vcpus: vec![vcpu0.rehearsal(&entry).map_err(|e| MachineError::Vcpu(0, e))?; self.vcpus.len()],
			vm: VmState::save(&self.vm)?,
			devices: self.devices.save(),
		};
		let state = MachineState::decode(&state.encode()?)?;
		self.check(&state)?;
		state.vm.restore(&self.vm)?;
		// A disk comes with the claim only.
		if !self.shape.disk {
			self.devices.restore(&state.devices)?;
		}
		vcpu0.rehearse(&state.vcpus[0], &self.devices).map_err(MachineError::Rehearsal)?;
		Ok(self.ram.unmap()?)
	}
}
