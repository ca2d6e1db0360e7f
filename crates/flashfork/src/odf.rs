//! On-demand fork: the engine `odf`, for kernels that share page tables between parent and clone.
//!
//! Nothing is sealed, nothing is copied ahead, and processes that can't be sealed (threads, io_uring, KVM …) may use
//! it. It takes a kernel with the series in `kernel/` and an administrator who set the sysctl `vm.on_demand_fork` to 1.
//!
//! ```no_run
//! use flashfork::odf;
//! match odf::enable() {
//!     Ok(()) => println!("forks share page tables from now on"),
//!     Err(why) => eprintln!("{why}"), // forks are plain, and correct
//! }
//! ```

use crate::Forked;
use flashfork_core::odf::{self as core, Unavailable};
use std::io;

/// Why forks of this process can't be on demand. They stay plain, and correct.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OdfError {
	/// The kernel has no on-demand fork.
	#[error(
		"this kernel has no on-demand fork (it takes the patches of kernel/README.md); forks stay plain and correct"
	)]
	NoKernel,
	/// The kernel has it, but switched off.
	#[error("on-demand fork is switched off; sysctl vm.on_demand_fork=1 switches it on; forks stay plain and correct")]
	SwitchedOff,
	/// A system call failed.
	#[error("can't ask the kernel to fork on demand: {0}; forks stay plain and correct")]
	System(io::Error),
}

impl From<Unavailable> for OdfError {
	fn from(why: Unavailable) -> OdfError {
		match why {
			Unavailable::NoKernel => OdfError::NoKernel,
			Unavailable::SwitchedOff => OdfError::SwitchedOff,
			Unavailable::Failed(errno) => OdfError::System(io::Error::from_raw_os_error(errno.into_raw())),
		}
	}
}

/// Has every later fork of this process share page tables: [`fork`](crate::fork), libc's, a runtime's (`PR_SET_ODF`).
/// Clones inherit that, `exec` ends it.
pub fn enable() -> Result<(), OdfError> {
	Ok(core::enable()?)
}

/// Makes later forks of this process plain again. What is shared already stays shared until it is touched.
pub fn disable() -> Result<(), OdfError> {
	Ok(core::disable()?)
}

/// Whether forks of this process are on demand (`PR_GET_ODF`). [`OdfError::NoKernel`] where there is no such thing.
pub fn is_enabled() -> Result<bool, OdfError> {
	Ok(core::is_enabled()?)
}

/// One on-demand fork, whatever is enabled: `clone3(2)` with `CLONE_ODF`.
///
/// The low-level way: libc isn't asked, so no `pthread_atfork` handler runs and locks of libc stay as they were, the
/// allocator's among them. It isn't counted in [`stats`](crate::stats).
///
/// # Safety
/// The clone may only do what is async-signal-safe until it ends or executes a program.
pub unsafe fn clone() -> Result<Forked, OdfError> {
	// SAFETY: the caller answers for what the clone does.
	match unsafe { core::clone() }? {
		0 => Ok(Forked::Child),
		pid => Ok(Forked::Parent(pid)),
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn each_refusal_says_what_to_do_and_that_forks_are_correct() {
		let failed = Unavailable::Failed(flashfork_core::Errno::ENOSYS);
		for (why, part) in [
			(Unavailable::NoKernel, "kernel/README.md"),
			(Unavailable::SwitchedOff, "sysctl vm.on_demand_fork=1"),
			(failed, "Function not implemented"),
		] {
			let text = OdfError::from(why).to_string();
			assert!(text.contains(part) && text.ends_with("plain and correct") && !text.contains('\n'), "{text}");
		}
	}
}
