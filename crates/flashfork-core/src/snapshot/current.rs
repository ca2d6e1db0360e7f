//! Which snapshot there is.

use super::table::Table;
use crate::apart::Apart;
use crate::range::Range;
use core::sync::atomic::{AtomicPtr, Ordering::SeqCst};

/// The table of the snapshot there is, or null.
pub(crate) static CURRENT: Apart<AtomicPtr<Table>> = Apart::new(AtomicPtr::new(core::ptr::null_mut()));

/// The addresses of its own memory, which no seal takes for the program's.
pub(crate) fn own() -> [Range; 3] {
    // SAFETY: mapped as long as it is the snapshot; only whoever has the engine asks, and ends it.
    unsafe { CURRENT.load(SeqCst).as_ref() }.map_or([Range::default(); 3], Table::own)
}
