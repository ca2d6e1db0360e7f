//! Memory that the engine maps for its own use.

use crate::state::STATE;
use crate::sys::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PAGE, PROT_READ, PROT_WRITE, Result};

/// Maps memory that the engine works with during one call, all zeros, far from where the kernel puts the program's: a
/// mapping of the program's may grow in this call, and whatever else is mapped in it stays behind when this is gone.
pub fn map(len: usize) -> Result<usize> {
    const FAR: usize = 1 << 40;
    const PLACES: usize = 1 << 12;
    const APART: usize = 16 << 20;
    // Another for each stack: where one is taken the kernel takes the next that is free, and that is close to the
    // program's.
    let here = 0u8;
    let place = &raw const here as usize / PAGE % PLACES * APART;
    let hint = (&raw const STATE as usize & !(PAGE - 1)).checked_sub(FAR).map_or(0, |at| at + place);
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a fresh mapping.
    unsafe { sys::mmap(hint, len, PROT_READ | PROT_WRITE, flags, -1, 0) }
}

/// Maps anonymous memory wherever the kernel puts it, for a copy that will be moved to where it belongs.
pub fn temporary(len: usize) -> Result<usize> {
    // SAFETY: a fresh mapping.
    unsafe { sys::mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) }
}
