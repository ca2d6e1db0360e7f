//! `bench all`: every experiment about process creation, one by one, for the report.
//!
//! The run has so much time, and each experiment its share of what is left: what one doesn't need, the next ones have.
//! An experiment that can't run here, or fails in the middle, is in the report with its reason and with what it
//! measured before; the others go on. A run that is interrupted ends with what it has.

use std::time::Duration;

use crate::{
	BenchError, Progress, Result,
	deadline::Deadline,
	experiment::{Entry, Places, Start},
	lock::MachineLock,
	record::{Document, Missing},
};

/// How long a quick run and a full one may take: four minutes and forty, less what the report and the last children
/// need.
pub const TIME: [Duration; 2] = [Duration::from_secs(220), Duration::from_secs(38 * 60)];
const _: () = assert!(TIME[0].as_secs() < 4 * 60 && TIME[1].as_secs() < 40 * 60);

/// One experiment of the run.
struct Part {
	name: &'static str,
	/// Its weight in the sharing of time: about how many seconds it takes on two CPUs.
	seconds: u64,
	run: Start,
}

/// What a run of all experiments found.
#[derive(Debug, Clone)]
pub struct Whole {
	/// Every record, and what is missing.
	pub document: Document,
	/// Experiments whose figures can't be believed and aren't there, in words: a clone did the wrong thing.
	pub void: Vec<String>,
}

/// Runs everything of `experiments`, with fewer samples and sizes when `quick`.
pub fn run(experiments: &[Entry], quick: bool, here: &dyn Places, progress: &mut dyn Progress) -> Result<Whole> {
	let _lock = MachineLock::acquire(progress)?;
	let whole = run_parts(&parts(experiments, quick), TIME[usize::from(!quick)], here, progress)?;
	// A report without a figure would replace the one of an earlier run.
	let none = whole.document.records.is_empty() && whole.void.is_empty();
	if none && progress.interrupted() { Err(BenchError::Interrupted) } else { Ok(whole) }
}

fn run_parts(parts: &[Part], time: Duration, here: &dyn Places, progress: &mut dyn Progress) -> Result<Whole> {
	let whole = Deadline::after(time);
	let (mut document, mut void) = (Document::here(Vec::new())?, Vec::new());
	let mut said = Vec::new();
	for (number, part) in parts.iter().enumerate() {
		let leave_out = |reason: String, progress: &mut dyn Progress| {
			progress.note(&format!("left out: {}: {reason}", part.name));
			Missing { experiment: part.name.to_owned(), cell: "all".to_owned(), reason }
		};
		if progress.interrupted() {
			document.missing.push(leave_out("the run was interrupted".to_owned(), progress));
			continue;
		}
		let rest: u64 = parts[number..].iter().map(|part| part.seconds).sum();
		let own = whole.part(part.seconds as f64 / rest as f64);
		let before = format!("{}/{} {}", number + 1, parts.len(), part.name);
		let outcome = match (part.run)(here, &mut Stage { inner: progress, before, own, whole, said: &mut said }) {
			Ok(outcome) => outcome,
			Err(BenchError::Unfinished { outcome, why }) => {
				progress.note(&format!("{} ended early: {why}", part.name));
				*outcome
			}
			Err(error) => {
				if error.voids() {
					void.push(format!("{}: {error}", part.name));
				}
				document.missing.push(leave_out(error.to_string(), progress));
				continue;
			}
		};
		document.records.extend(outcome.document.records);
		document.missing.extend(outcome.document.missing);
	}
	Ok(Whole { document, void })
}

/// The experiments that are part of it, the lightest first. The last one, whose parents are largest, has what time the
/// others leave.
fn parts(experiments: &[Entry], quick: bool) -> Vec<Part> {
	let part = |entry: &Entry| {
		let (run, seconds) = entry.in_all(quick)?;
		Some(Part { name: entry.name, seconds, run })
	};
	let mut parts: Vec<Part> = experiments.iter().filter_map(part).collect();
	parts.sort_by_key(|part| part.seconds);
	parts
}

