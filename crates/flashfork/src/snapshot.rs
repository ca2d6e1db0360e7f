//! Snapshot and restore: a process with one thread goes back to how it was, and the call that took the snapshot returns
//! again.

use crate::{Reason, allocator};
use flashfork_core::{Range, snapshot as core};
use std::io;

/// What a snapshot covers beside memory, mappings, registers and signal mask.
#[derive(Clone, Copy, Debug, Default)]
pub struct SnapshotOptions<'a> {
	/// Descriptors whose file offset goes back, at most 64.
	pub descriptors: &'a [i32],
	/// Bytes that stay as they are at a restore, at most 60 ranges.
	pub keep: &'a [std::ops::Range<usize>],
	/// Close descriptors that weren't open when the snapshot was taken (at most 4,096 were).
	pub close_new: bool,
	/// As [`SealOptions::trust_allocator`](crate::SealOptions::trust_allocator). Without it, large memory in a process
	/// with such a runtime is copied and compared instead of sealed, which takes longer.
	pub trust_allocator: bool,
}

/// Why there is no snapshot, or why it was not restored. The process is as it was before the call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
	/// The process holds something that can't be put back, or memory is short.
	#[error("refused: {}", crate::error::explain(*.0))]
	Refused(Reason),
	/// The engine was called from within itself, as from a signal handler.
	#[error(
		"the engine is at work in this process (a signal handler called in its middle?); call again when it is done"
	)]
	Busy,
	/// More than a snapshot has room for.
	#[error(
		"more than a snapshot has room for: 64 descriptors, 60 kept ranges, 4,096 open descriptors, 32,768 mappings"
	)]
	TooMany,
	/// A kept range that is none.
	#[error("the range to keep from {:#x} to {:#x} ends before it begins, or beyond the memory a program has, or covers the stack that the call returns to", .0.start, .0.end)]
	Keep(std::ops::Range<usize>),
	/// A restore without a snapshot.
	#[error("there is no snapshot; take one first")]
	None,
	/// A restore in a clone.
	#[error("the snapshot belongs to the process that took it, of which this is a clone; take one in the clone")]
	Clone,
	/// A restore by another thread.
	#[error("another thread took the snapshot; only that one can go back to it")]
	Thread,
	/// A mapping can't be made again.
	#[error(
		"the mapping at {0:#x} is gone or another one is in its place, and it can't be made again: only plain anonymous memory can; \
		 don't unmap files, shared or locked memory, nor cut short files that are mapped, between snapshot and restore"
	)]
	Changed(usize),
	/// A named descriptor is not what it was.
	#[error("descriptor {0} is not open, has no offset, or is not the file that it was; leave named descriptors open")]
	Descriptor(i32),
	/// The program closed a descriptor that is the snapshot's.
	#[error("the snapshot's own descriptor was closed; don't close descriptors that the program didn't open")]
	MemfdClosed,
	/// A system call failed.
	#[error("can't {step}: {source}")]
	System {
		/// What was being done.
		step: &'static str,
		/// The kernel's answer.
		source: io::Error,
	},
}

impl From<core::Error> for SnapshotError {
	fn from(e: core::Error) -> SnapshotError {
		match e {
			core::Error::Refused(reason) => SnapshotError::Refused(reason),
			core::Error::Busy => SnapshotError::Busy,
			core::Error::TooMany => SnapshotError::TooMany,
			core::Error::Keep(range) => SnapshotError::Keep(range.start..range.end),
			core::Error::None => SnapshotError::None,
			core::Error::Clone => SnapshotError::Clone,
			core::Error::Thread => SnapshotError::Thread,
			core::Error::Changed(range) => SnapshotError::Changed(range.start),
			core::Error::Descriptor(fd) => SnapshotError::Descriptor(fd),
			core::Error::MemfdClosed => SnapshotError::MemfdClosed,
			core::Error::System(step, errno) => SnapshotError::System {
				step: match step {
					core::Step::Begin => "prepare the snapshot",
					core::Step::Look => "read the process's state in /proc/self",
					core::Step::Memfd => "make the snapshot's memfd",
					core::Step::Copy => "copy memory into the snapshot",
					core::Step::Limits => {
						"have as much memory as there was within the hard limits (RLIMIT_AS, RLIMIT_DATA)"
					}
				},
				source: io::Error::from_raw_os_error(errno.into_raw()),
			},
		}
	}
}

