//! What a seal would make of another process, from what `/proc` says about it. Nothing is changed.

use crate::{
	never_seal::{Reason, judge_described},
	proc::vma::{Kind, for_each},
	range::Range,
	sys::Result,
};
use core::ffi::CStr;

/// One VMA as a seal would see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surveyed {
	/// Addresses covered.
	pub range: Range,
	/// Whether it is mapped shared.
	pub shared: bool,
	/// Whether it is sealed already.
	pub sealed: bool,
	/// Bytes of anonymous pages in memory or swap.
	pub anonymous: u64,
	/// Why it would be left as it is. What only the process itself can ask (a NUMA policy) is not known here.
	pub left_out: Option<Reason>,
}

/// Calls `each` with every VMA described in `smaps`, the file `/proc/PID/smaps` (`proc_pid_smaps(5)`), in order of
/// address. `buf` is scratch, at least some KB.
pub fn memory(smaps: &CStr, buf: &mut [u8], mut each: impl FnMut(Surveyed)) -> Result<()> {
	for_each(smaps, buf, |vma| {
		each(Surveyed {
			range: vma.range,
			shared: vma.shared,
			sealed: vma.kind == Kind::Sealed,
			anonymous: vma.anonymous + vma.swapped,
			left_out: judge_described(vma, true).err(),
		});
		Ok(())
	})
}

/// Whether this process has private memory to write to of the host's pool of huge pages: a fork that writes there, and
/// finds no page left, is killed (`SIGBUS`). `buf` as above.
pub fn has_private_huge_pages(buf: &mut [u8]) -> Result<bool> {
	let mut has = false;
	for_each(c"/proc/thread-self/smaps", buf, |vma| {
		has |= vma.has_private_huge_pages();
		Ok(())
	})?;
	Ok(has)
}

/// Whether this process maps memory shared that it writes to, or may be let write to. `buf` as above.
pub fn shares_memory(buf: &mut [u8]) -> Result<bool> {
	let mut shares = false;
	for_each(c"/proc/thread-self/smaps", buf, |vma| {
		shares |= vma.shared && vma.flags.has(b"mw");
		Ok(())
	})?;
	Ok(shares)
}

/// Why a process with a descriptor that points to `target` (`/proc/PID/fd/N`, proc_pid_fd(5)) would not be sealed at
/// all.
pub fn descriptor(target: &[u8]) -> Option<Reason> {
	crate::kernel_writers::known::of_target(target)
}

/// The same for a character device of this number (`st_rdev`) that is open.
pub fn device(number: u64) -> Option<Reason> {
	crate::kernel_writers::known::of_device(number)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn this_process_is_seen_as_it_would_see_itself() {
		let mark = vec![1u8; 8 << 20];
		let at = mark.as_ptr() as usize + (4 << 20);
		let (mut heap, mut stacks) = (None, 0);
		memory(c"/proc/self/smaps", &mut [0; 65536], |v| {
			if v.range.start <= at && at < v.range.end {
				heap = Some(v);
			}
			stacks += usize::from(v.left_out == Some(Reason::Stack));
		})
		.unwrap();
		let heap = heap.unwrap();
		assert!(heap.left_out.is_none() && !heap.sealed && heap.anonymous >= 7 << 20, "{heap:?}");
		assert_eq!(stacks, 1);
	}

	#[test]
	fn descriptors_that_the_kernel_writes_through_are_known() {
		assert_eq!(descriptor(b"anon_inode:[io_uring]"), Some(Reason::IoUring));
		assert_eq!(descriptor(b"/dev/kvm"), Some(Reason::Kvm));
		assert_eq!(descriptor(b"/tmp/file"), None);
		assert_eq!(descriptor(b"socket:[123]"), None);
	}
}
