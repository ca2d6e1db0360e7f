//! What every experiment does in the same way: it runs alone on the machine, collects records and what it had to leave
//! out, keeps what it has when something fails in the middle, and ends its tables with what to beware of.

use std::path::PathBuf;

use crate::{
	Outcome, Progress, Result, host::HostCard, lock::MachineLock, record::Document, run::Run, warnings,
	worker::Registered,
};
use clap::{ArgMatches, Command};

/// An experiment. The type that implements it is that of its options, with what `clap` needs to parse them.
pub trait Experiment: clap::Args {
	/// The name, in records and on the command line.
	const NAME: &'static str;
	/// What it finds out, in one line of help.
	const ABOUT: &'static str;
	/// The subjects of its workers.
	const WORKERS: &'static [Registered] = &[];
	/// The page for people, drawn from the records alone, so that those of a file make the same page.
	const PAGE: fn(&Document) -> String;

	/// Measures into `run`. An error in the middle, or an interruption, loses nothing kept there before.
	///
	/// It stays within [`Progress::deadline`] and looks at [`Progress::interrupted`] at each step, or uses
	/// [`Run::sample`], which does both.
	fn measure(&self, run: &mut Run) -> Result;

	/// The figure of its records, as SVG; `None` where it has no figure, or `document` no records of it.
	fn figure(_document: &Document) -> Option<Result<String>> {
		None
	}

	/// The options with which it is part of `bench all`, and its weight in the sharing of time: about how many seconds
	/// it takes on two CPUs. `None` when it is no part of it.
	fn in_all(_quick: bool) -> Option<(Self, u64)> {
		None
	}
}

/// Where the parts of flashfork are that an experiment may need. An error says what to do.
pub trait Places {
	/// The command `flashfork`.
	fn command(&self) -> Result<PathBuf>;
	/// The shim, `libflashfork_preload.so`.
	fn shim(&self) -> Result<PathBuf>;
	/// `flashfork-shell`, which virtual machines run in.
	fn shell(&self) -> Result<PathBuf>;
	/// The guest agent, a static program; it need not be there.
	fn agent(&self) -> Result<PathBuf>;
	/// A directory of this name for what can be made or downloaded again; it need not be there.
	fn cache(&self, name: &str) -> Result<PathBuf>;
}

/// Nothing of flashfork is there: for experiments that need none of it.
#[derive(Debug)]
pub struct Nowhere;

impl Places for Nowhere {
	fn command(&self) -> Result<PathBuf> {
		Err(crate::unable!("nothing is installed"))
	}
	fn shim(&self) -> Result<PathBuf> {
		self.command()
	}
	fn shell(&self) -> Result<PathBuf> {
		self.command()
	}
	fn agent(&self) -> Result<PathBuf> {
		self.command()
	}
	fn cache(&self, _name: &str) -> Result<PathBuf> {
		self.command()
	}
}

/// Runs an experiment: waits for the machine-wide lock, reads the host card, measures, renders the page.
pub fn run<E: Experiment>(experiment: &E, here: &dyn Places, progress: &mut dyn Progress) -> Result<Outcome> {
	let _lock = MachineLock::acquire(progress)?;
	let host = HostCard::read()?;
	let mut run = Run::new(E::NAME, here, progress);
	let measured = experiment.measure(&mut run);
	run.conclude(host, measured, E::PAGE)
}

/// A run with options that are decided.
pub type Start = Box<dyn Fn(&dyn Places, &mut dyn Progress) -> Result<Outcome>>;

/// An [`Experiment`], its options' type forgotten.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
	/// The name, in records and on the command line.
	pub name: &'static str,
	/// What it finds out, in one line of help.
	pub about: &'static str,
	/// The subjects of its workers.
	pub workers: &'static [Registered],
	arguments: fn(Command) -> Command,
	parse: fn(&ArgMatches) -> Result<Start, clap::Error>,
	in_all: fn(bool) -> Option<(Start, u64)>,
	page: fn(&Document) -> String,
	figure: fn(&Document) -> Option<Result<String>>,
}

