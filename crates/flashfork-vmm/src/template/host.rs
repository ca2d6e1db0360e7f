//! What a template and a host must have in common.

use crate::kvm::{CpuidEntries, supported};
use kvm_ioctls::Kvm;
use serde::{Deserialize, Serialize};

/// A host, as far as a template cares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
	cpuid: CpuidEntries,
	/// Version of its kernel: major, minor.
	kernel: (u32, u32),
}

/// Why a template can't be used here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
	/// Guests would see another CPU.
	#[error(
		"it was made on another CPU model or under another kernel (CPUID leaf {0:#x} differs): make it again on this host"
	)]
	Cpu(u32),
	/// KVM's state may have become more.
	#[error(
		"it was made under Linux {}.{}, this is {}.{}: use a kernel as new, or make the template again here",
		then.0, then.1, now.0, now.1
	)]
	Kernel {
		/// Where it was made.
		then: (u32, u32),
		/// Here.
		now: (u32, u32),
	},
	/// This host's own KVM.
	#[error("KVM_GET_SUPPORTED_CPUID: {0}")]
	Kvm(kvm_ioctls::Error),
	/// It calls itself something else.
	#[error("this kernel's version is {0:?}, which is none of Linux")]
	Release(String),
}

impl Host {
	/// This one.
	pub fn this(kvm: &Kvm) -> Result<Self, HostError> {
		let release = rustix::system::uname().release().to_string_lossy().into_owned();
		let kernel = version(&release).ok_or(HostError::Release(release))?;
		Ok(Self { cpuid: supported(kvm).map_err(HostError::Kvm)?, kernel })
	}

	pub(super) fn check(&self, then: &Self) -> Result<(), HostError> {
		if let Some(leaf) = self.cpuid.difference(&then.cpuid) {
			return Err(HostError::Cpu(leaf));
		}
		if self.kernel < then.kernel {
			return Err(HostError::Kernel { then: then.kernel, now: self.kernel });
		}
		Ok(())
	}
}

fn version(release: &str) -> Option<(u32, u32)> {
	let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
	Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn kernel_versions() {
		assert_eq!(version("6.12.9-cloud-amd64"), Some((6, 12)));
		assert_eq!(version("6.1"), Some((6, 1)));
		assert_eq!(version("plan9"), None);
	}

	#[test]
	fn an_older_kernel_is_refused_with_both_versions() {
		let Ok(kvm) = Kvm::new() else { return eprintln!("skipped: no /dev/kvm") };
		let here = Host::this(&kvm).unwrap();
		here.check(&here).unwrap();
		let newer = Host { kernel: (here.kernel.0, here.kernel.1 + 1), ..here.clone() };
		newer.check(&here).unwrap();
		let refused = here.check(&newer).unwrap_err().to_string();
		assert!(refused.contains(&format!("{}.{}", here.kernel.0, here.kernel.1 + 1)), "{refused}");
	}
}
