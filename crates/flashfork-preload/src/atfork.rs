//! `pthread_atfork(3)`: what libraries would do in a child is noted, for clones that aren't made by the C library's
//! fork.

use crate::next::Next;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};

type Handler = unsafe extern "C" fn();
type Register = unsafe extern "C" fn(Option<Handler>, Option<Handler>, Option<Handler>, *mut c_void) -> c_int;

static REGISTER: Next = Next::new(c"__register_atfork");

/// Most handlers that are noted.
const MOST: usize = 64;

/// Addresses of those that would run in a child, as they were given.
static IN_CHILD: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// What glibc's `pthread_atfork` is in each object that calls it.
///
/// # Safety
/// As glibc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __register_atfork(
	prepare: Option<Handler>,
	parent: Option<Handler>,
	child: Option<Handler>,
	object: *mut c_void,
) -> c_int {
	let found = REGISTER.find();
	if found.is_null() {
		return libc::ENOSYS;
	}
	if let Some(child) = child
		&& let Some(place) = IN_CHILD.get(COUNT.fetch_add(1, SeqCst))
	{
		place.store(child as *const () as usize, SeqCst);
	}
	// SAFETY: glibc's function of this name has this type, and this is the caller's own call.
	unsafe { core::mem::transmute::<*mut c_void, Register>(found)(prepare, parent, child, object) }
}

/// The handlers that would run in a child: those that there was room for.
pub fn in_child() -> impl Iterator<Item = usize> + Clone {
	IN_CHILD.iter().map(|place| place.load(SeqCst)).filter(|address| *address != 0)
}
