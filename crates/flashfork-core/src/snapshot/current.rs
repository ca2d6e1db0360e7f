//! Which snapshot there is.

use super::table::Table;
use crate::apart::Apart;
use core::sync::atomic::AtomicPtr;

/// The table of the snapshot there is, or null.
pub(crate) static CURRENT: Apart<AtomicPtr<Table>> = Apart::new(AtomicPtr::new(core::ptr::null_mut()));