/// Takes a snapshot of the process, in place of the one there may be, which stays if this one is refused. Returns 0,
/// and again at each [`restore`] with the number given there, as `setjmp` does; but unlike there, everything in memory
/// is then what it was.
///
/// ```no_run
/// use flashfork::{SnapshotOptions, restore, snapshot};
/// let table: Vec<u64> = (0..1 << 20).collect(); // whatever takes long to prepare
/// let turn = snapshot(&SnapshotOptions::default())?;
/// println!("input {turn}, {} entries", table.len()); // whatever it does to memory is undone
/// if turn < 1000 {
///     // SAFETY: nothing outside of memory is relied on.
///     return Err(unsafe { restore(turn + 1) }.into());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The process must have one thread. Taking it costs about what a seal costs (tenths of a second for each GB).
pub fn snapshot(options: &SnapshotOptions) -> Result<u64, SnapshotError> {
	let mut keep = [Range::default(); 64];
	let mut count = 0;
	for range in rseq().iter().chain(options.keep) {
		// One too many makes the call below refuse.
		*keep.get_mut(count).ok_or(SnapshotError::TooMany)? = Range::new(range.start, range.end);
		count += 1;
	}
	let trusted = options.trust_allocator || allocator::shim_is_loaded() || allocator::relies_on_dontneed().is_none();
	allocator::tell_core();
	// Before the snapshot, so that the shim still knows after a restore.
	allocator::tell_shim();
	let options = core::Options {
		seal: trusted,
		keep: &keep[..count],
		descriptors: options.descriptors,
		close_new: options.close_new,
	};
	Ok(core::snapshot(&options)?)
}

/// Goes back to the snapshot, whose call returns `value` (0 becomes 1). Returns only when that is refused; nothing has
/// changed then.
///
/// A step that fails after the first change is tried for a second; then the process is killed, because half a state
/// would be worse.
///
/// # Safety
/// What memory says about things outside it must still be true, or not be relied on: open descriptors, children,
/// timers, signal handlers, shared memory, what the kernel writes later. No reference to memory written since the
/// snapshot is used afterwards.
pub unsafe fn restore(value: u64) -> SnapshotError {
	core::restore(value).into()
}

/// Forgets the snapshot, if any, and gives its memory back; what was sealed for it stays sealed.
pub fn discard_snapshot() -> Result<(), SnapshotError> {
	Ok(core::discard()?)
}

/// The bytes of this thread that the kernel writes whenever it likes: glibc's rseq area (2.35), nothing elsewhere.
fn rseq() -> Option<std::ops::Range<usize>> {
	// SAFETY: lookups by name; glibc defines both, as a ptrdiff_t and an unsigned int that never change.
	let (offset, size) = unsafe {
		let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
		let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
		(offset.as_ref()?, size.as_ref()?)
	};
	let thread_pointer: usize;
	// SAFETY: the first word of the thread's control block is its own address (System V ABI, thread-local storage).
	unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) thread_pointer, options(nostack, readonly, preserves_flags)) };
	let start = thread_pointer.wrapping_add_signed(*offset);
	// 32 bytes are the least that the kernel takes, whatever of them it uses.
	(*size > 0).then(|| start..start + (*size as usize).max(32))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_kernel_writes_into_the_rseq_area() {
		// glibc 2.35 and above registers it unless told otherwise.
		let area = rseq().expect("an rseq area");
		assert!(area.len() >= 32 && area.start.is_multiple_of(32), "{area:x?}");
		// SAFETY: the second word is the number of the CPU this thread is on.
		let cpu = unsafe { ((area.start + 4) as *const u32).read_volatile() };
		assert!(cpu < 8192, "{cpu}");
	}

	#[test]
	fn errors_say_what_and_what_to_do_in_one_line() {
		// SAFETY: there is no snapshot.
		assert_eq!(unsafe { restore(1) }.to_string(), "there is no snapshot; take one first");
		let text = SnapshotError::from(core::Error::Changed(Range::new(0x1000, 0x3000))).to_string();
		assert!(text.starts_with("the mapping at 0x1000 is gone") && !text.contains('\n'), "{text}");
		discard_snapshot().unwrap();
	}
}
