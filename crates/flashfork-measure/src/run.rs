//! The run of an experiment: what it works with, and what it has found so far.

use serde_json::Value;

use crate::{
	BenchError, Deadline, Outcome, Progress, Result,
	experiment::Places,
	host::HostCard,
	record::{self, Document, Missing, Record, Values},
	sampling::{Effort, Sampled, Visit, sample},
	stats::Rounds,
};

/// What is left out for want of time says so.
pub const NO_TIME: &str = "time was up before it began";
/// So does what an interrupted run did not come to.
pub(crate) const INTERRUPTED: &str = "the run was interrupted";

/// A run of an experiment.
pub struct Run<'a> {
	experiment: &'static str,
	/// Where the parts of flashfork are.
	pub here: &'a dyn Places,
	/// Who hears how far it is, and says when it should end.
	pub progress: &'a mut dyn Progress,
	/// What was measured.
	pub records: Vec<Record>,
	/// What could not be, and why.
	pub missing: Vec<Missing>,
}

/// What samples are of.
#[derive(Debug, Clone)]
pub struct Row {
	method: String,
	unit: &'static str,
	chosen: Values,
	observed: Values,
}

/// What [`Run::sample`] took.
#[must_use = "what was taken is to be kept"]
pub struct Taken<M> {
	sampled: Sampled<M>,
	done: Result,
}

impl<'a> Run<'a> {
	/// Nothing is found yet.
	pub fn new(experiment: &'static str, here: &'a dyn Places, progress: &'a mut dyn Progress) -> Self {
		Self { experiment, here, progress, records: Vec::new(), missing: Vec::new() }
	}

	/// [`Progress::begin`].
	pub fn begin(&mut self, what: &str, steps: u64) {
		self.progress.begin(what, steps);
	}

	/// [`Progress::step`].
	pub fn step(&mut self) {
		self.progress.step();
	}

	/// [`Progress::interrupted`].
	pub fn interrupted(&self) -> bool {
		self.progress.interrupted()
	}

	/// Fails when the user wants to stop. What was kept before is the outcome then.
	pub fn go_on(&self) -> Result {
		if self.interrupted() { Err(BenchError::Interrupted) } else { Ok(()) }
	}

	/// [`Progress::deadline`].
	pub fn deadline(&self) -> Deadline {
		self.progress.deadline()
	}

	/// [`Progress::over`].
	pub fn over(&self, made: usize) -> bool {
		self.progress.over(made)
	}

	/// So many rounds at most, while there is time and nobody wants to stop. An error ends them, and is handed on for
	/// when what was found before is kept.
	pub fn rounds(&mut self, most: u32, mut round: impl FnMut(&mut Self, usize) -> Result) -> Result {
		for made in 0..most as usize {
			if self.over(made) {
				break;
			}
			round(self, made)?;
			self.step();
		}
		Ok(())
	}

	/// Takes down that a cell can't be measured, and tells the user now.
	pub fn leave_out(&mut self, cell: impl Into<String>, reason: impl Into<String>) {
		let (cell, reason) = (cell.into(), reason.into());
		self.progress.note(&format!("left out: {cell}: {reason}"));
		self.missing.push(Missing { experiment: self.experiment.to_owned(), cell, reason });
	}

	/// Whether there is no time left for a cell, which is left out then.
	pub fn no_time_for(&mut self, cell: impl Into<String>) -> bool {
		let passed = self.deadline().passed();
		if passed {
			self.leave_out(cell, NO_TIME);
		}
		passed
	}

	/// A stage of [`sample`] within [`Progress::deadline`]; `what` names it.
	pub fn sample<M: Copy + PartialEq>(
		&mut self,
		what: &str,
		effort: Effort,
		cells: usize,
		seed: u64,
		visit: impl FnMut(usize, usize) -> Result<Visit<M>>,
	) -> Taken<M> {
		let effort = effort.until(self.deadline());
		self.begin(what, effort.steps());
		let (sampled, done) = sample(cells, &effort, seed, self.progress, visit);
		Taken { sampled, done }
	}

