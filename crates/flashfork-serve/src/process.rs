//! A process that takes calls: a clone of a warmed one, with all that it starts.

use crate::{groups::Group, locked, runtime::Served, usage};
use flashfork_templates::Clone;
use rustix::process::{Signal, pidfd_send_signal};
use std::{
	io::{Error, Result},
	os::{
		fd::{AsFd, OwnedFd},
		unix::process::ExitStatusExt,
	},
	process::ExitStatus,
	sync::{Arc, Mutex},
	time::{Duration, Instant},
};
use tokio::{
	io::unix::AsyncFd,
	runtime::Handle,
	sync::OwnedSemaphorePermit,
	time::{sleep, timeout},
};
use tracing::warn;

/// How often it is looked at whether all of one has ended.
const LOOK: Duration = Duration::from_millis(1);
/// How long at most: of what was killed only what the kernel waits for is there longer. So long, too, its template may
/// take to heed that it is to be killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Dropped, it is killed with all that it has started.
pub struct Running {
	pub known: usage::Process,
	/// `None` when it is dropped.
	life: Option<Life>,
	/// What is free when all of it has ended.
	pub held: Option<Arc<OwnedSemaphorePermit>>,
	/// Its connections, if it has some when it is dropped: without them it would go on to end by itself.
	pub served: Mutex<Option<Served>>,
}

struct Life {
	process: Clone,
	/// Tells of its end.
	fd: AsyncFd<OwnedFd>,
	/// With which its template ends, and all clones of that.
	warden: Arc<OwnedFd>,
	/// Goes when all in it has ended.
	group: Option<Group>,
}

impl Running {
	/// `warden`: its template's.
	pub fn new(process: Clone, known: usage::Process, warden: Arc<OwnedFd>, group: Option<Group>) -> Result<Running> {
		let fd = process.as_fd().try_clone_to_owned()?;
		// SAFETY: the descriptor is open until it is dropped, after it was taken from the loop.
		let fd = unsafe { AsyncFd::register(fd) }.map_err(Error::from)?;
		Ok(Running { known, life: Some(Life { process, fd, warden, group }), held: None, served: Mutex::default() })
	}

	/// Returns when it has ended: how.
	pub async fn ended(&self) -> String {
		match &self.life {
			Some(life) => life.ended().await,
			None => how(ExitStatusExt::from_raw(libc::SIGKILL)),
		}
	}

	pub fn runs(&self) -> bool {
		self.life.as_ref().is_some_and(|life| matches!(life.process.try_wait(), Ok(None)))
	}
}

impl Drop for Running {
	fn drop(&mut self) {
		// With the server all ends.
		if let (Some(life), Ok(runtime)) = (self.life.take(), Handle::try_current()) {
			let held = (self.held.take(), locked(&self.served).take());
			let _ = life.process.kill();
			runtime.spawn(async move {
				life.end().await;
				drop(held);
			});
		}
	}
}

impl Life {
	async fn ended(&self) -> String {
		loop {
			match (self.fd.readable().await, self.process.try_wait()) {
				(Err(e), _) => return e.to_string(),
				(Ok(mut ready), Ok(None)) => ready.clear_ready(),
				(_, Ok(Some(status))) => return how(status),
				(_, Err(_)) => return how(ExitStatusExt::from_raw(libc::SIGKILL)),
			}
		}
	}

	/// Returns when what is killed has ended: where it has a group, all that it has started, too, which has memory
	/// until then.
	async fn end(self) {
		if timeout(PATIENCE, self.ended()).await.is_err() {
			// What a function does when it is forked runs in its template, which may stand still so.
			warn!("a template that heeds nothing is ended, with all its clones");
			let _ = pidfd_send_signal(&self.warden, Signal::KILL);
			// Others may hold the connection that would tell of its end.
			let _ = timeout(PATIENCE, self.ended()).await;
		}
		let since = Instant::now();
		while self.group.as_ref().is_some_and(Group::is_populated) && since.elapsed() < PATIENCE {
			sleep(LOOK).await;
		}
	}
}

fn how(status: ExitStatus) -> String {
	match status.signal() {
		Some(signal) => format!("signal: {signal}"),
		None => format!("exit status {}", status.code().unwrap_or_default()),
	}
}
