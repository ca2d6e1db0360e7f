//! `fork`, `_Fork` and `forkpty`.

use crate::next::{Next, known_when_loaded, nothing_found};
use core::ffi::{c_char, c_int, c_void};

type Fork = unsafe extern "C" fn() -> c_int;
type Forkpty = unsafe extern "C" fn(*mut c_int, *mut c_char, *const libc::termios, *const libc::winsize) -> c_int;

known_when_loaded!(FORK: c"fork", UNDERSCORE_FORK: c"_Fork");

/// Not when the shim is loaded: before glibc 2.34 it is in libutil, which may come later.
static FORKPTY: Next = Next::new(c"forkpty");

fn fork_through(next: &Next) -> c_int {
	let found = next.find();
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

/// libc's `_Fork`, of which nobody takes note.
pub(crate) fn bare() -> c_int {
	let found = UNDERSCORE_FORK.known();
	if found.is_null() {
		return nothing_found();
	}
	// SAFETY: libc's _Fork has this type.
	unsafe { core::mem::transmute::<*mut c_void, Fork>(found)() }
}

/// `fork(2)`: seals first when the policy says so.
#[unsafe(no_mangle)]
pub extern "C" fn fork() -> c_int {
	fork_through(&FORK)
}

/// `_Fork(3)`, the async-signal-safe fork of glibc 2.34.
#[unsafe(no_mangle)]
pub extern "C" fn _Fork() -> c_int {
	fork_through(&UNDERSCORE_FORK)
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
	let found = FORKPTY.find();
	if found.is_null() {
		return nothing_found();
	}
	// SAFETY: libc's forkpty has this type.
	let real = unsafe { core::mem::transmute::<*mut c_void, Forkpty>(found) };
	// SAFETY: the program's own call with its own arguments.
	fork_by(|| unsafe { real(terminal, name, settings, size) })
}
