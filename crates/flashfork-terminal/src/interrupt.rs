//! Ctrl-C during a measurement: the first keeps and writes what is measured, the second ends the command at once.

use crate::error::CliError;
use signal_hook::{
	consts::{SIGINT, SIGTERM},
	low_level,
};
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

/// When the first came, in milliseconds of the monotonic clock; 0 for none.
static CAUGHT: AtomicI64 = AtomicI64::new(0);
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// Signals so close together are one: `timeout` sends its own to the command and to its group.
const ONE: i64 = 500;

/// From now on the first SIGINT or SIGTERM is only taken down.
pub fn catch() -> Result<(), CliError> {
	for signal in [SIGINT, SIGTERM] {
		// SAFETY: what is called is async-signal-safe.
		unsafe { low_level::register(signal, move || take_down(signal)) }
			.map_err(|error| CliError::Unable(format!("can't catch signal {signal}: {error}")))?;
	}
	Ok(())
}

/// Whether one came.
pub fn caught() -> bool {
	CAUGHT.load(Ordering::Relaxed) != 0
}

/// With what a shell expects of a command that one of them ended: 128 plus its number. `None` where none came.
pub fn exit_code() -> Option<u8> {
	caught().then(|| SIGNAL.load(Ordering::Relaxed)).and_then(|signal| u8::try_from(128 + signal).ok())
}

fn take_down(signal: i32) {
	let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
	// SAFETY: async-signal-safe; the time is a local. It can't fail with this clock.
	unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
	let now = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
	// Before it is said that one came; a later one is the same to whoever asks for the exit code.
	let _ = SIGNAL.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
	match CAUGHT.compare_exchange(0, now.max(1), Ordering::Relaxed, Ordering::Relaxed) {
		Err(first) if now - first > ONE => {
			// It ends the process; there is nobody to tell that it could not.
			let _ = low_level::emulate_default_handler(signal);
		}
		Ok(_) | Err(_) => {}
	}
}
