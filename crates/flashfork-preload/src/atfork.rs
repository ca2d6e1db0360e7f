//! `pthread_atfork(3)`: what libraries would do around a fork is noted, for clones that aren't made by the C library's
//! `fork`.

use crate::next::Next;
use core::{
	ffi::{c_int, c_void},
	mem::{MaybeUninit, transmute},
	sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

type Handler = unsafe extern "C" fn();
type Register = unsafe extern "C" fn(Option<Handler>, Option<Handler>, Option<Handler>, *mut c_void) -> c_int;

static REGISTER: Next = Next::new(c"__register_atfork");

const MOST: usize = 64;

/// Addresses of what runs before a fork and in the child, as they were given, or 0; and where the object lies that has
/// given them.
struct Noted {
	prepare: AtomicUsize,
	child: AtomicUsize,
	base: AtomicUsize,
}

static NOTED: [Noted; MOST] =
	[const { Noted { prepare: AtomicUsize::new(0), child: AtomicUsize::new(0), base: AtomicUsize::new(0) } }; MOST];
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
	let address = |handler: Option<Handler>| handler.map_or(0, |handler| handler as *const () as usize);
	let [before, inside] = [prepare, child].map(address);
	// An object that was unloaded and is loaded again gives its own once more.
	let is_new = |noted: &Noted| (noted.prepare.load(SeqCst), noted.child.load(SeqCst)) != (before, inside);
	if (before, inside) != (0, 0)
		&& NOTED.iter().all(is_new)
		&& let Some(place) = NOTED.get(COUNT.fetch_add(1, SeqCst))
	{
		place.base.store(base(before.max(inside)), SeqCst);
		place.prepare.store(before, SeqCst);
		place.child.store(inside, SeqCst);
	}
	// SAFETY: glibc's function of this name has this type, and this is the caller's own call.
	unsafe { transmute::<*mut c_void, Register>(found)(prepare, parent, child, object) }
}

/// Whether they are noted: musl's are not.
pub fn are_noted() -> bool {
	!REGISTER.find().is_null()
}

/// Where the object lies that has this address; 0 if none has.
fn base(address: usize) -> usize {
	let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
	// SAFETY: looks an address up, into a local of which all zeros are a value.
	unsafe {
		libc::dladdr(address as *const c_void, found.as_mut_ptr());
		found.assume_init().dli_fbase as usize
	}
}

/// The handlers that would run in a child: those that there was room for.
pub fn in_child() -> impl Iterator<Item = usize> + Clone {
	NOTED.iter().map(|noted| noted.child.load(SeqCst)).filter(|address| *address != 0)
}

/// Forgets those of objects that were unloaded since; whether there was room for all. Looking objects up takes longer
/// than a clone may.
pub fn settle() -> bool {
	for Noted { prepare, child, base: noted } in &NOTED {
		for handler in [prepare, child] {
			let address = handler.load(SeqCst);
			if address != 0 && base(address) != noted.load(SeqCst) {
				handler.store(0, SeqCst);
			}
		}
	}
	COUNT.load(SeqCst) <= MOST
}

/// Runs what the C library's `fork` would have run in this process, which has come by `_Fork`: what was to be before
/// it, the last noted first, then what is the child's.
///
/// # Safety
/// This process has one thread, and nothing was unloaded since they were [`settle`]d.
pub unsafe fn run() {
	let call = |handler: &AtomicUsize| {
		let address = handler.load(SeqCst);
		if address != 0 {
			// SAFETY: a handler that was registered, of an object that is loaded.
			unsafe { transmute::<usize, Handler>(address)() };
		}
	};
	NOTED.iter().rev().for_each(|noted| call(&noted.prepare));
	NOTED.iter().for_each(|noted| call(&noted.child));
}
