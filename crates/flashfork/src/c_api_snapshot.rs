//! The C API of snapshots; see `c_api.rs`.

use crate::{Reason, SnapshotError, SnapshotOptions, c_api::fail};
use libc::{c_int, c_void};

/// Bytes of memory.
#[repr(C)]
pub struct CRange {
	/// First address.
	pub start: *const c_void,
	/// Address behind the last.
	pub end: *const c_void,
}

/// What a snapshot covers beside memory, mappings, registers and signal mask. All zeros are the defaults.
#[repr(C)]
pub struct CSnapshotOptions {
	/// Descriptors whose file offset goes back, at most 64; NULL when there are none.
	pub descriptors: *const c_int,
	/// How many.
	pub descriptor_count: usize,
	/// Bytes that stay as they are at a restore, at most 60 ranges; NULL when there are none.
	pub keep: *const CRange,
	/// How many.
	pub keep_count: usize,
	/// Not 0: a restore closes descriptors that weren't open when the snapshot was taken.
	pub close_new: u32,
	/// Not 0: the caller vouches that no runtime in the process (Go) relies on MADV_DONTNEED giving zeros, and asks for
	/// it by system calls of its own.
	pub trust_allocator: u32,
	/// Must be 0.
	pub reserved: [u64; 4],
}

fn refuse(error: &SnapshotError) -> c_int {
	let errno = match error {
		SnapshotError::Refused(Reason::LowMemory | Reason::VmaLimit) => libc::ENOMEM,
		SnapshotError::Refused(Reason::FileSizeLimit) => libc::EFBIG,
		SnapshotError::Refused(_) => libc::EBUSY,
		SnapshotError::Busy => libc::EALREADY,
		SnapshotError::TooMany => libc::ENOSPC,
		SnapshotError::Keep(_) => libc::EINVAL,
		SnapshotError::None => libc::ENOENT,
		SnapshotError::Clone | SnapshotError::Thread => libc::EPERM,
		SnapshotError::Changed(_) => libc::EFAULT,
		SnapshotError::Descriptor(_) | SnapshotError::MemfdClosed => libc::EBADF,
		SnapshotError::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
	};
	fail(&error.to_string(), errno)
}

/// Takes a snapshot of the process, in the place of the one there may be, and returns 0. `flashfork_restore(n)` then
/// makes this call return n, as often as wanted, with all private memory, mappings, registers and the signal mask as
/// they were. The process must have one thread.
///
/// `options` may be NULL. What does not go back: shared memory, descriptors and other kernel state (but see the
/// options), what others saw.
///
/// Returns -1 with `errno` and a text from `flashfork_last_error`, nothing taken: EBUSY (the process holds what can't
/// be put back: other threads, an io_uring, hugetlb pages …), ENOMEM, EFBIG, ENOSPC (too many ranges, descriptors,
/// mappings), EBADF (a named descriptor), EALREADY (called within itself), EINVAL (wrong options), or what a system
/// call gave.
///
/// # Safety
/// The pointers are NULL or valid, as in any C call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_snapshot(options: *const CSnapshotOptions) -> c_int {
	// SAFETY: NULL or valid, the caller says.
	let Some(c) = (unsafe { options.as_ref() }) else { return take(&SnapshotOptions::default()) };
	if c.reserved != [0; 4] || c.descriptors.is_null() && c.descriptor_count > 0 || c.keep.is_null() && c.keep_count > 0
	{
		return fail("wrong options: begin with {0}, and give as many elements as you count", libc::EINVAL);
	}
	let mut keep = [const { 0..0 }; 64];
	// More than either can be are not even read.
	if c.keep_count > keep.len() || c.descriptor_count > 64 {
		return refuse(&SnapshotError::TooMany);
	}
	for (i, range) in keep[..c.keep_count].iter_mut().enumerate() {
		// SAFETY: as many as the caller counts.
		let c = unsafe { &*c.keep.add(i) };
		*range = c.start as usize..c.end as usize;
	}
	let descriptors = match c.descriptor_count {
		0 => &[][..],
		// SAFETY: as many as the caller counts.
		count => unsafe { std::slice::from_raw_parts(c.descriptors, count) },
	};
	take(&SnapshotOptions {
		descriptors,
		keep: &keep[..c.keep_count],
		close_new: c.close_new != 0,
		trust_allocator: c.trust_allocator != 0,
	})
}

fn take(options: &SnapshotOptions) -> c_int {
	// The value of a restore came in as a positive int.
	crate::snapshot(options).map_or_else(|e| refuse(&e), |value| value as c_int)
}

/// Goes back to the snapshot: `flashfork_snapshot` returns `value`, which is at least 1. Does not return, unless it is
/// refused; nothing has changed then. What memory says about things outside of it (descriptors, children, timers) must
/// still be true, or not be relied on.
///
/// Returns -1 with `errno`: EINVAL (value), ENOENT (no snapshot), EPERM (a clone of the process that took it, or
/// another thread), EBUSY (threads, an io_uring), EFAULT (a file's or other mapping that can't be made again is gone),
/// EBADF (a descriptor), EALREADY, or what a system call gave. A step that fails after the first change is tried for a
/// second; then the process is killed.
///
/// # Safety
/// As longjmp(3), and see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_restore(value: c_int) -> c_int {
	match u64::try_from(value) {
		// SAFETY: the caller answers for what is outside of memory.
		Ok(value) if value > 0 => refuse(&unsafe { crate::restore(value) }),
		_ => fail("the value given to flashfork_restore is at least 1", libc::EINVAL),
	}
}

/// Forgets the snapshot, if there is one, and gives its memory back; what was sealed for it stays sealed. Returns 0, or
/// -1 with EALREADY.
#[unsafe(no_mangle)]
pub extern "C" fn flashfork_snapshot_discard() -> c_int {
	crate::discard_snapshot().map_or_else(|e| refuse(&e), |()| 0)
}