impl Entry {
	/// The entry of an experiment.
	pub const fn of<E: Experiment + 'static>() -> Self {
		Self {
			name: E::NAME,
			about: E::ABOUT,
			workers: E::WORKERS,
			arguments: E::augment_args,
			parse: |matches| Ok(start_of(E::from_arg_matches(matches)?)),
			in_all: |quick| E::in_all(quick).map(|(options, seconds)| (start_of(options), seconds)),
			page: E::PAGE,
			figure: E::figure,
		}
	}

	/// Its command: name, help and options.
	pub fn command(&self) -> Command {
		(self.arguments)(Command::new(self.name)).about(self.about).long_about(None)
	}

	/// The run that `matches` of its command asks for.
	pub fn parse(&self, matches: &ArgMatches) -> Result<Start, clap::Error> {
		(self.parse)(matches)
	}

	/// The run that is part of `bench all`, and its weight in time, in seconds.
	pub fn in_all(&self, quick: bool) -> Option<(Start, u64)> {
		(self.in_all)(quick)
	}

	/// The page of `document`, of which the records and what is missing of this experiment are taken.
	pub fn page(&self, document: &Document) -> String {
		let mut own = document.clone();
		own.records.retain(|record| record.experiment == self.name);
		own.missing.retain(|missing| missing.experiment == self.name);
		(self.page)(&own)
	}

	/// The figure of `document`, if it has one and there are records of it.
	pub fn figure(&self, document: &Document) -> Option<Result<String>> {
		(self.figure)(document)
	}
}

fn start_of<E: Experiment + 'static>(experiment: E) -> Start {
	Box::new(move |here, progress| run(&experiment, here, progress))
}

/// A page for people: the host, the `parts` that aren't empty, what to beware of, what was left out.
pub fn page(document: &Document, parts: impl IntoIterator<Item = String>) -> String {
	let mut lines = vec![document.host.line()];
	lines.extend(parts);
	lines.extend(warnings::of_host(&document.host));
	lines.extend(warnings::of_records(&document.records));
	lines.extend(document.missing.iter().map(|missing| format!("left out: {}: {}", missing.cell, missing.reason)));
	lines.retain(|line| !line.is_empty());
	lines.join("\n\n")
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::{
		BenchError,
		run::{INTERRUPTED, Row},
	};
	use serde_json::json;

	fn measured(records: usize, error: Option<BenchError>) -> Result<Outcome> {
		ended(records, error, false)
	}

	struct Stopped(bool);

	impl Progress for Stopped {
		fn interrupted(&self) -> bool {
			self.0
		}
	}

	fn ended(records: usize, error: Option<BenchError>, interrupted: bool) -> Result<Outcome> {
		let mut progress = Stopped(interrupted);
		let mut run = Run::new("fork", &Nowhere, &mut progress);
		for size in 0..records {
			run.keep(Row::of("seal", "us", json!({ "size": size })), vec![1.0]).unwrap();
		}
		run.conclude(HostCard::read().unwrap(), error.map_or(Ok(()), Err), |document| page(document, []))
	}

	fn died() -> Option<BenchError> {
		Some(BenchError::WorkerDied { worker: "seal 1G".into(), status: "signal 9".into(), stderr: String::new() })
	}

	#[test]
	fn what_was_measured_before_a_failure_is_kept_with_its_reason() {
		let BenchError::Unfinished { outcome, why } = measured(2, died()).unwrap_err() else { panic!("all is lost") };
		assert_eq!((outcome.document.records.len(), outcome.document.missing.len()), (2, 1));
		assert!(outcome.document.missing[0].reason.contains("signal 9") && why.to_string().contains("signal 9"));
		assert!(outcome.table.contains("left out: the rest: worker seal 1G ended early"), "{}", outcome.table);
		assert!(measured(1, None).unwrap().document.missing.is_empty());
	}

	#[test]
	fn nothing_is_kept_of_a_run_that_is_void_or_empty() {
		assert!(matches!(measured(0, died()), Err(BenchError::WorkerDied { .. })));
		let wrong = || Some(BenchError::Void("a child's write reached its parent".into()));
		assert!(matches!(measured(3, wrong()), Err(BenchError::Void(_))));
		let told = BenchError::Worker { worker: "seal".into(), text: "wrong bytes".into(), void: true };
		assert!(matches!(measured(3, Some(told)), Err(BenchError::Worker { .. })));
	}

	#[test]
	fn an_interrupted_run_without_a_figure_is_no_outcome() {
		let error = ended(0, None, true).unwrap_err();
		assert_eq!(error.to_string(), "interrupted before anything was measured");
		for stopped in [None, Some(BenchError::Interrupted)] {
			let part = ended(2, stopped, true).unwrap().document;
			assert_eq!((part.records.len(), part.missing[0].reason.as_str()), (2, INTERRUPTED));
		}
		assert!(
			ended(0, None, false).unwrap().document.records.is_empty(),
			"what can't be measured here isn't an interrupt"
		);
	}
}
