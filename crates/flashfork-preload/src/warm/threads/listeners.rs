//! `shutdown`: of a socket that listens it would be the end for the template and for all other clones.

use crate::forks::next;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::SeqCst};
use flashfork_core::Errno;
use flashfork_core::forkall::Frozen;

static SHUTDOWN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// What this clone was made from; nothing in other processes.
static TEMPLATE: AtomicPtr<Frozen> = AtomicPtr::new(core::ptr::null_mut());

/// In a clone, whose threads don't run yet.
pub fn share(frozen: &'static Frozen) {
    TEMPLATE.store(core::ptr::from_ref(frozen).cast_mut(), SeqCst);
}

/// `shutdown(2)`. Of a socket that a clone listens at together with others it gives `ENOTCONN`, as on BSD.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: what `share` was given lives as long as the clone, and is written no more.
    let template = unsafe { TEMPLATE.load(SeqCst).as_ref() };
    if template.is_some_and(|template| template.is_shared_listener(fd)) {
        return crate::answer::<()>(Err(Errno::ENOTCONN), |()| 0) as c_int;
    }
    let found = next(&SHUTDOWN, c"shutdown");
    if found.is_null() {
        return crate::answer::<()>(Err(Errno::ENOSYS), |()| 0) as c_int;
    }
    // SAFETY: libc's function of this name has this type; the program's own call.
    unsafe {
        let real = core::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, c_int) -> c_int>(found);
        real(fd, how)
    }
}
