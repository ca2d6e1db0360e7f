//! From an empty machine to a running guest.

use super::{Machine, MachineError};
use crate::boot::Source;
use crate::cpu::VcpuStateError;
use crate::devices::virtio::blk::{Disk, Image};
use crate::memory;

impl Machine {
    /// Gives the machine new memory with `source` in it, the disk of its shape, if that has one, and vCPU 0 its first registers;
    /// [`Machine::resume`] starts it.
    pub fn boot(&mut self, source: &Source, disk: Option<Image>) -> Result<(), MachineError> {
        if self.own.is_some() || self.origin.is_some() {
            return Err(MachineError::Phase("has memory already"));
        }
        self.devices.attach_disk(disk.map(Disk::new).transpose()?)?;
        let file = memory::create("flashfork:vm", self.shape.memory_bytes(), self.shape.pages)?;
        self.ram.map_shared(&file)?;
        self.own = Some(file);
        let entry = source.load(&self.shape, &self.ram)?;
        let set = self.vcpus[0].call(move |vcpu| {
            let mut sregs = vcpu.fd.get_sregs().map_err(VcpuStateError::ioctl("KVM_GET_SREGS"))?;
            (entry.sregs)(&mut sregs);
            vcpu.fd.set_sregs(&sregs).map_err(VcpuStateError::ioctl("KVM_SET_SREGS"))?;
            vcpu.fd.set_regs(&entry.regs).map_err(VcpuStateError::ioctl("KVM_SET_REGS"))
        });
        set.recv().map_err(|_| MachineError::Gone(0))?.map_err(|e| MachineError::Vcpu(0, e))
    }
}
