//! `getppid(2)`, in clones: a clone is its template's child, and the program in it is told whose it would be, had it
//! been started where it was called. That is the parent of the command, or the process that has called the library.

use super::end;
use crate::next::known_when_loaded;
use core::{
	ffi::c_void,
	sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed},
};
use flashfork_core::inherited::{own_parent, parent_of};

known_when_loaded!(GETPPID: c"getppid");

/// The clone's caller, 0 for one that can't be seen from here; whether the program stands in its place; and the last
/// answer, which counts where `/proc` can't be asked. Until there is one it is as for a parent that can't be seen.
static CALLER: AtomicI32 = AtomicI32::new(0);
static IN_ITS_PLACE: AtomicBool = AtomicBool::new(false);
static LAST: AtomicI32 = AtomicI32::new(0);

/// In a clone, before anything of the program runs. It lives no longer than its caller does. `/proc` is not asked here:
/// that takes longer than all else of the kind, and few programs want to know.
pub fn note(caller: i32, in_its_place: bool) {
	CALLER.store(caller, Relaxed);
	IN_ITS_PLACE.store(in_its_place, Relaxed);
}

/// `getppid(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn getppid() -> i32 {
	let found = GETPPID.find();
	let parent = if found.is_null() {
		own_parent()
	} else {
		// SAFETY: libc's function of this name has this type.
		unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(found)() }
	};
	if !end::is_template_of_this(parent) {
		return parent;
	}
	let caller = CALLER.load(Relaxed);
	if !IN_ITS_PLACE.load(Relaxed) {
		return caller;
	}
	// A sandbox need not allow that a file is opened.
	if !crate::sandbox::entered()
		&& let Some(now) = parent_of(caller)
	{
		LAST.store(now, Relaxed);
	}
	LAST.load(Relaxed)
}
