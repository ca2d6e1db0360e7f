//! Memory that the engine maps for its own use.

use crate::{
	state::STATE,
	sys::{self, Errno, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PAGE, PROT_READ, PROT_WRITE, Result},
};
use linux_raw_sys::general as k;

/// Maps memory that the engine works with during one call, all zeros, far from where the kernel puts the program's: a
/// mapping of the program's may grow in this call, and whatever else is mapped in it stays behind when this is gone.
pub fn map(len: usize) -> Result<usize> {
	far(len).or_else(|_| place(0, len, 0))
}

/// The same, but never close to the program's memory: for what stays mapped when the call is over, and must not lie
/// where the program's memory would. `ENOMEM` where all places are taken.
pub fn far(len: usize) -> Result<usize> {
	const FAR: usize = 1 << 40;
	const PLACES: u32 = 12;
	const APART: usize = 16 << 20;
	const ATTEMPTS: usize = 8;
	// Another for each stack, those of other threads' calls among them, and a free one: where one is taken the kernel
	// takes the next that is free, and that is close to the program's.
	let here = 0u8;
	let own = &raw const here as usize / PAGE;
	for attempt in 0..ATTEMPTS {
		// Fibonacci hashing: stacks lie at multiples of large powers of two from each other.
		let place = (own + attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - PLACES);
		let Some(at) = (&raw const STATE as usize & !(PAGE - 1)).checked_sub(FAR) else { break };
		match self::place(at + place * APART, len, k::MAP_FIXED_NOREPLACE) {
			Err(Errno::EEXIST) => {}
			// Before Linux 4.17 the address is only a hint, which is as good.
			mapped => return mapped,
		}
	}
	Err(Errno::ENOMEM)
}

fn place(at: usize, len: usize, fixed: u32) -> Result<usize> {
	let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed;
	// SAFETY: a fresh mapping, which replaces nothing.
	unsafe { sys::mmap(at, len, PROT_READ | PROT_WRITE, flags, -1, 0) }
}

/// Maps anonymous memory wherever the kernel puts it, for a copy that will be moved to where it belongs.
pub fn temporary(len: usize) -> Result<usize> {
	// SAFETY: a fresh mapping.
	unsafe { sys::mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) }
}

/// The same, uncharged: for a copy of memory that is (`MAP_NORESERVE`).
pub fn temporary_unreserved(len: usize) -> Result<usize> {
	// SAFETY: a fresh mapping.
	unsafe { sys::mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) }
}
