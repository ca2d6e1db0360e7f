//! What belongs to a VM as a whole: creation, CPUID, interrupt controllers, timer and clock.

mod cpuid;
mod interrupts;
mod paging;
mod vm;

pub use cpuid::{CpuidEntries, for_vcpu, supported};
pub use interrupts::{VmState, VmStateError};
pub use paging::two_dimensional;
pub use vm::{Vm, VmError};

/// Why `/dev/kvm` can't be opened and what to do, in one line.
#[must_use]
pub fn unavailable(error: &kvm_ioctls::Error) -> String {
	let cure = match error.errno() {
		libc::EACCES | libc::EPERM => {
			"become a member of the group it belongs to, mostly kvm (usermod -aG kvm USER, as root), and log in again"
		}
		libc::ENOENT | libc::ENODEV | libc::ENXIO => {
			"load its module (modprobe kvm_amd or kvm_intel), and on a virtual machine have nested virtualisation enabled"
		}
		_ => "`flashfork doctor` tells more",
	};
	format!("cannot open /dev/kvm: {error}; {cure}")
}

#[cfg(test)]
mod tests {
	use super::unavailable;

	#[test]
	fn who_may_not_open_kvm_is_told_the_group_and_who_has_none_the_module() {
		let said = |number| unavailable(&kvm_ioctls::Error::new(number));
		assert!(said(libc::EACCES).contains("group") && said(libc::EACCES).contains("usermod -aG kvm"));
		assert!(said(libc::ENOENT).contains("modprobe"));
		assert!(!said(libc::EMFILE).contains("modprobe"));
	}
}
