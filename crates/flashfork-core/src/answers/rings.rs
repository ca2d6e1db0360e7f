//! io_urings that nothing shows: without a descriptor (`IORING_SETUP_REGISTERED_FD_ONLY`, `IORING_REGISTER_RING_FDS`)
//! or in the program's own memory (`IORING_SETUP_NO_MMAP`). All others are found by their descriptor or mapping.
//!
//! The process is not sealed from then on, because nothing tells when such a ring is gone. Its clones are: a ring that
//! is registered is its task's own.

use super::advise;
use crate::{
	state::STATE,
	sys::{self, Result},
};

/// `io_uring_setup(2)`.
///
/// # Safety
/// As the call.
pub unsafe fn setup(entries: usize, params: usize) -> Result<usize> {
	const NO_MMAP: u32 = 1 << 14;
	const REGISTERED_FD_ONLY: u32 = 1 << 15;
	advise::before_later_writes()?;
	// SAFETY: the program's own call.
	let ring = unsafe { sys::io_uring_setup(entries, params) }?;
	// SAFETY: the kernel has read and written the struct; its third word are the flags.
	let flags = unsafe { (params as *const u32).add(2).read_unaligned() };
	if flags & (NO_MMAP | REGISTERED_FD_ONLY) != 0 {
		STATE.note_hidden_ring();
	}
	Ok(ring)
}

/// `io_uring_register(2)`.
///
/// # Safety
/// As the call.
pub unsafe fn register(fd: usize, opcode: usize, arg: usize, count: usize) -> Result<usize> {
	const REGISTER_RING_FDS: u32 = 20;
	const USE_REGISTERED_RING: u32 = 1 << 31;
	// SAFETY: the program's own call.
	let result = unsafe { sys::io_uring_register(fd, opcode, arg, count) }?;
	if opcode as u32 & !USE_REGISTERED_RING == REGISTER_RING_FDS {
		STATE.note_hidden_ring();
	}
	Ok(result)
}
