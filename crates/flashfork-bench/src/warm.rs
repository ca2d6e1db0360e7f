//! `bench warm`: programs from the shell, started anew and as clones of a warmed template (`flashfork warm`, `flashfork clone`).
//!
//! What is timed is what a shell sees: from starting the command until it has ended and been waited for, and until the first line of its
//! output is there. Before each sample is a pause, in which a template makes its next clone ahead; a row of clones without pauses says
//! what they cost when there is no time for that. `/bin/true` started anew, by posix_spawn, is the floor.

mod command;
mod options;
mod program;
mod report;
mod rounds;
mod templates;

pub use options::WarmOptions;
pub use program::Program;

use std::path::Path;

use crate::{BenchError, Outcome, Progress, experiment};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "warm";

/// Runs the experiment with the command `flashfork`: waits for the machine-wide lock, warms a template of each program that is there, and
/// leaves nothing of them behind.
pub fn run(options: &WarmOptions, flashfork: &Path, progress: &mut dyn Progress) -> Result<Outcome, BenchError> {
    let measure = |results: &mut _, progress: &mut dyn Progress| rounds::measure(options, flashfork, results, progress);
    experiment::run(EXPERIMENT, progress, measure, report::render_all)
}
