//! Pages known to be written by every clone of a template: they are there before there is a clone.

use super::{Machine, MachineError};
use crate::memory::RamError;
use flashfork_proto::{shape::Pages, shell::Run};

impl Machine {
	/// The pages that a clone has written; nothing where they are more than a shell has there before, or can't be told
	/// quickly.
	pub fn written(&self) -> Result<Vec<Run>, MachineError> {
		match &self.watch {
			Some(watch) if watch.scans() && self.shape.pages == Pages::Small && self.origin.is_some() => {
				Ok(self.ram.written(watch)?)
			}
			_ => Ok(Vec::new()),
		}
	}

	/// Has the pages `runs` there as this machine's own, with what the template has in them: for a machine that is
	/// [primed](Self::prime), whose guest has no fault of this process then where it writes them.
	pub fn populate(&self, runs: &[Run]) -> Result<(), MachineError> {
		match self.shape.pages {
			Pages::Small => Ok(self.ram.populate(runs)?),
			Pages::Huge => Err(RamError::Runs.into()),
		}
	}
}
