//! `shutdown` and `close` of a socket that listens and that a clone has together with others: the one would be the end
//! for all of them, the other would not end its events in the clone.

use crate::next::{Next, known_when_loaded, nothing_found};
use core::{
	ffi::{c_int, c_void},
	sync::atomic::{AtomicI32, AtomicPtr, Ordering::SeqCst},
};
use flashfork_core::{
	Errno,
	forkall::{Frozen, call, leave_sets},
};
use syscalls::Sysno;

known_when_loaded!(CLOSE: c"close");
static SHUTDOWN: Next = Next::new(c"shutdown");

/// What this clone was made from; nothing in other processes.
static TEMPLATE: AtomicPtr<Frozen> = AtomicPtr::new(core::ptr::null_mut());

static CLONE: AtomicI32 = AtomicI32::new(0);

/// In a clone, whose threads don't run yet.
pub fn share(frozen: &'static Frozen) {
	CLONE.store(own(), SeqCst);
	TEMPLATE.store(core::ptr::from_ref(frozen).cast_mut(), SeqCst);
}

fn own() -> i32 {
	// SAFETY: asks for a number.
	unsafe { call(Sysno::getpid, []) }.map_or(0, |pid| pid as i32)
}

/// `close(2)`. A socket that a clone listens at together with others is out of its epoll sets then, as it would be if
/// it had that alone. What a clone forks has the sets together with it, and leaves them as they are.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
	// SAFETY: as in `shutdown`.
	let template = unsafe { TEMPLATE.load(SeqCst).as_ref() };
	if template.is_some_and(|template| template.is_shared_listener(fd)) && own() == CLONE.load(SeqCst) {
		// Without /proc its events go on.
		let _ = leave_sets(fd);
	}
	let found = CLOSE.find();
	if found.is_null() {
		return nothing_found();
	}
	// SAFETY: libc's function of this name has this type; the program's own call.
	unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> c_int>(found)(fd) }
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
	let found = SHUTDOWN.find();
	if found.is_null() {
		return nothing_found();
	}
	// SAFETY: libc's function of this name has this type; the program's own call.
	unsafe {
		let real = core::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, c_int) -> c_int>(found);
		real(fd, how)
	}
}
