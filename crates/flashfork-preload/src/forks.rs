//! `fork` and `_Fork`.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

type Fork = unsafe extern "C" fn() -> c_int;

static FORK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static UNDERSCORE_FORK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looked up when the shim is loaded, so that a fork in a signal handler need not ask the loader.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

extern "C" fn init() {
    next(&FORK, c"fork");
    next(&UNDERSCORE_FORK, c"_Fork");
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
        return crate::answer::<()>(Err(flashfork_core::Errno::ENOSYS), |()| 0) as c_int;
    }
    // SAFETY: libc's fork and _Fork have this type.
    let real = unsafe { core::mem::transmute::<*mut c_void, Fork>(found) };
    let ours = crate::warm::forked::before();
    // SAFETY: the program's own fork.
    let pid = flashfork_core::fork::fork(|| unsafe { real() }, crate::clock);
    crate::warm::forked::after(pid, ours);
    pid
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
