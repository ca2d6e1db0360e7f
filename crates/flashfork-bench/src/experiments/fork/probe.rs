//! The kinds of clone that are made, and what is read from each.

use crate::prelude::*;

/// What a clone does before it exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::VariantArray)]
pub enum Probe {
	/// Nothing.
	Exit,
	/// Writes one word of a random page.
	FirstWrite,
	/// Reads one word from each of 100 random pages.
	Reads,
	/// Reads 25 and writes 25 random pages in turn.
	Mixed,
}

impl Probe {
	/// How many pages the clone reads and writes.
	pub fn touches(self) -> (usize, usize) {
		match self {
			Self::Exit => (0, 0),
			Self::FirstWrite => (0, 1),
			Self::Reads => (100, 0),
			Self::Mixed => (25, 25),
		}
	}

	/// Whether the clone times its own work.
	pub fn timed_in_child(self) -> bool {
		matches!(self, Self::FirstWrite | Self::Reads)
	}

	/// What this kind of clone is made for.
	pub fn measures(self) -> &'static [Measure] {
		match self {
			Self::Exit => &[Measure::Call, Measure::Cycle],
			Self::FirstWrite => &[Measure::FirstWrite],
			Self::Reads => &[Measure::Reads],
			Self::Mixed => &[Measure::MixedCycle],
		}
	}
}

/// What is measured, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "snake_case")]
pub enum Measure {
	/// The fork call as the parent sees it.
	Call,
	/// Fork, exit at once, reap; as the parent sees it.
	Cycle,
	/// The clone's first write to the memory; timed in the clone.
	FirstWrite,
	/// The clone's first 100 random reads; timed in the clone.
	#[strum(serialize = "reads_100")]
	Reads,
	/// Fork, 25 random reads and 25 random writes in the clone, exit, reap; as the parent sees it.
	#[strum(serialize = "cycle_25r25w")]
	MixedCycle,
}

/// A request for clones of one kind.
#[derive(Clone, Serialize, Deserialize)]
pub struct Batch {
	/// The kind.
	pub probe: Probe,
	/// Stop after this many samples.
	pub samples: usize,
	/// Stop after this long, but not before one sample was taken. Microseconds.
	pub budget: u64,
	/// Begin at this time on the machine's monotonic clock, in nanoseconds; at once when `None`.
	pub start: Option<u64>,
	/// Which pages the clones touch follows from this.
	pub seed: u64,
}

/// The samples of a batch in microseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Samples {
	pub call: Vec<f64>,
	pub cycle: Vec<f64>,
	/// The clones' own times, when they took any.
	pub child: Vec<f64>,
}

impl Samples {
	pub fn of(&self, measure: Measure) -> &[f64] {
		match measure {
			Measure::Call => &self.call,
			Measure::Cycle | Measure::MixedCycle => &self.cycle,
			Measure::FirstWrite | Measure::Reads => &self.child,
		}
	}
}
