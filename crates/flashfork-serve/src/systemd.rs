//! The server as a service of systemd: the socket that it was started with, and what systemd is told of it. Without
//! systemd nothing is.

use flashfork_terminal::CliError;
use sd_notify::NotifyState;
use std::{
	net::{SocketAddr, TcpListener},
	os::fd::{FromRawFd, OwnedFd},
};

/// The socket that systemd has opened for this process (`sd_listen_fds(3)`), if it has, which must be the one that was
/// asked for.
///
/// # Safety
/// Nobody else has taken the descriptors, and nobody asks again.
pub unsafe fn opened(address: SocketAddr) -> Result<Option<TcpListener>, CliError> {
	let failed = |why: &dyn std::fmt::Display| CliError::Unable(format!("can't serve at systemd's socket: {why}"));
	let mut all = sd_notify::listen_fds().map_err(|e| failed(&e))?;
	let Some(fd) = all.next() else { return Ok(None) };
	if all.next().is_some() {
		return Err(failed(&"there is more than one"));
	}
	// SAFETY: it was opened for this process, and nobody else has taken it.
	let listener = TcpListener::from(unsafe { OwnedFd::from_raw_fd(fd) });
	match listener.local_addr() {
		Ok(there) if there == address => {}
		Ok(there) => return Err(failed(&format!("it is at {there}, and --listen says {address}"))),
		Err(e) => return Err(failed(&e)),
	}
	listener.set_nonblocking(true).map_err(|e| failed(&e))?;
	Ok(Some(listener))
}

/// Tells systemd that the server answers, and from then on that it still does (`WatchdogSec=`).
pub fn ready() -> Result<(), CliError> {
	let told = |what| sd_notify::notify(&[what]).map_err(|e| CliError::Unable(format!("can't tell systemd: {e}")));
	if let Some(limit) = sd_notify::watchdog_enabled() {
		tokio::spawn(async move {
			let mut beat = tokio::time::interval(limit / 2);
			loop {
				beat.tick().await;
				// Should it not be heard, systemd ends the server.
				let _ = told(NotifyState::Watchdog);
			}
		});
	}
	told(NotifyState::Ready)
}
