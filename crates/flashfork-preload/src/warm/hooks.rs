//! What a program has done in each of its clones before it goes on: `flashfork_on_clone`.

use core::{
	ffi::{c_int, c_void},
	ptr::null_mut,
	sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst},
};

/// 0 when all went well.
pub type Hook = unsafe extern "C" fn(*mut c_void) -> c_int;

const MOST: usize = 64;

/// A function and its argument; null until both are there.
struct Slot {
	run: AtomicPtr<c_void>,
	with: AtomicPtr<c_void>,
}

static SLOTS: [Slot; MOST] =
	[const { Slot { run: AtomicPtr::new(null_mut()), with: AtomicPtr::new(null_mut()) } }; MOST];
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Notes one; false if there are too many. Without a lock: a template is stopped at any moment, and then one that is
/// not there yet is not run.
pub fn note(run: Hook, with: *mut c_void) -> bool {
	let taken = TAKEN.fetch_update(SeqCst, SeqCst, |taken| (taken < MOST).then_some(taken + 1));
	let Ok(place) = taken else { return false };
	SLOTS[place].with.store(with, SeqCst);
	SLOTS[place].run.store(run as *mut c_void, SeqCst);
	true
}

/// Whether there are any.
pub fn any() -> bool {
	all().next().is_some()
}

/// Runs all of them, in the order in which they were noted; false as soon as one fails.
pub fn run() -> bool {
	all().all(|(run, with)| {
		// SAFETY: `note` has stored a function of this type, with its argument.
		unsafe { core::mem::transmute::<*mut c_void, Hook>(run)(with) == 0 }
	})
}

/// Runs them in a clone with one thread, which ends if one fails.
pub fn run_or_end() {
	if !run() {
		let text = b"flashfork: the clone is ended: a function of flashfork_on_clone has failed\n";
		// SAFETY: a constant, to standard error; nothing else of the clone has run.
		unsafe {
			libc::write(2, text.as_ptr().cast(), text.len());
			libc::_exit(1);
		}
	}
}

fn all() -> impl Iterator<Item = (*mut c_void, *mut c_void)> {
	let slots = SLOTS[..TAKEN.load(SeqCst).min(MOST)].iter();
	slots.map(|slot| (slot.run.load(SeqCst), slot.with.load(SeqCst))).filter(|(run, _)| !run.is_null())
}
