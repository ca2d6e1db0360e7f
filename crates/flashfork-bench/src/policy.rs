//! `bench policy`: a parent that writes some of its memory and forks, again and again: plain, sealed, and as `auto` decides.
//!
//! What counts is the whole: writes, forks, clones that end at once, and the seals in between, divided by the number of forks. Each
//! run is a process of its own and begins with nothing sealed, because a policy learns. `auto` is held against the best of the
//! others on the same kind of memory (4 KB pages, or THP), over all forks so far and over the latest ones alone.

mod figure;
mod options;
mod report;
mod rounds;
mod subject;

pub use options::PolicyOptions;
pub(crate) use subject::PolicySubject;

use std::fs::OpenOptions;
use std::io::Write;

use crate::{BenchError, Outcome, Progress, experiment};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "policy";

/// Runs the experiment: waits for the machine-wide lock, refuses sizes that don't fit before allocating anything, measures; draws
/// the figure that was asked for.
pub fn run(options: &PolicyOptions, progress: &mut dyn Progress) -> Result<Outcome, BenchError> {
    let failed = |e| BenchError::system("write the figure", e);
    // Asked for before minutes are spent on what can't be drawn then.
    let file = options.figure.as_ref().map(|path| OpenOptions::new().create(true).append(true).open(path));
    let file = file.transpose().map_err(failed)?;
    let measure = |results: &mut _, progress: &mut dyn Progress| rounds::measure(options, results, progress);
    let outcome = experiment::run(EXPERIMENT, progress, measure, report::render_all)?;
    if let Some(mut file) = file {
        let svg = figure::draw(&report::cells(&outcome.document))?;
        file.set_len(0).and_then(|()| file.write_all(svg.as_bytes())).map_err(failed)?;
    }
    Ok(outcome)
}