/// Progress of one experiment as part of all.
struct Stage<'a> {
	inner: &'a mut dyn Progress,
	before: String,
	/// By when this experiment should be over, and all of them.
	own: Deadline,
	whole: Deadline,
	/// What the user was told already: several experiments have the same to say about a host.
	said: &'a mut Vec<String>,
}

impl Progress for Stage<'_> {
	fn begin(&mut self, what: &str, steps: u64) {
		self.inner.begin(&format!("{}: {what}", self.before), steps);
		self.inner.remaining(self.whole.left());
	}

	fn step(&mut self) {
		self.inner.step();
		self.inner.remaining(self.whole.left());
	}

	fn note(&mut self, line: &str) {
		if !self.said.iter().any(|said| said == line) {
			self.inner.note(line);
			self.said.push(line.to_owned());
		}
	}

	fn interrupted(&self) -> bool {
		self.inner.interrupted()
	}

	fn deadline(&self) -> Deadline {
		self.own
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::{Outcome, Silent, experiment::Nowhere, record::Record};

	/// Wants to stop before anything is measured.
	struct Stopped;

	impl Progress for Stopped {
		fn interrupted(&self) -> bool {
			true
		}
	}

	#[test]
	fn what_an_interrupted_run_left_out_is_said() {
		let never = || [part("one", |_| panic!("it ran")), part("other", |_| panic!("it ran"))];
		let document = run_parts(&never(), TIME[0], &Nowhere, &mut Stopped).unwrap().document;
		assert!(document.records.is_empty());
		assert_eq!(document.missing.len(), 2);
		assert!(document.missing.iter().all(|missing| missing.reason.contains("interrupted")));
		assert!(matches!(run(&[], true, &Nowhere, &mut Stopped), Err(BenchError::Interrupted)), "nothing is no report");
	}

	fn measured(name: &'static str, deadline: Deadline) -> Outcome {
		let record = Record::new(name, "seal", [], "s", vec![deadline.left().as_secs_f64()]).unwrap();
		Outcome { document: Document::here(vec![record]).unwrap(), table: String::new() }
	}

	fn part(name: &'static str, end: fn(Outcome) -> Result<Outcome>) -> Part {
		Part { name, seconds: 10, run: Box::new(move |_, progress| end(measured(name, progress.deadline()))) }
	}

	fn missing_worker() -> BenchError {
		BenchError::WorkerDied { worker: "seal 1G".into(), status: "signal 9".into(), stderr: String::new() }
	}

	#[test]
	fn one_that_fails_leaves_its_reason_and_what_it_measured_and_the_others_go_on() {
		let parts = [
			part("good", Ok),
			part("dies", |_| Err(missing_worker())),
			part("ends early", |mut outcome| {
				let reason = missing_worker().to_string();
				let missing = Missing { experiment: "ends early".into(), cell: "the rest".into(), reason };
				outcome.document.missing.push(missing);
				Err(BenchError::Unfinished { outcome: Box::new(outcome), why: Box::new(missing_worker()) })
			}),
			part("lies", |_| Err(BenchError::Void("a child's write reached its parent".into()))),
			part("last", Ok),
		];
		let Whole { document, void } = run_parts(&parts, Duration::from_secs(100), &Nowhere, &mut Silent).unwrap();
		let names: Vec<&str> = document.records.iter().map(|record| record.experiment.as_str()).collect();
		assert_eq!(names, ["good", "ends early", "last"]);
		let missing: Vec<(&str, &str)> =
			document.missing.iter().map(|missing| (missing.experiment.as_str(), missing.cell.as_str())).collect();
		assert_eq!(missing, [("dies", "all"), ("ends early", "the rest"), ("lies", "all")]);
		assert!(document.missing.iter().take(2).all(|missing| missing.reason.contains("signal 9")));
		assert_eq!(void, ["lies: a child's write reached its parent; the measurement is void"]);
		// Nobody took any time: each has its share of all there is.
		let shares: Vec<f64> = document.records.iter().map(|record| record.p50.round()).collect();
		assert_eq!(shares, [20.0, 33.0, 100.0]);
	}
}
