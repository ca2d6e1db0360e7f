//! Ctrl-C during a measurement: the first keeps and writes what is measured, the second ends the command at once.

use crate::error::CliError;
use std::sync::atomic::{AtomicI64, Ordering};

/// When the first came, in milliseconds of the monotonic clock; 0 for none.
static CAUGHT: AtomicI64 = AtomicI64::new(0);
/// Signals so close together are one: `timeout` sends its own to the command and to its group.
const ONE: i64 = 500;

/// From now on the first SIGINT or SIGTERM is only taken down.
pub fn catch() -> Result<(), CliError> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all fields of the action are set; the handler calls async-signal-safe functions only.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = take_down as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut())
        };
        if done != 0 {
            let error = std::io::Error::last_os_error();
            return Err(CliError::Unable(format!("can't catch signal {signal}: {error}")));
        }
    }
    Ok(())
}

/// Whether one came.
pub fn caught() -> bool {
    CAUGHT.load(Ordering::Relaxed) != 0
}

extern "C" fn take_down(signal: i32) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: async-signal-safe; the time is a local. It can't fail with this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let now = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
    match CAUGHT.compare_exchange(0, now.max(1), Ordering::Relaxed, Ordering::Relaxed) {
        Err(first) if now - first > ONE => {
            // SAFETY: both are async-signal-safe; the default action of the signal ends the process.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
        Ok(_) | Err(_) => {}
    }
}
