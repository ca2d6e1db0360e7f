//! Live forks, as the daemon makes them.

use std::os::fd::{AsFd, OwnedFd};

use flashfork_proto::{
	shape::Shape,
	shell::{FromShell, Pause, ToShell},
};
use flashfork_vmm::{memory::delta, pool::Shell};

use super::{Template, expect, until, vm};
use crate::prelude::*;

/// A live fork as its client saw it.
pub struct Forked {
	/// How long the guest stood still.
	pub pause: Pause,
	/// From before the request until nearly all that the guest had written was copied.
	pub copying: Duration,
	/// A [delta] of what it had written.
	pub delta: OwnedFd,
	state: Vec<u8>,
}

impl Forked {
	/// Forks the clone that runs in `shell`, or stands at its fork signal.
	pub fn of(shell: &Shell, shape: Shape) -> Result<Self> {
		let delta = delta::create("flashfork:bench-fork", shape.memory_bytes()).map_err(vm)?;
		let begun = Instant::now();
		shell.send(&ToShell::Copy, &[delta.as_fd()]).map_err(vm)?;
		until(shell, |message| matches!(message, FromShell::Copied), "be copied")?;
		let copying = begun.elapsed();
		shell.send(&ToShell::Branch { at_signal: false }, &[]).map_err(vm)?;
		let branched =
			|message| if let FromShell::Branched { state, pause } = message { Some((state, pause)) } else { None };
		let (state, pause) = expect(shell, branched, "be forked")?;
		Ok(Self { pause, copying, delta, state })
	}
}

impl Template {
	/// What a clone of it has become by this fork.
	pub fn forked(&self, fork: Forked) -> Result<Self> {
		let ram = self.ram.with(fork.delta, u64::MAX).map_err(vm)?;
		Ok(Self { ram, state: fork.state, disk: self.disk.clone(), written: Vec::new(), ..*self })
	}
}
