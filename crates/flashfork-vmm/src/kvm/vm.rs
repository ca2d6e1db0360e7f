//! A VM with everything that takes long to make: interrupt controllers, timer, memory slots, vCPUs, their CPUID.

use super::cpuid::{self, CpuidEntries};
use crate::{
	cpu::{Msrs, TscOffset, Vcpu},
	layout,
	memory::Ram,
};
use flashfork_proto::shape::Shape;
use kvm_bindings::{KVM_PIT_SPEAKER_DUMMY, kvm_pit_config, kvm_userspace_memory_region};
use kvm_ioctls::{Cap, Kvm, VmFd};
use std::sync::Arc;

/// A VM's KVM objects, without its vCPUs.
#[derive(Debug)]
pub struct Vm {
	pub(crate) fd: VmFd,
	/// CPUID of vCPU 0, without what differs per vCPU: two VMs with the same one can take each other's state.
	pub(crate) cpuid: CpuidEntries,
}

/// Why a VM can't be made.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
	/// KVM lacks something every guest needs.
	#[error("this host's KVM lacks {0}; Linux 5.18 or newer with KVM for x86-64 is needed")]
	Lacks(&'static str),
	/// An ioctl failed.
	#[error("{step}: {cause}")]
	Ioctl {
		/// Its name.
		step: &'static str,
		/// As the kernel says.
		cause: kvm_ioctls::Error,
	},
}

impl VmError {
	/// For `map_err`: the ioctl `step` failed.
	pub(crate) fn ioctl(step: &'static str) -> impl Fn(kvm_ioctls::Error) -> Self {
		move |cause| Self::Ioctl { step, cause }
	}
}

/// What must be there, with its name in the kernel's documentation.
const NEEDED: &[(Cap, &str)] = &[
	(Cap::Irqchip, "KVM_CAP_IRQCHIP"),
	(Cap::Pit2, "KVM_CAP_PIT2"),
	(Cap::PitState2, "KVM_CAP_PIT_STATE2"),
	(Cap::UserMemory, "KVM_CAP_USER_MEMORY"),
	(Cap::ImmediateExit, "KVM_CAP_IMMEDIATE_EXIT"),
	(Cap::ExtCpuid, "KVM_CAP_EXT_CPUID"),
	(Cap::MpState, "KVM_CAP_MP_STATE"),
	(Cap::VcpuEvents, "KVM_CAP_VCPU_EVENTS"),
	(Cap::Debugregs, "KVM_CAP_DEBUGREGS"),
	(Cap::Xsave, "KVM_CAP_XSAVE"),
	(Cap::Xcrs, "KVM_CAP_XCRS"),
	(Cap::AdjustClock, "KVM_CAP_ADJUST_CLOCK"),
	(Cap::Irqfd, "KVM_CAP_IRQFD"),
	(Cap::Ioeventfd, "KVM_CAP_IOEVENTFD"),
];

impl Vm {
	/// Makes a VM of `shape` over the addresses of `ram`, in the one order that works everywhere: interrupt controllers
	/// before vCPUs and before the timer (`KVM_CREATE_PIT2` is ENOENT without them since 6.18), CPUID before any MSR is
	/// touched (MSRs a guest's CPUID doesn't announce read as 0 since 6.13).
	///
	/// Takes milliseconds: most steps wait for RCU grace periods. A claim does none of this.
	pub fn create(kvm: &Kvm, shape: &Shape, ram: &Ram) -> Result<(Self, Vec<Vcpu>), VmError> {
		for (cap, name) in NEEDED {
			if !kvm.check_extension(*cap) {
				return Err(VmError::Lacks(name));
			}
		}
		let fd = kvm.create_vm().map_err(VmError::ioctl("KVM_CREATE_VM"))?;
		fd.set_identity_map_address(layout::IDENTITY_MAP).map_err(VmError::ioctl("KVM_SET_IDENTITY_MAP_ADDR"))?;
		fd.set_tss_address(layout::TSS as usize).map_err(VmError::ioctl("KVM_SET_TSS_ADDR"))?;
		fd.create_irq_chip().map_err(VmError::ioctl("KVM_CREATE_IRQCHIP"))?;
		let pit = kvm_pit_config { flags: KVM_PIT_SPEAKER_DUMMY, ..Default::default() };
		fd.create_pit2(pit).map_err(VmError::ioctl("KVM_CREATE_PIT2"))?;
		for (slot, (guest_phys_addr, memory_size, userspace_addr)) in (0..).zip(ram.slots()) {
			let region = kvm_userspace_memory_region { slot, flags: 0, guest_phys_addr, memory_size, userspace_addr };
			// SAFETY: the addresses are a reservation of `ram`, which the machine keeps until the VM is gone.
			unsafe { fd.set_user_memory_region(region) }.map_err(VmError::ioctl("KVM_SET_USER_MEMORY_REGION"))?;
		}
		let cpuid = cpuid::supported(kvm).map_err(VmError::ioctl("KVM_GET_SUPPORTED_CPUID"))?;
		let msrs = Arc::new(Msrs::list(kvm).map_err(VmError::ioctl("KVM_GET_MSR_INDEX_LIST"))?);
		let mut vcpus = Vec::new();
		for id in 0..shape.vcpus {
			let vcpu = fd.create_vcpu(id.into()).map_err(VmError::ioctl("KVM_CREATE_VCPU"))?;
			if !TscOffset::is_known(&vcpu) {
				return Err(VmError::Lacks("KVM_VCPU_TSC_OFFSET"));
			}
			let own = cpuid::for_vcpu(&cpuid, id, shape.vcpus);
			vcpu.set_cpuid2(&own.wrapper()).map_err(VmError::ioctl("KVM_SET_CPUID2"))?;
			let xsave_size = fd.check_extension_int(Cap::Xsave2).max(0) as usize;
			let sync_regs = fd.check_extension_int(Cap::SyncRegs);
			vcpus.push(Vcpu::new(vcpu, id, msrs.clone(), xsave_size, cpuid.is_amd(), sync_regs));
		}
		Ok((Self { fd, cpuid }, vcpus))
	}
}
