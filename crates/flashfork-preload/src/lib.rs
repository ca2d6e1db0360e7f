//! The shim: gives unmodified programs the engine through `LD_PRELOAD` or `AFL_PRELOAD`.
//!
//! It takes the place of libc's `fork` (to seal first, when the policy says so); the memory calls whose meaning would
//! differ on sealed memory are the core's business from the first seal on. It stands on the core alone: no std, no
//! allocator, nothing to parse or calibrate when a program forks. Programs that make system calls without libc are not
//! seen.
#![no_std]

mod atfork;
mod connect;
mod control;
mod environment;
mod exec;
mod forks;
mod next;
mod number;
mod pipes;
mod sandbox;
mod syscall;
mod warm;

use core::ffi::{c_int, c_void};

/// Sets `errno` and returns -1, or returns what the call gave.
fn answer<T>(result: Result<T, flashfork_core::Errno>, value: impl FnOnce(T) -> isize) -> isize {
	match result {
		Ok(v) => value(v),
		Err(e) => {
			// SAFETY: errno of the calling thread is always there.
			unsafe { *libc::__errno_location() = e.into_raw() };
			-1
		}
	}
}

// libc's: a program may have another function of that name.
next::known_when_loaded!(CLOCK: c"clock_gettime");

/// `CLOCK_MONOTONIC` in nanoseconds, from libc: no system call on common hosts.
fn clock() -> u64 {
	type Gettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;
	let found = CLOCK.known();
	if found.is_null() {
		return 0;
	}
	let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
	// SAFETY: libc's function has this type. It writes one struct timespec to a local, and can't fail with a valid
	// clock.
	unsafe { core::mem::transmute::<*mut c_void, Gettime>(found)(libc::CLOCK_MONOTONIC, &raw mut t) };
	t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
	// Not reached by design: the core has no panicking path on purpose. Ending the process beats going on unsure.
	// SAFETY: abort is always allowed.
	unsafe { libc::abort() }
}
