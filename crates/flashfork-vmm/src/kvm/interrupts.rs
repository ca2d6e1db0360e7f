//! State of a VM besides its vCPUs: interrupt controllers, timer, clock.

use super::vm::Vm;
use kvm_bindings::{
	KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, kvm_clock_data, kvm_irqchip, kvm_pit_state2,
};
use serde::{Deserialize, Serialize};

/// The two PICs and the I/O APIC, in the order they are saved and restored.
const CHIPS: [u32; 3] = [KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, KVM_IRQCHIP_IOAPIC];

/// Saved while no vCPU runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VmState {
	pit: kvm_pit_state2,
	/// Nanoseconds of kvmclock.
	clock: u64,
	chips: [kvm_irqchip; 3],
}

/// Which part of it failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} the {part}: {cause}")]
pub struct VmStateError {
	verb: &'static str,
	part: &'static str,
	cause: kvm_ioctls::Error,
}

fn failed(verb: &'static str, part: &'static str) -> impl Fn(kvm_ioctls::Error) -> VmStateError {
	move |cause| VmStateError { verb, part, cause }
}

impl VmState {
	/// Saves it; no vCPU runs.
	pub fn save(vm: &Vm) -> Result<Self, VmStateError> {
		let pit = vm.fd.get_pit2().map_err(failed("save", "timer"))?;
		let clock = vm.fd.get_clock().map_err(failed("save", "clock"))?.clock;
		let mut chips = CHIPS.map(|chip_id| kvm_irqchip { chip_id, ..Default::default() });
		for chip in &mut chips {
			vm.fd.get_irqchip(chip).map_err(failed("save", "interrupt controllers"))?;
		}
		Ok(Self { pit, clock, chips })
	}

	/// Restores it, after all vCPUs: the I/O APIC gives pending interrupts to local APICs at once, and a local APIC
	/// restored later would forget them.
	///
	/// The clock goes on where it stopped (no `KVM_CLOCK_REALTIME`): the guest's monotonic clock must neither jump nor
	/// go back. The wall clock is the guest agent's business.
	pub fn restore(&self, vm: &Vm) -> Result<(), VmStateError> {
		vm.fd.set_pit2(&self.pit).map_err(failed("restore", "timer"))?;
		let clock = kvm_clock_data { clock: self.clock, ..Default::default() };
		vm.fd.set_clock(&clock).map_err(failed("restore", "clock"))?;
		for (chip, chip_id) in self.chips.iter().zip(CHIPS) {
			// The chip a file names is not believed.
			let chip = kvm_irqchip { chip_id, ..*chip };
			vm.fd.set_irqchip(&chip).map_err(failed("restore", "interrupt controllers"))?;
		}
		Ok(())
	}
}
