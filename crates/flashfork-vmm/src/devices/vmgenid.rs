//! VMGENID: 16 bytes in guest memory that are new in every clone, and an interrupt that says so. Linux from 5.18 on
//! reseeds its generator by it (drivers/virt/vmgenid.c); how the guest finds both is in `boot::acpi`.

use super::DeviceStateError;
use crate::{kvm::Vm, layout, memory::GuestMemory};
use flashfork_proto::Generation;
use vm_memory::{Bytes, GuestAddress};

/// Makes the page of the id the VM's own, which is a fault and a copy: what is there is written over itself.
pub(super) fn prime(memory: &GuestMemory) -> Result<(), DeviceStateError> {
	let same: Result<(), vm_memory::GuestMemoryError> = (|| {
		let id: Generation = memory.read_obj(GuestAddress(layout::VMGENID))?;
		memory.write_obj(id, GuestAddress(layout::VMGENID))
	})();
	same.map_err(|e| DeviceStateError::Generation(e.to_string()))
}

/// Shows the guest of `vm` another id and raises the interrupt of the ACPI event device. No vCPU runs.
///
/// By `KVM_IRQ_LINE`, not through an irqfd: that one hands the interrupt to a kernel worker, so it might come after the
/// guest has drawn a random number, and waking the worker on a busy host can cost more than the rest of a claim.
pub(super) fn renew(vm: &Vm, memory: &GuestMemory, id: Generation) -> Result<(), DeviceStateError> {
	let failed = |e: &dyn std::fmt::Display| DeviceStateError::Generation(e.to_string());
	memory.write_slice(&id, GuestAddress(layout::VMGENID)).map_err(|e| failed(&e))?;
	for active in [true, false] {
		vm.fd.set_irq_line(layout::VMGENID_IRQ, active).map_err(|e| failed(&e))?;
	}
	Ok(())
}
