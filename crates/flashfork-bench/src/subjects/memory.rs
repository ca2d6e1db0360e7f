//! Whether something fits into memory, asked before anything is allocated.
//!
//! Swap is not counted: memory in swap can't be measured as memory.

use std::ptr::null_mut;

use crate::prelude::*;
use flashfork::Headroom;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// How much memory this process can still take.
pub fn headroom() -> Result<Headroom> {
	Headroom::now().or_cant("read how much memory is available")
}

/// Refuses `what` when it needs more than there is.
pub fn require(headroom: &Headroom, what: impl Into<String>, needed: u64) -> Result {
	if needed <= headroom.available {
		return Ok(());
	}
	Err(BenchError::DoesNotFit {
		what: what.into(),
		needed,
		available: headroom.available,
		limit: headroom.limit.clone(),
	})
}

/// Zeroed memory that clones share, and that restores of a process leave alone. It is there as long as the process.
///
/// # Safety
/// Zeros are a value of `T`, which is written to through atomics alone.
pub unsafe fn shared<T: Sync>() -> Result<&'static T> {
	let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
	// SAFETY: a new mapping at an address of the kernel's choice, page-aligned, never unmapped.
	let mapped = unsafe { mmap_anonymous(null_mut(), size_of::<T>(), prot, flags).map(|at| &*at.cast::<T>()) };
	mapped.or_cant("map memory to share with clones")
}

/// Memory on 2 MB pages, where there are some, that the machine has: given back just before something is timed, it is
/// what that finds. To a virtual machine the hypervisor gives pages that were never used, or were given back, as they
/// are touched, which takes longer than a seal.
pub struct Warm {
	at: usize,
	bytes: usize,
}

impl Warm {
	/// Touches so much, half of what is available at most.
	pub fn hold(bytes: u64) -> Result<Self> {
		let bytes = bytes.min(headroom()?.available / 2) as usize;
		if bytes == 0 {
			return Ok(Self { at: 0, bytes });
		}
		let doing = "touch memory";
		// SAFETY: a new mapping at an address of the kernel's choice, which nobody else knows of until it is gone.
		unsafe {
			let at = mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
			let at = at.or_cant(doing)?;
			let warm = Self { at: at as usize, bytes };
			// Without huge pages of its own the kernel has the small ones that it makes them of.
			let _ = madvise(at, bytes, Advice::LinuxHugepage);
			madvise(at, bytes, Advice::LinuxPopulateWrite).or_cant(doing)?;
			Ok(warm)
		}
	}
}

impl Drop for Warm {
	fn drop(&mut self) {
		if self.bytes > 0 {
			// SAFETY: its own mapping. A failure would leave it where it is.
			let _ = unsafe { munmap(self.at as *mut _, self.bytes) };
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn memory_can_be_touched_without_need() {
		for bytes in [4 << 20, 4097, 0] {
			Warm::hold(bytes).unwrap();
		}
	}

	#[test]
	fn a_refusal_says_what_is_needed_and_what_is_there() {
		let headroom = Headroom { available: 1 << 30, limit: "/sys/fs/cgroup/a".into() };
		assert!(require(&headroom, "1G", 1 << 30).is_ok());
		let text = require(&headroom, "2G, method seal", 5 << 29).unwrap_err().to_string();
		for part in ["2G, method seal", "2.5 GB", "1 GB", "/sys/fs/cgroup/a"] {
			assert!(text.contains(part), "{part} is missing in: {text}");
		}
	}
}
