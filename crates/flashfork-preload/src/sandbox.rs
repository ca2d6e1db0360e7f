//! Programs that put themselves under seccomp: from then on the system calls of a seal might end them, so there are no
//! more seals.
//!
//! Memory sealed before stays sealed where the filter lets the engine work on it
//! ([`flashfork_core::answers::sandbox`]): a clone that goes into a sandbox keeps what it was cloned for.

use crate::next::known_when_loaded;
use core::{
	ffi::{c_int, c_ulong, c_void},
	sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use flashfork_core::{Errno, answers::sandbox};
use syscalls::Sysno;

static ENTERED: AtomicBool = AtomicBool::new(false);

/// Whether the program, or one it was forked from, has set up seccomp since it was started.
pub fn entered() -> bool {
	ENTERED.load(Relaxed)
}

/// Notes it where a call has put the program into a sandbox.
fn entered_by(result: Result<usize, Errno>) -> isize {
	if result.is_ok() {
		ENTERED.store(true, Relaxed);
	}
	crate::answer(result, |n| n as isize)
}

const PR_SET_SECCOMP: c_int = 22;

type Prctl = unsafe extern "C" fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;

known_when_loaded!(PRCTL: c"prctl");

/// `prctl(2)`; takes part only when it sets up seccomp, or has system calls be signals. The call itself is made by the
/// next object's function, libc's or another shim's.
///
/// # Safety
/// As `prctl`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
	let found = PRCTL.find();
	// SAFETY: where it is found, functions of this name have this type, as far as callers can tell.
	let real = (!found.is_null()).then(|| unsafe { core::mem::transmute::<*mut c_void, Prctl>(found) });
	let args = [option as usize, a as usize, b as usize, c as usize, d as usize, 0];
	// SAFETY: the program's own call.
	let result = unsafe {
		sandbox::prctl_by(args, || match real {
			Some(real) => told(real(option, a, b, c, d)),
			None => flashfork_core::system_call(Sysno::prctl, args),
		})
	};
	done(option, result)
}

/// The same by its number.
///
/// # Safety
/// As `prctl`.
pub unsafe fn prctl_by_number(args: [usize; 6]) -> c_int {
	// SAFETY: the program's own call.
	done(args[0] as c_int, unsafe { sandbox::prctl(args) })
}

fn done(option: c_int, result: Result<usize, Errno>) -> c_int {
	(if option == PR_SET_SECCOMP { entered_by(result) } else { crate::answer(result, |n| n as isize) }) as c_int
}

/// What a function of libc's has answered.
fn told(answer: c_int) -> Result<usize, Errno> {
	if answer == -1 {
		// SAFETY: errno of the calling thread is always there.
		return Err(Errno::new(unsafe { *libc::__errno_location() }));
	}
	Ok(answer as usize)
}

/// `seccomp(2)`, which libc has no function for.
///
/// # Safety
/// As `seccomp`.
pub unsafe fn seccomp(operation: usize, flags: usize, args: usize) -> isize {
	const GET_ACTION_AVAIL: usize = 2;
	// SAFETY: the program's own call.
	let result = unsafe { sandbox::seccomp([operation, flags, args, 0, 0, 0]) };
	if operation < GET_ACTION_AVAIL { entered_by(result) } else { crate::answer(result, |n| n as isize) }
}
