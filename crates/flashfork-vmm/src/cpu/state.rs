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
    /// All vCPUs of a VM get the same TSC, that of the first: read one after the other they differ by what reading took, and
    /// KVM takes writes of nearly the same value as one clock only if they are meant to be.
    pub fn align_tsc(states: &mut [Self]) {
        let mut values = states.iter_mut().filter_map(|state| super::msrs::tsc(&mut state.msrs));
        if let Some(first) = values.next().map(|tsc| *tsc) {
            values.for_each(|tsc| *tsc = first);
        }
    }
}
