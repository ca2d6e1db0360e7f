//! What every experiment does in the same way: it runs alone on the machine, collects records and what it had to leave
//! out, keeps what it has when something fails in the middle, and ends its tables with what to beware of.

use std::path::PathBuf;

use clap::{ArgMatches, Command};
use serde_json::Value;

use crate::host::HostCard;
use crate::lock::MachineLock;
use crate::record::{self, Document, Missing, Record};
use crate::sampling::{Ended, Series};
use crate::worker::Registered;
use crate::{BenchError, Outcome, Progress, warnings};

/// An experiment. The type that implements it is that of its options, with what `clap` needs to parse them.
pub trait Experiment: clap::Args {
    /// The name, in records and on the command line.
    const NAME: &'static str;
    /// What it finds out, in one line of help.
    const ABOUT: &'static str;
    /// The subjects of its workers.
    const WORKERS: &'static [Registered] = &[];

    /// Measures into `results`. An error in the middle, or an interruption, loses nothing that was kept there before.
    ///
    /// It stays within [`Progress::deadline`] and looks at [`Progress::interrupted`] at each step, or hands both to
    /// [`crate::sampling::sample`].
    fn measure(&self, here: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError>;

    /// The page for people, drawn from the records alone, so that those of a file make the same page.
    fn page(document: &Document) -> String;

    /// The figure of its records, as SVG; `None` where it has no figure, or `document` no records of it.
    fn figure(_document: &Document) -> Option<Result<String, BenchError>> {
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
    fn command(&self) -> Result<PathBuf, BenchError>;
    /// The shim, `libflashfork_preload.so`.
    fn shim(&self) -> Result<PathBuf, BenchError>;
    /// `flashfork-shell`, which virtual machines run in.
    fn shell(&self) -> Result<PathBuf, BenchError>;
    /// The guest agent, a static program; it need not be there.
    fn agent(&self) -> Result<PathBuf, BenchError>;
    /// A directory of this name for what can be made or downloaded again; it need not be there.
    fn cache(&self, name: &str) -> Result<PathBuf, BenchError>;
}

/// What is left out for want of time says so.
const NO_TIME: &str = "time was up before it began";
/// So does what an interrupted run did not come to.
const INTERRUPTED: &str = "the run was interrupted";

/// What an experiment has found so far.
#[derive(Debug)]
pub struct Results {
    experiment: &'static str,
    /// What was measured.
    pub records: Vec<Record>,
    /// What could not be, and why.
    pub missing: Vec<Missing>,
}

impl Results {
    /// Nothing yet.
    pub fn new(experiment: &'static str) -> Self {
        Self { experiment, records: Vec::new(), missing: Vec::new() }
    }

    /// Takes down that a cell can't be measured, and tells the user now.
    pub fn leave_out(&mut self, cell: impl Into<String>, reason: impl Into<String>, progress: &mut dyn Progress) {
        let (cell, reason) = (cell.into(), reason.into());
        progress.note(&format!("left out: {cell}: {reason}"));
        self.missing.push(Missing { experiment: self.experiment.to_owned(), cell, reason });
    }

    /// The same for every method this host can't, and for what there is no time left for.
    pub fn no_time_for(&mut self, cell: impl Into<String>, progress: &mut dyn Progress) {
        self.leave_out(cell, NO_TIME, progress);
    }

    /// Keeps what [`crate::sampling`] took, unless that is nothing, with what was `chosen` and what was `observed`
    /// beside.
    pub fn keep<'a, M>(
        &mut self,
        method: &str,
        chosen: impl IntoIterator<Item = (&'a str, Value)>,
        observed: impl IntoIterator<Item = (&'a str, Value)>,
        unit: &str,
        series: &Series<M>,
        ended: Ended,
    ) -> Result<(), BenchError> {
        if series.rounds.flat().is_empty() {
            return Ok(());
        }
        let record = record::of_series(self.experiment, method, chosen, unit, series, ended)?;
        self.records.push(record.beside(observed));
        Ok(())
    }

    /// What the experiment hands back. When `measured` is an error, what was measured before is kept beside it, unless
    /// the error says that figures can't be believed, or there are none. `interrupted`: the user wanted to stop.
    fn conclude(
        mut self,
        host: HostCard,
        measured: Result<(), BenchError>,
        interrupted: bool,
        table: impl FnOnce(&Document) -> String,
    ) -> Result<Outcome, BenchError> {
        let why = match measured {
            Err(error) if error.voids() => return Err(error),
            // An outcome without a figure would replace the records of an earlier run.
            _ if interrupted && self.records.is_empty() => return Err(BenchError::Interrupted),
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

/// Runs an experiment: waits for the machine-wide lock, reads the host card, measures, renders the page.
pub fn run<E: Experiment>(
    experiment: &E,
    here: &dyn Places,
    progress: &mut dyn Progress,
) -> Result<Outcome, BenchError> {
    let _lock = MachineLock::acquire(progress)?;
    let host = HostCard::read()?;
    let mut results = Results::new(E::NAME);
    let measured = experiment.measure(here, &mut results, progress);
    results.conclude(host, measured, progress.interrupted(), E::page)
}

/// A run with options that are decided.
pub type Run = Box<dyn Fn(&dyn Places, &mut dyn Progress) -> Result<Outcome, BenchError>>;

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
    parse: fn(&ArgMatches) -> Result<Run, clap::Error>,
    in_all: fn(bool) -> Option<(Run, u64)>,
    page: fn(&Document) -> String,
    figure: fn(&Document) -> Option<Result<String, BenchError>>,
}

impl Entry {
    /// The entry of an experiment.
    pub const fn of<E: Experiment + 'static>() -> Self {
        Self {
            name: E::NAME,
            about: E::ABOUT,
            workers: E::WORKERS,
            arguments: E::augment_args,
            parse: |matches| Ok(run_of(E::from_arg_matches(matches)?)),
            in_all: |quick| E::in_all(quick).map(|(options, seconds)| (run_of(options), seconds)),
            page: E::page,
            figure: E::figure,
        }
    }

    /// Its command: name, help and options.
    pub fn command(&self) -> Command {
        (self.arguments)(Command::new(self.name)).about(self.about).long_about(None)
    }

    /// The run that `matches` of its command asks for.
    pub fn parse(&self, matches: &ArgMatches) -> Result<Run, clap::Error> {
        (self.parse)(matches)
    }

    /// The run that is part of `bench all`, and its weight in time, in seconds.
    pub fn in_all(&self, quick: bool) -> Option<(Run, u64)> {
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
    pub fn figure(&self, document: &Document) -> Option<Result<String, BenchError>> {
        (self.figure)(document)
    }
}

fn run_of<E: Experiment + 'static>(experiment: E) -> Run {
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

    fn measured(records: usize, error: Option<BenchError>) -> Result<Outcome, BenchError> {
        ended(records, error, false)
    }

    fn ended(records: usize, error: Option<BenchError>, interrupted: bool) -> Result<Outcome, BenchError> {
        let mut results = Results::new("fork");
        for size in 0..records {
            results.records.push(Record::new("fork", "seal", [("size", size.into())], "us", vec![1.0]).unwrap());
        }
        results
            .conclude(HostCard::read().unwrap(), error.map_or(Ok(()), Err), interrupted, |document| page(document, []))
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
        let part = ended(2, None, true).unwrap().document;
        assert_eq!((part.records.len(), part.missing[0].reason.as_str()), (2, INTERRUPTED));
        assert!(
            ended(0, None, false).unwrap().document.records.is_empty(),
            "what can't be measured here isn't an interrupt"
        );
    }
}
