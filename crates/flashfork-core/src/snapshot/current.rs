//! Which snapshot there is.

use super::table::{OWN, Table};
use crate::{apart::Apart, range::Range, region::choice::Way};
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering::SeqCst};

pub(crate) static CURRENT: Apart<AtomicPtr<Table>> = Apart::new(AtomicPtr::new(core::ptr::null_mut()));

/// The one way to go back that restores take, if any; an `Option<Way>` as a number.
pub(crate) static ONLY: Apart<AtomicU8> = Apart::new(AtomicU8::new(0));

pub(crate) fn set_only_way(way: Option<Way>) {
	let number = match way {
		None => 0,
		Some(Way::Drop) => 1,
		Some(Way::Copy) => 2,
	};
	ONLY.store(number, SeqCst);
}

pub(crate) fn only_way() -> Option<Way> {
	match ONLY.load(SeqCst) {
		1 => Some(Way::Drop),
		2 => Some(Way::Copy),
		_ => None,
	}
}

/// The addresses of its own memory, which no seal takes for the program's.
pub(crate) fn own() -> [Range; OWN] {
	// SAFETY: mapped while it is the snapshot; only whoever has the engine asks, and ends it.
	unsafe { CURRENT.load(SeqCst).as_ref() }.map_or([Range::default(); OWN], Table::own)
}
