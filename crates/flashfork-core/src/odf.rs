//! On-demand fork: a kernel that shares page tables between parent and clone until one of them faults there.
//!
//! It is found by asking for it, never by trying the clone flag (docs/ON_DEMAND_FORK.md).

use crate::{
	policy::{Engine, POLICY},
	sys::{self, Errno},
};

/// Why a process can't fork on demand. Its forks stay plain, and correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
	/// The kernel has no on-demand fork.
	NoKernel,
	/// The kernel has it, and the sysctl `vm.on_demand_fork` is 0.
	SwitchedOff,
	/// The call failed otherwise: a sandbox that forbids `prctl`.
	Failed(Errno),
}

/// Has every later fork of this process share page tables, libc's own included (`PR_SET_ODF`). Clones inherit that,
/// `exec` ends it. Explicit seals go on as before.
pub fn enable() -> Result<(), Unavailable> {
	is_enabled()?;
	sys::set_odf(true).map_err(|e| match e {
		Errno::EPERM => Unavailable::SwitchedOff,
		other => Unavailable::Failed(other),
	})?;
	POLICY.set(Engine::Odf);
	Ok(())
}

/// Makes later forks of this process plain again; what is shared already stays so until it is written.
pub fn disable() -> Result<(), Unavailable> {
	is_enabled()?;
	sys::set_odf(false).map_err(Unavailable::Failed)?;
	POLICY.set(Engine::Fork);
	Ok(())
}

/// Whether forks of this process are on demand now (`PR_GET_ODF`).
pub fn is_enabled() -> Result<bool, Unavailable> {
	sys::odf().map_err(|e| match e {
		Errno::EINVAL => Unavailable::NoKernel,
		other => Unavailable::Failed(other),
	})
}

/// One on-demand fork, whatever the process has set: `clone3(2)` with `CLONE_ODF`. 0 in the clone.
///
/// libc isn't asked: no `pthread_atfork` handler runs, and libc's locks are as they were in the parent.
///
/// # Safety
/// The clone may only do what is async-signal-safe, and must not return through frames that the parent still uses other
/// than a fork's would.
pub unsafe fn clone() -> Result<i32, Unavailable> {
	is_enabled()?;
	// SAFETY: a fork; the rest is the caller's to answer for.
	unsafe { sys::clone_odf() }.map_err(|e| match e {
		Errno::EPERM => Unavailable::SwitchedOff,
		other => Unavailable::Failed(other),
	})
}

#[cfg(test)]
mod tests {
	use super::*;

	/// The unit tests run on whatever kernel there is; the lab has one of each kind.
	#[test]
	fn all_ways_to_ask_agree_about_the_kernel() {
		let missing = is_enabled().err();
		if missing == Some(Unavailable::NoKernel) {
			assert_eq!((enable(), disable()), (Err(Unavailable::NoKernel), Err(Unavailable::NoKernel)));
			// SAFETY: refused before anything is cloned.
			assert_eq!(unsafe { clone() }, Err(Unavailable::NoKernel));
		}
	}
}
