//! One clone that is being forked while it runs.

use super::{
	super::{error::DaemonError, fork::check, templates},
	ALIVE, LOOK, Life, Running, Unanswered, failure_of, lock,
};
use crate::pool::ShellFailure;
use flashfork_proto::shell::{Ended, FromShell, Pause, ToShell};
use std::{
	cell::Cell,
	os::fd::{AsFd, OwnedFd},
	sync::{Arc, MutexGuard, PoisonError, Weak},
	time::{Duration, Instant},
};

/// What its shell may have for forks, beside its guest's memory.
#[derive(Debug, Default)]
pub(super) struct Promised {
	/// Never less than before: what was given back may not be free yet.
	pub(super) bytes: u64,
	/// What forks have copied, for which the shell is charged while somebody has it.
	copied: Vec<Weak<OwnedFd>>,
}

/// Where a shell copies what its guest has written.
pub(in super::super) struct Delta {
	pub(in super::super) file: Arc<OwnedFd>,
	/// Bytes that it may take.
	pub(in super::super) room: u64,
}

impl Running {
	/// What it has copied for forks under an earlier daemon counts on.
	pub(in super::super) fn has_copied(&self, files: impl Iterator<Item = Weak<OwnedFd>>) {
		lock(&self.asking).copied.extend(files);
	}

	/// Only one is forked at a time: gives what forks it, unless it has ended. `itself`: it has given the signal for
	/// that, and waits.
	pub(in super::super) fn begin_fork(self: &Arc<Self>, itself: bool) -> Result<Forking<'_>, DaemonError> {
		let alone = lock(&self.asking);
		let mut life = self.lock();
		if life.ended.is_some() {
			return Err(self.over());
		}
		if std::mem::replace(&mut life.forks_itself, false) != itself {
			let why = if itself { "was rolled back before it could be forked" } else { "forks itself: try again" };
			life.forks_itself = !itself;
			return Err(DaemonError::Conflict(format!("clone {} {why}", self.name)));
		}
		(life.forking, life.at_fork) = (true, false);
		Ok(Forking { clone: self, promised: alone, done: Cell::new(false) })
	}
}

/// A clone that is being forked while it runs. Dropping it lets the clone go on as if nothing had been, unless that was
/// done.
pub(in super::super) struct Forking<'a> {
	clone: &'a Arc<Running>,
	pub(super) promised: MutexGuard<'a, Promised>,
	done: Cell<bool>,
}

impl Forking<'_> {
	/// Lets its shell copy as much as `deltas` have room for, beside what its guest may write to its disk, and what was
	/// copied before and is still there.
	pub(in super::super) fn promise(&mut self, disk: u64, deltas: &[Delta]) -> Result<(), DaemonError> {
		let Promised { bytes, copied } = &mut *self.promised;
		copied.retain(|file| file.strong_count() > 0);
		let before: u64 = copied.iter().filter_map(Weak::upgrade).map(templates::bytes).sum();
		let room = deltas.iter().fold(before, |sum, delta| sum.saturating_add(delta.room));
		*bytes = disk.saturating_add(room).max(*bytes);
		copied.extend(deltas.iter().map(|delta| Arc::downgrade(&delta.file)));
		let Some(cgroup) = self.clone.footprint.cgroup.as_ref().and_then(Weak::upgrade) else { return Ok(()) };
		cgroup.promise(*bytes).map_err(|e| ShellFailure::Cgroup(e).into())
	}

	/// Has what the guest has written copied into `deltas`, while it runs, and waits until nearly all is. A shell that
	/// copies more than that can be ends.
	pub(in super::super) fn copy(&self, deltas: &[Delta], patience: Duration) -> Result<(), DaemonError> {
		let files: Vec<_> = deltas.iter().map(|delta| delta.file.as_fd()).collect();
		match self.clone.answer_if(&ToShell::Copy, &files, patience, || check(deltas)) {
			Ok(FromShell::Copied) => Ok(()),
			other => Err(self.failed(other)),
		}
	}

	/// What an answer that is none to what was asked is to who asks for a fork: the guest may just have ended.
	fn failed(&self, answer: Result<FromShell, Unanswered>) -> DaemonError {
		let ended = self.clone.lock().ended.as_ref().map(ToString::to_string);
		match (answer, ended) {
			(Err(Unanswered::Unasked(error)), _) => error,
			(Err(_), Some(ended)) => self.clone.failed(&ended),
			(other, _) => failure_of(other).into(),
		}
	}

	/// Waits until the guest gives the fork signal; `gave_up` says why it won't.
	pub(in super::super) fn wait_for_signal(
		&self,
		deltas: &[Delta],
		mut gave_up: impl FnMut() -> Option<String>,
	) -> Result<(), DaemonError> {
		let deadline = Instant::now() + ALIVE;
		loop {
			let waits = |life: &mut Life| life.ended.is_none() && !life.at_fork;
			let (life, _) = self
				.clone
				.changed
				.wait_timeout_while(self.clone.lock(), LOOK, waits)
				.unwrap_or_else(PoisonError::into_inner);
			match &life.ended {
				Some(ended) => return Err(self.clone.failed(&ended.to_string())),
				None if life.at_fork => return Ok(()),
				None => drop(life),
			}
			self.watch(deltas)?;
			if let Some(why) = gave_up() {
				return Err(self.clone.failed(&why));
			}
			if Instant::now() >= deadline {
				return Err(self.clone.failed(&format!("did not give the fork signal within {} s", ALIVE.as_secs())));
			}
		}
	}

	/// Ends a shell that has copied more than that can be: it may go on until what it copies into is sealed.
	pub(in super::super) fn watch(&self, deltas: &[Delta]) -> Result<(), DaemonError> {
		check(deltas).inspect_err(|why| self.clone.end(Ended::Failed(why.to_string())))?;
		Ok(())
	}

	/// Stops the guest for a moment, `at_signal` only if it stands at a fork signal. Gives its state, and how long that
	/// took.
	pub(in super::super) fn branch(
		&self,
		at_signal: bool,
		deltas: &[Delta],
		patience: Duration,
	) -> Result<(Vec<u8>, Pause), DaemonError> {
		match self.clone.answer_if(&ToShell::Branch { at_signal }, &[], patience, || check(deltas)) {
			Ok(FromShell::Branched { state, pause }) => {
				self.done.set(true);
				Ok((state, pause))
			}
			other => Err(self.failed(other)),
		}
	}
}

impl Drop for Forking<'_> {
	fn drop(&mut self) {
		let again = {
			let mut life = self.clone.lock();
			life.forking = false;
			std::mem::take(&mut life.at_fork)
		};
		match (self.done.get(), again) {
			(false, _) => self.clone.send_surely(&ToShell::Abandon),
			// It has given another signal since.
			(true, true) => self.clone.note_fork_signal(),
			(true, false) => {}
		}
	}
}
