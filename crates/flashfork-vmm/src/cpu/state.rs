//! One vCPU's state, as a template keeps it.

use kvm_bindings::{
	kvm_debugregs, kvm_lapic_state, kvm_mp_state, kvm_msr_entry, kvm_regs, kvm_sregs, kvm_vcpu_events, kvm_xcrs,
};
use serde::{Deserialize, Serialize};

/// Everything KVM knows of a vCPU except CPUID, which is the shape's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VcpuState {
	pub(super) mp_state: kvm_mp_state,
	pub(super) regs: kvm_regs,
	pub(super) sregs: kvm_sregs,
	pub(super) xsave: Xsave,
	pub(super) xcrs: kvm_xcrs,
	pub(super) debug: kvm_debugregs,
	pub(super) lapic: kvm_lapic_state,
	pub(super) tsc_khz: u32,
	pub(super) msrs: Vec<kvm_msr_entry>,
	pub(super) events: kvm_vcpu_events,
}

/// The XSAVE area: 4 KB, and more with AMX.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Xsave(pub(super) Vec<u32>);

/// Words of the XSAVE area that every CPU has.
pub(super) const XSAVE_WORDS: usize = 1024;

/// Why a vCPU's state can't be saved or restored.
#[derive(Debug, thiserror::Error)]
pub enum VcpuStateError {
	/// An ioctl failed.
	#[error("{step}: {cause}")]
	Ioctl {
		/// Its name.
		step: &'static str,
		/// As the kernel says.
		cause: kvm_ioctls::Error,
	},
	/// KVM refuses an MSR's value.
	#[error("KVM_SET_MSRS: KVM refuses {value:#x} for MSR {index:#x}")]
	Msr {
		/// Its number.
		index: u32,
		/// The template's value.
		value: u64,
	},
	/// The template's XSAVE area has another size.
	#[error(
		"the template's XSAVE area has {found} bytes, this host's {expected}: clone on the CPU model it was made on"
	)]
	Xsave {
		/// In the template.
		found: usize,
		/// Here.
		expected: usize,
	},
	/// The TSC of this host runs at another rate, and it can't be scaled.
	#[error(
		"the template's TSC ran at {template} kHz, this host's runs at {host} kHz: clone on the host it was made on"
	)]
	TscRate {
		/// Then.
		template: u32,
		/// Now.
		host: u32,
	},
}

impl VcpuStateError {
	/// For `map_err`: the ioctl `step` failed.
	pub(crate) fn ioctl(step: &'static str) -> impl Fn(kvm_ioctls::Error) -> Self {
		move |cause| Self::Ioctl { step, cause }
	}
}

impl VcpuState {
	/// Where the TSC stood. A clone's vCPUs all go on from where that of the first stood: read one by one they differ
	/// by what reading took.
	pub fn tsc(&self) -> Option<u64> {
		super::msrs::tsc(&self.msrs)
	}
}
