//! A restore and a first run for nothing, ahead of time: what the kernel and this process do only once is done then.

use super::{RunError, Vcpu, VcpuState, VcpuStateError};
use crate::{boot::Entry, devices::Devices};

impl Vcpu {
	/// A state for [`Self::rehearse`]: this vCPU, fresh, about to run from `entry`.
	pub(crate) fn rehearsal(&mut self, entry: &Entry) -> Result<VcpuState, VcpuStateError> {
		let mut state = self.save()?;
		state.regs = entry.regs;
		(entry.sregs)(&mut state.sregs);
		Ok(state)
	}

	/// Restores `state`, runs it to its first exit and becomes what the vCPU was before. The TSC stays out of it: it
	/// would be out of step with its siblings', and a guest that is booted would find it unstable.
	pub(crate) fn rehearse(&mut self, state: &VcpuState, devices: &Devices) -> Result<(), RehearsalError> {
		let before = self.save()?;
		self.restore_to_run(state, None)?;
		self.step(devices)?;
		self.finish_io(devices)?;
		self.restore(&before, None)?;
		Ok(self.note_fresh()?)
	}
}

/// Why a rehearsal failed; a claim would have, too.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
	/// Saving or restoring.
	#[error(transparent)]
	State(#[from] VcpuStateError),
	/// Running.
	#[error(transparent)]
	Run(#[from] RunError),
}
