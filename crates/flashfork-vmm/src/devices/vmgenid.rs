//! VMGENID: 16 bytes in guest memory that are new in every clone, and an interrupt that says so. Linux from 5.18 on reseeds
//! its generator by it (drivers/virt/vmgenid.c); how the guest finds both is in `boot::acpi`.

use super::DeviceStateError;
use crate::{kvm::Vm, layout, memory::GuestMemory};
use flashfork_proto::Generation;
use std::io;
use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// The interrupt of the ACPI event device.
#[derive(Debug)]
pub(super) struct GenerationId(EventFd);

impl GenerationId {
    pub(super) fn new(vm: &Vm) -> io::Result<Self> {
        let interrupt = EventFd::new(EFD_NONBLOCK)?;
        vm.fd.register_irqfd(&interrupt, layout::VMGENID_IRQ)?;
        Ok(Self(interrupt))
    }

    /// Shows the guest another id. No vCPU runs.
    pub(super) fn renew(&self, memory: &GuestMemory, id: Generation) -> Result<(), DeviceStateError> {
        memory
            .write_slice(&id, GuestAddress(layout::VMGENID))
            .map_err(|e| DeviceStateError::Generation(e.to_string()))?;
        self.0.write(1).map_err(|e| DeviceStateError::Generation(e.to_string()))
    }
}
