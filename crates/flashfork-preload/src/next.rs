//! Functions of the objects behind this one, libc's or another shim's.

use core::{
	ffi::{CStr, c_int, c_void},
	ptr::null_mut,
	sync::atomic::{AtomicPtr, Ordering::Relaxed},
};
use flashfork_core::Errno;

/// A function by its name.
pub(crate) struct Next(AtomicPtr<c_void>, &'static CStr);

impl Next {
	pub(crate) const fn new(name: &'static CStr) -> Next {
		Next(AtomicPtr::new(null_mut()), name)
	}

	/// Where it is, looked up where that isn't known; null where it isn't to be found.
	pub(crate) fn find(&self) -> *mut c_void {
		let known = self.known();
		if !known.is_null() {
			return known;
		}
		// SAFETY: a lookup in the objects loaded after this one.
		let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.1.as_ptr()) };
		self.0.store(found, Relaxed);
		found
	}

	/// Where it is; null where that isn't known.
	pub(crate) fn known(&self) -> *mut c_void {
		self.0.load(Relaxed)
	}
}

/// Functions that are looked up when the shim is loaded: a signal handler, or a child of `vfork(2)`, must not ask the
/// loader. Once in a module.
macro_rules! known_when_loaded {
	($($place:ident: $name:literal),+) => {
		$(static $place: crate::next::Next = crate::next::Next::new($name);)+

		#[used]
		#[unsafe(link_section = ".init_array")]
		static INIT: extern "C" fn() = init;

		extern "C" fn init() {
			$($place.find();)+
		}
	};
}
pub(crate) use known_when_loaded;

/// What a function answers that is not to be found.
pub(crate) fn nothing_found() -> c_int {
	crate::answer::<()>(Err(Errno::ENOSYS), |()| 0) as c_int
}
