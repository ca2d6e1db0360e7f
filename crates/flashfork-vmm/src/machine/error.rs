//! Why a machine can't do what it was asked to.

use crate::{
	boot::BootError,
	cpu::{RehearsalError, RunError, VcpuStateError},
	devices::{DeviceStateError, virtio::blk::DiskError},
	kvm::{VmError, VmStateError},
	memory::{LayerError, MemfdError, RamError},
};

/// One line: what, why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
	/// Its KVM objects.
	#[error("cannot make a VM: {0}")]
	Vm(#[from] VmError),
	/// Its memory.
	#[error(transparent)]
	Ram(#[from] RamError),
	/// The file of its memory.
	#[error(transparent)]
	Memory(#[from] MemfdError),
	/// The files of its memory.
	#[error(transparent)]
	Layers(#[from] LayerError),
	/// What was written can't be copied while the guest runs.
	#[error("cannot fork the guest while it runs: {0}")]
	Copy(std::io::Error),
	/// A descriptor or a thread.
	#[error("cannot make a VM's {0}: {1}")]
	Resource(&'static str, std::io::Error),
	/// What to boot.
	#[error(transparent)]
	Boot(#[from] BootError),
	/// A vCPU's state.
	#[error("vCPU {0}: {1}")]
	Vcpu(u8, VcpuStateError),
	/// The rehearsal of a claim.
	#[error("a claim can't be rehearsed: {0}")]
	Rehearsal(RehearsalError),
	/// A state that was just made.
	#[error(transparent)]
	State(#[from] crate::state::StateError),
	/// A vCPU's thread is gone.
	#[error("vCPU {0}: its thread has ended")]
	Gone(u8),
	/// The rest of KVM's state.
	#[error(transparent)]
	VmState(#[from] VmStateError),
	/// Its disk.
	#[error(transparent)]
	Disk(#[from] DiskError),
	/// A device's state.
	#[error(transparent)]
	Device(#[from] DeviceStateError),
	/// KVM could not run the guest.
	#[error("vCPU {0}: {1}")]
	Run(u8, RunError),
	/// The template is for another machine.
	#[error("the template is for {template}, this machine has {machine}")]
	Shape {
		/// Its shape.
		template: String,
		/// Ours.
		machine: String,
	},
	/// The template was made on another CPU model, or under another kernel.
	#[error("the template was made on another CPU or kernel: CPUID leaf {0:#x} differs; make it again on this host")]
	Cpuid(u32),
	/// Memory is there already, or not yet.
	#[error("the machine {0}")]
	Phase(&'static str),
}
