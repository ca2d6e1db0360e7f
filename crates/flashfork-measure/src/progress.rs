//! How an experiment tells its caller where it is; the caller decides what to show.

use std::time::Duration;

use crate::deadline::Deadline;

/// Receives an experiment's progress, and says when it should be over. What is left out does nothing.
pub trait Progress {
	/// A new stage of so many steps begins, called so: "1G: interleaved rounds".
	fn begin(&mut self, _what: &str, _steps: u64) {}
	/// One step of the current stage is done.
	fn step(&mut self) {}
	/// Something the user should read now: waiting for the machine-wide lock, a method left out and why.
	fn note(&mut self, _line: &str) {}
	/// Everything, this experiment and those after it, takes about so long from now at most; told at each stage and
	/// step of runs that have such a limit.
	fn remaining(&mut self, _time: Duration) {}
	/// Whether the user wants to stop: what is measured so far is kept and written, the rest left out.
	fn interrupted(&self) -> bool {
		false
	}
	/// By when the experiment should be over. What doesn't fit is left out with that reason.
	fn deadline(&self) -> Deadline {
		Deadline::NEVER
	}
	/// Whether another round should not begin, after `made` rounds: one is made in any case, unless the user wants to
	/// stop.
	fn over(&self, made: usize) -> bool {
		self.interrupted() || (made > 0 && self.deadline().passed())
	}
}

/// Shows nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {}
