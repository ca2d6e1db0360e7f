//! From a shell to a clone: by one primed for its template if any, else by one of those for everybody.

use super::{disks::Attached, error::DaemonError, templates::Entry};
use crate::pool::{Claims, Pools, Shell, ShellFailure};
use flashfork_proto::{
	Generation,
	shell::{ChannelError, Claim, ClaimTimes, FromShell, Go, Renewal, ToShell},
};
use std::time::{Duration, Instant};

/// How long a shell may take from a claim to its guest's first exit.
const CLAIM: Duration = Duration::from_secs(20);

/// Messages that may come before the claim is done: a console's and a few events'.
const EARLY: usize = 64;

/// A shell whose guest runs.
pub(super) struct Claimed {
	pub(super) shell: Shell,
	pub(super) generation: Generation,
	/// Of the steps.
	pub(super) times: ClaimTimes,
	/// What the shell said before it said that it was claimed: whatever its guest does with its first instructions may
	/// be heard of before the claim is.
	pub(super) early: Vec<FromShell>,
}

/// Makes a shell of `shells` a clone of `entry` with `disks` beside what that has; `renewal` makes it one of its own.
/// No shell that is primed can be given disks.
///
/// What becomes of a shell while it waits costs nobody a clone: if it ends before it reads its claim, another is
/// claimed. Once it has read that its guest may run, under the clone's name and number: then it is the only one.
pub(super) fn claim(
	pools: &Pools,
	entry: &Entry,
	disks: &Attached,
	shells: &mut Claims<'_>,
	renewal: impl FnOnce() -> Result<Renewal, DaemonError>,
	cid: u32,
) -> Result<Claimed, DaemonError> {
	let limit = entry.disk_limit().saturating_add(disks.limit());
	let mut shell = shells.take()?;
	if !shell.is_primed() {
		shell.promise(limit)?;
	}
	let renewal = renewal()?;
	let generation = renewal.identity.generation;
	let deadline = Instant::now() + CLAIM;
	loop {
		let renewal = renewal.clone();
		let told = if shell.is_primed() {
			shell.send(&ToShell::Go(Box::new(Go { renewal, cid })), &[])
		} else {
			let claim = Claim { renewal, cid, origin: entry.origin.clone(), attach: disks.request() };
			let descriptors: Vec<_> = entry.descriptors().into_iter().chain(disks.descriptors()).collect();
			shell.send(&ToShell::Claim(Box::new(claim)), &descriptors)
		};
		match told.and_then(|()| first_exit(&shell)) {
			Ok((times, early)) => return Ok(Claimed { shell, generation, times, early }),
			Err(failure) => {
				pools.bury(shell);
				let unread = matches!(failure, ShellFailure::Channel(ChannelError::Unread));
				if !unread || Instant::now() > deadline {
					return Err(failure.into());
				}
			}
		}
		shell = pools.take(entry.shape())?;
		shell.promise(limit)?;
	}
}

fn first_exit(shell: &Shell) -> Result<(ClaimTimes, Vec<FromShell>), ShellFailure> {
	let deadline = Instant::now() + CLAIM;
	let mut early = Vec::new();
	loop {
		let left = deadline.saturating_duration_since(Instant::now());
		match shell.hear(left).map_err(|failure| failure.after(CLAIM))? {
			FromShell::Claimed(times) => return Ok((times, early)),
			FromShell::Failed(why) => return Err(ShellFailure::Said(why)),
			FromShell::Ended(ended) => return Err(ShellFailure::Said(ended.to_string())),
			// Nobody has asked.
			FromShell::Written(_) => {}
			other if early.len() < EARLY => early.push(other),
			_ => return Err(ShellFailure::Unexpected),
		}
	}
}
