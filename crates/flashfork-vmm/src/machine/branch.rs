//! Live fork: a clone that runs becomes a template for others, and runs on.
//!
//! What it has written is copied while it runs ([`Machine::begin_branch`], [`Machine::step_branch`]). Then it is
//! stopped for a moment, in which what is left is copied and its state saved ([`Machine::branch`]). The pause takes as
//! long as to copy what it wrote since the last round, and to pass over the page tables of what it has touched.

use super::{Machine, MachineError};
use crate::{
	cpu::Exit,
	events::Event,
	memory::{Copying, Watch},
	state::MachineState,
};
use flashfork_proto::{
	agent::CloneIdentity,
	shape::Pages,
	shell::Pause,
	signal::{Forked, Role, Status},
};
use std::{
	os::fd::OwnedFd,
	sync::Arc,
	time::{Duration, Instant, SystemTime},
};

/// A round that copied no more pages than this was short enough: the rest is copied in the pause.
const FEW: usize = 256;

/// Rounds after which a guest that writes faster than it is copied is stopped all the same.
const ROUNDS: usize = 12;

/// A fork under way.
#[derive(Debug)]
pub(super) struct Branching {
	/// Of RAM, then of each disk.
	parts: Vec<Copying>,
	/// The one that this round is at.
	at: usize,
	/// Pages that it has copied of those before.
	copied: usize,
	rounds: usize,
}

/// Where what a guest has written goes: empty [deltas](crate::memory::delta).
#[derive(Debug)]
pub struct Deltas {
	/// For its RAM.
	pub ram: OwnedFd,
	/// For what was written to each of its disks.
	pub disks: Vec<OwnedFd>,
}

impl Machine {
	/// Gives a machine that has not run yet what it needs to be forked while it runs.
	pub fn watch_with(&mut self, watch: Watch) {
		self.watch = Some(watch);
	}

	/// Begins to copy what a clone has written, in steps.
	pub fn begin_branch(&mut self, into: &Deltas) -> Result<(), MachineError> {
		self.end_branch()?;
		if self.shape.pages == Pages::Huge {
			return Err(MachineError::Phase(
				"has memory of 2 MB pages, which can't be forked while it runs: make the template with 4 KB pages",
			));
		}
		if self.origin.is_none() {
			return Err(MachineError::Phase("is no clone yet"));
		}
		let watch =
			self.watch.as_ref().ok_or(MachineError::Phase("can't see what its guest writes: it has no /proc"))?;
		let mut parts = vec![self.ram.copy_writes(watch, &into.ram)?];
		let mut begun = Ok(());
		for (index, file) in into.disks.iter().enumerate() {
			match self.devices.copy_disk_writes(index, watch, file) {
				Ok(disk) => parts.extend(disk),
				Err(e) => begun = Err(e),
			}
		}
		self.branching = Some(Branching { parts, at: 0, copied: 0, rounds: 0 });
		begun.or_else(|e| self.end_branch().and(Err(e.into())))
	}

	/// Copies part of what the guest has written, and gives whether next to nothing is left.
	pub fn step_branch(&mut self) -> Result<bool, MachineError> {
		let (Some(watch), Some(branching)) = (&self.watch, &mut self.branching) else {
			return Err(MachineError::Phase("is not being forked"));
		};
		branching.step(watch).map_err(MachineError::Copy)
	}

	/// Stops the guest, copies what is left, saves its state, and lets it go on. A guest that stands at a fork signal
	/// (`forked`) learns that it is the one that was forked, or that it was refused.
	///
	/// If the guest does something else at that moment it stays stopped, and [`Machine::event`] says what.
	pub fn branch(&mut self, forked: bool) -> Result<(Arc<MachineState>, Pause), MachineError> {
		let done = self.stop_and_save(forked);
		if forked {
			match &done {
				Ok(_) => self.devices.answer(Status::Ok, &going_on()),
				Err(_) => self.devices.answer(Status::Refused, &[]),
			}
		}
		if !self.early.iter().any(is_news) {
			self.resume();
		}
		self.end_branch()?;
		done
	}

	fn stop_and_save(&mut self, forked: bool) -> Result<(Arc<MachineState>, Pause), MachineError> {
		// Much may have been written since the last step.
		while !self.step_branch()? {}
		let begun = Instant::now();
		self.pause()?;
		let stopped = Instant::now();
		if self.early.iter().any(is_news) {
			return Err(MachineError::Phase("ended, or gave a signal, when it was to be forked"));
		}
		let (pages, copied, state) = self.copy_and_save(forked)?;
		let pause = Pause {
			stop: nanoseconds(stopped - begun),
			copy: nanoseconds(copied - stopped),
			save: nanoseconds(copied.elapsed()),
			pages: pages as u64,
			tracked: self.watch.as_ref().is_some_and(Watch::tracks),
		};
		Ok((Arc::new(state), pause))
	}

	fn copy_and_save(&mut self, forked: bool) -> Result<(usize, Instant, MachineState), MachineError> {
		let (Some(watch), Some(branching)) = (&self.watch, &mut self.branching) else {
			return Err(MachineError::Phase("is not being forked"));
		};
		let pages = branching.finish(watch).map_err(MachineError::Copy)?;
		let copied = Instant::now();
		Ok((pages, copied, self.save(forked)?))
	}

	/// Forgets a fork that was begun, if any: nothing is watched any more, nor the copy mapped.
	pub fn end_branch(&mut self) -> Result<(), MachineError> {
		match (&self.watch, self.branching.take()) {
			(Some(watch), Some(Branching { parts, .. })) => {
				let ends: Vec<_> = parts.into_iter().map(|part| part.end(watch)).collect();
				ends.into_iter().collect::<Result<(), _>>().map_err(MachineError::Copy)
			}
			_ => Ok(()),
		}
	}

	/// Whether a fork was begun.
	pub fn is_branching(&self) -> bool {
		self.branching.is_some()
	}
}

impl Branching {
	/// Copies a part; whether it was the last of a round after which little is left.
	fn step(&mut self, watch: &Watch) -> std::io::Result<bool> {
		let Some(pages) = self.parts[self.at].step(watch)? else { return Ok(false) };
		self.copied += pages;
		self.at += 1;
		if self.at < self.parts.len() {
			return Ok(false);
		}
		let few = std::mem::take(&mut self.copied) <= FEW;
		self.at = 0;
		self.rounds += 1;
		Ok(few || self.rounds >= ROUNDS)
	}

	fn finish(&mut self, watch: &Watch) -> std::io::Result<usize> {
		self.parts.iter_mut().try_fold(0, |sum, part| Ok(sum + part.finish(watch)?))
	}
}

/// Whether it is something that the machine can't just go on after.
fn is_news(event: &Event) -> bool {
	matches!(event, Event::Exit { exit, .. } if !matches!(exit, Ok(Exit::Stopped)))
}

/// The answer to the fork signal for the guest that gave it: it has nothing to renew.
fn going_on() -> Vec<u8> {
	let identity = CloneIdentity { name: String::new(), index: 0, generation: [0; 16], job: Vec::new() };
	let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
	Forked { role: Role::Template, identity, realtime_ns: nanoseconds(now), entropy: [0; 32], disks: Vec::new() }
		.encode()
}

fn nanoseconds(time: Duration) -> u64 {
	u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
