//! The time stamp counter of a clone, as its distance from the host's: `KVM_VCPU_TSC_OFFSET`
//! (Documentation/virt/kvm/devices/vcpu.rst, since Linux 5.16).
//!
//! Writing the counter itself (`MSR_IA32_TSC`) would leave to KVM whether a value is meant: from Linux 5.18 to 6.6 it
//! takes every value within a second of the VM's own counter for an attempt to synchronise vCPUs, and ignores it
//! (`kvm_synchronize_tsc`, arch/x86/kvm/x86.c). A clone's counter would go back, and its deadlines would come late.

use super::state::VcpuStateError;
use kvm_bindings::{KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET, kvm_device_attr};
use kvm_ioctls::{Error, VcpuFd};
use rustix::ioctl::{Opcode, opcode::write};
use std::os::fd::AsRawFd;

/// What all vCPUs of a VM add to the host's counter. One value for all: KVM then takes their counters for one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TscOffset(u64);

/// `KVM_SET_DEVICE_ATTR` and `KVM_HAS_DEVICE_ATTR`, of a vCPU.
const SET: Opcode = write::<kvm_device_attr>(0xae, 0xe1);
const HAS: Opcode = write::<kvm_device_attr>(0xae, 0xe3);

impl TscOffset {
	/// The one with which a counter that stood at `then` goes on from there now.
	pub fn going_on_from(then: u64) -> Self {
		// SAFETY: every x86-64 CPU has the instruction.
		Self(then.wrapping_sub(unsafe { core::arch::x86_64::_rdtsc() }))
	}

	/// Gives it to a vCPU that doesn't run.
	pub(super) fn set(self, fd: &VcpuFd) -> Result<(), VcpuStateError> {
		attribute(fd, SET, &self.0).map_err(VcpuStateError::ioctl("KVM_VCPU_TSC_OFFSET"))
	}

	/// Whether this host's KVM knows of it.
	pub(crate) fn is_known(fd: &VcpuFd) -> bool {
		attribute(fd, HAS, &0).is_ok()
	}
}

fn attribute(fd: &VcpuFd, request: Opcode, offset: &u64) -> Result<(), Error> {
	let addr = std::ptr::from_ref(offset) as u64;
	let attribute = kvm_device_attr { flags: 0, group: KVM_VCPU_TSC_CTRL, attr: KVM_VCPU_TSC_OFFSET.into(), addr };
	// SAFETY: the requests read the structure and, at most, the number it points to; both outlive the call.
	match unsafe { libc::ioctl(fd.as_raw_fd(), request.into(), &raw const attribute) } {
		0 => Ok(()),
		_ => Err(Error::last()),
	}
}
