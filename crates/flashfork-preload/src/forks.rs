//! `fork`, `_Fork` and `forkpty`.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

type Fork = unsafe extern "C" fn() -> c_int;
type Forkpty = unsafe extern "C" fn(*mut c_int, *mut c_char, *const libc::termios, *const libc::winsize) -> c_int;

static FORK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static UNDERSCORE_FORK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static FORKPTY: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looked up when the shim is loaded: a signal handler, or a child of `vfork(2)`, must not ask the loader.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

extern "C" fn init() {
	next(&FORK, c"fork");
	next(&UNDERSCORE_FORK, c"_Fork");
	next(&crate::connect::CONNECT, c"connect");
}

/// The function of that name behind this object.
pub(crate) fn next(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
	let known = place.load(Relaxed);
	if !known.is_null() {
		return known;
	}
	// SAFETY: a lookup in the objects loaded after this one.
	let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
	place.store(found, Relaxed);
	found
}

fn fork_through(place: &AtomicPtr<c_void>, name: &CStr) -> c_int {
	let found = next(place, name);
	if found.is_null() {
		return nothing_found();
	}
	// SAFETY: libc's fork and _Fork have this type.
	let real = unsafe { core::mem::transmute::<*mut c_void, Fork>(found) };
	// SAFETY: the program's own fork.
	fork_by(|| unsafe { real() })
}

fn fork_by(real: impl FnOnce() -> c_int) -> c_int {
	let ours = crate::warm::forked::before();
	let pid = flashfork_core::fork::fork(real, crate::clock);
	crate::warm::forked::after(pid, ours);
	pid
}

/// libc's `fork`, of which nobody takes note.
pub(crate) fn plain() -> c_int {
	let found = FORK.load(Relaxed);
	if found.is_null() {
		return nothing_found();
	}
	// SAFETY: libc's fork has this type.
	unsafe { core::mem::transmute::<*mut c_void, Fork>(found)() }
}

pub(crate) fn nothing_found() -> c_int {
	crate::answer::<()>(Err(flashfork_core::Errno::ENOSYS), |()| 0) as c_int
}

/// `fork(2)`: seals first when the policy says so.
#[unsafe(no_mangle)]
pub extern "C" fn fork() -> c_int {
	fork_through(&FORK, c"fork")
}

/// `_Fork(3)`, the async-signal-safe fork of glibc 2.34.
#[unsafe(no_mangle)]
pub extern "C" fn _Fork() -> c_int {
	fork_through(&UNDERSCORE_FORK, c"_Fork")
}

/// `forkpty(3)`, whose fork inside libc would pass by the others; it counts with the terminal that it opens.
///
/// # Safety
/// As for `forkpty(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkpty(
	terminal: *mut c_int,
	name: *mut c_char,
	settings: *const libc::termios,
	size: *const libc::winsize,
) -> c_int {
	// Not when the shim is loaded: before glibc 2.34 it is in libutil, which may come later.
	let found = next(&FORKPTY, c"forkpty");
	if found.is_null() {
		return nothing_found();
	}
	// SAFETY: libc's forkpty has this type.
	let real = unsafe { core::mem::transmute::<*mut c_void, Forkpty>(found) };
	// SAFETY: the program's own call with its own arguments.
	fork_by(|| unsafe { real(terminal, name, settings, size) })
}
