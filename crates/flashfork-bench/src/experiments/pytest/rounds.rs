//! All suites in all ways, in turn.

use std::path::PathBuf;

use serde_json::json;

use super::PytestOptions;
use super::client;
use super::run::Runner;
use super::suite::Suite;
use super::way::Way;
use crate::subjects::memory;
use flashfork_measure::experiment::Results;
use flashfork_measure::sampling::sample;
use flashfork_measure::workdir::WorkDir;
use flashfork_measure::{BenchError, Progress};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// From starting pytest until it has ended, in microseconds.
    Whole,
    /// Tests a second, from the end of the first to that of the last.
    Rate,
}

impl Measure {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Rate => "rate",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Whole => "us",
            Self::Rate => "1/s",
        }
    }
}

/// A suite to be run in a way, and what must come of it.
struct Cell {
    suite: Suite,
    way: Way,
    dir: PathBuf,
    tests: u32,
    outcomes: [u32; 3],
}

/// Measures.
pub(super) fn measure(
    options: &PytestOptions,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let work = WorkDir::new(None)?;
    let runner = Runner::new(options, work.path())?;
    if let Some(why) = runner.lacks(Way::Plain) {
        return Err(BenchError::Unable(why));
    }
    let cells = prepare(options, &runner, work.path(), results, progress)?;
    let effort = options.effort().until(progress.deadline());
    progress.begin("suites of tests", effort.steps());
    let (sampled, done) = sample(cells.len(), &effort, 13, progress, |index, _| {
        let cell = &cells[index];
        let (whole, told) = runner.once(cell.way, &cell.dir)?;
        if told.outcomes() != cell.outcomes {
            let (way, suite) = (cell.way.title(), cell.suite.name());
            let (found, wanted) = (told.outcomes(), cell.outcomes);
            let why = format!("{suite} by {way}: passed, failed, skipped are {found:?}, by pytest alone {wanted:?}");
            return Err(BenchError::Void(why));
        }
        let mut visit = vec![(Measure::Whole, vec![whole])];
        visit.extend(told.rate().map(|rate| (Measure::Rate, vec![rate])));
        Ok(visit)
    });
    for (cell, series) in cells.iter().zip(&sampled.cells) {
        for series in series {
            let chosen = [("measure", json!(series.measure.name())), ("suite", json!(cell.suite.name()))];
            let observed =
                [("tests", json!(cell.tests)), ("workers", json!(options.workers)), ("bytes", json!(options.size.0))];
            results.keep(cell.way.name(), chosen, observed, series.measure.unit(), series, sampled.ended)?;
        }
    }
    done
}

/// Writes the suites, and runs each once by pytest alone.
fn prepare(
    options: &PytestOptions,
    runner: &Runner,
    place: &std::path::Path,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<Vec<Cell>, BenchError> {
    let mut cells = Vec::new();
    let suites = options.suites();
    progress.begin("what pytest alone comes to", suites.len() as u64);
    for suite in suites {
        if progress.interrupted() {
            break;
        }
        if suite == Suite::Program {
            client::measure(options, place, results, progress)?;
            continue;
        }
        if suite == Suite::Fixture {
            // Beside the memory, what a seal may hold twice, and the interpreters.
            let needed = options.size.0.saturating_mul(2) + (512 << 20);
            memory::require(&memory::headroom()?, format!("a fixture of {}", options.size), needed)?;
        }
        match suite.write(options, place)? {
            Err(why) => results.leave_out(suite.name(), why, progress),
            Ok(dir) => {
                let (_, told) = runner.once(Way::Plain, &dir)?;
                for way in suite.ways() {
                    match runner.lacks(*way) {
                        Some(why) => results.leave_out(format!("{} by {}", suite.name(), way.title()), why, progress),
                        None => cells.push(Cell {
                            suite,
                            way: *way,
                            dir: dir.clone(),
                            tests: told.tests,
                            outcomes: told.outcomes(),
                        }),
                    }
                }
            }
        }
        progress.step();
    }
    Ok(cells)
}
