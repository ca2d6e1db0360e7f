//! From an empty machine to a running guest.

use super::{Machine, MachineError};
use crate::{
	boot::Source,
	cpu::VcpuStateError,
	devices::virtio::blk::{self, Disk, Image},
	memory,
};
use flashfork_proto::shape::Shape;
use std::{fs::File, os::fd::OwnedFd};

/// The memory files of a machine to boot. Made by whoever starts the machine, since its own process may not: what it
/// has can't become more.
#[derive(Debug)]
pub struct Blank {
	/// Its RAM.
	pub ram: OwnedFd,
	/// What it will write to its disk, if it has one.
	pub overlay: Option<OwnedFd>,
}

impl Blank {
	/// All zero, for a machine of `shape` with a disk of `image`.
	pub fn new(shape: &Shape, image: Option<&File>) -> Result<Self, MachineError> {
		let ram = memory::create("flashfork:vm", shape.memory_bytes(), shape.pages)?;
		Ok(Self { ram, overlay: image.map(blk::blank_overlay).transpose()? })
	}
}

impl Machine {
	/// Gives the machine new memory with `source` in it, the disk of its shape, if that has one, and vCPU 0 its first
	/// registers; [`Machine::resume`] starts it.
	pub fn boot(&mut self, source: &Source, disk: Option<Image>) -> Result<(), MachineError> {
		let blank = Blank::new(&self.shape, disk.as_ref().map(|disk| &disk.file))?;
		self.boot_in(blank, source, disk)
	}

	/// As [`Machine::boot`], in memory that there is.
	pub fn boot_in(&mut self, blank: Blank, source: &Source, disk: Option<Image>) -> Result<(), MachineError> {
		if self.own.is_some() || self.origin.is_some() {
			return Err(MachineError::Phase("has memory already"));
		}
		let Blank { ram, overlay } = blank;
		memory::check_size(&ram, self.shape.memory_bytes())?;
		let disk = disk.zip(overlay).map(|(image, overlay)| Disk::over(image, overlay)).transpose()?;
		self.devices.attach_disks(disk.into_iter().collect())?;
		self.ram.map_shared(&ram)?;
		self.own = Some(ram);
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