	/// Keeps samples, unless there are none.
	pub fn keep(&mut self, row: Row, samples: Vec<f64>) -> Result {
		if !samples.is_empty() {
			self.records.push(row.record(self.experiment, samples)?);
		}
		Ok(())
	}

	/// The same of samples by rounds.
	pub fn keep_rounds(&mut self, row: Row, rounds: &Rounds) -> Result {
		if rounds.flat().is_empty() {
			return Ok(());
		}
		let record = row.record(self.experiment, rounds.flat())?;
		self.records.push(record.in_rounds(rounds));
		Ok(())
	}

	/// What the experiment hands back. When `measured` is an error, what was measured before is kept beside it, unless
	/// the error says that figures can't be believed, or there are none.
	pub(crate) fn conclude(
		mut self,
		host: HostCard,
		measured: Result,
		table: impl FnOnce(&Document) -> String,
	) -> Result<Outcome> {
		let interrupted = self.interrupted();
		let why = match measured {
			Err(error) if error.voids() => return Err(error),
			// An outcome without a figure would replace the records of an earlier run.
			_ if interrupted && self.records.is_empty() => return Err(BenchError::Interrupted),
			Err(BenchError::Interrupted) => None,
			Err(error) if self.records.is_empty() => return Err(error),
			other => other.err(),
		};
		let reason = why.as_ref().map(ToString::to_string).or_else(|| interrupted.then(|| INTERRUPTED.to_owned()));
		if let Some(reason) = reason {
			let experiment = self.experiment.to_owned();
			self.missing.push(Missing { experiment, cell: "the rest".to_owned(), reason });
		}
		let document = Document { missing: self.missing, ..Document::new(host, self.records) };
		let outcome = Outcome { table: table(&document), document };
		match why {
			None => Ok(outcome),
			Some(why) => Err(BenchError::Unfinished { outcome: Box::new(outcome), why: Box::new(why) }),
		}
	}
}

impl Row {
	/// Samples of `method` in `unit`. `chosen`, a JSON object, tells them from all others of the experiment.
	pub fn of(method: impl Into<String>, unit: &'static str, chosen: Value) -> Self {
		Self { method: method.into(), unit, chosen: members(chosen), observed: Values::new() }
	}

	/// With one more value that was chosen.
	pub fn chosen(mut self, name: &str, value: impl Into<Value>) -> Self {
		self.chosen.insert(name.to_owned(), value.into());
		self
	}

	/// With what was observed beside the samples, a JSON object.
	pub fn beside(mut self, observed: Value) -> Self {
		self.observed.append(&mut members(observed));
		self
	}

	/// The record of these samples.
	pub fn record(self, experiment: &str, samples: Vec<f64>) -> Result<Record> {
		let mut record = Record::new(experiment, &self.method, [], self.unit, samples)?;
		(record.chosen, record.observed) = (self.chosen, self.observed);
		Ok(record)
	}
}

fn members(object: Value) -> Values {
	match object {
		Value::Object(members) => members.into_iter().collect(),
		other => unreachable!("{other} is no object"),
	}
}

impl<M: Copy> Taken<M> {
	/// Keeps what was taken of each cell, as `row` describes it by the cell's number and the measure. Then hands on why
	/// sampling ended early, if it did.
	pub fn keep(self, run: &mut Run, row: impl Fn(usize, M) -> Row) -> Result {
		for (cell, taken) in self.sampled.cells.iter().enumerate() {
			for series in taken.iter().filter(|series| !series.rounds.flat().is_empty()) {
				let record = row(cell, series.measure).record(run.experiment, series.rounds.flat())?;
				run.records.push(record::of_series(record, series, self.sampled.ended));
			}
		}
		self.done
	}
}
