//! Ctrl-C during a measurement: the first keeps and writes what is measured, the second ends the command at once.

use crate::error::CliError;
use std::sync::atomic::{AtomicBool, Ordering};

static CAUGHT: AtomicBool = AtomicBool::new(false);

/// From now on the first SIGINT or SIGTERM is only taken down.
pub fn catch() -> Result<(), CliError> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all fields of the action are set; the handler only stores to an atomic, and SA_RESETHAND gives the second
        // signal its default action.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = take_down as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
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
    CAUGHT.load(Ordering::Relaxed)
}

extern "C" fn take_down(_: i32) {
    CAUGHT.store(true, Ordering::Relaxed);
}
