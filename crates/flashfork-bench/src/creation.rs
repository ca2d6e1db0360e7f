//! `bench creation`: every way to make a process (and a thread, as the floor) beside the others, by the parent's memory.
//!
//! What chapter 28.3 of "The Linux Programming Interface" (M. Kerrisk, 2010) tabulates, with the parent's memory really
//! touched, the phases apart, and the engines of this project in the same run. All ways of one size are visited in random
//! order ([`crate::sampling`]); ways that prepare the parent differently (huge pages, sealed, on demand, with threads) live in
//! workers of their own. Every child's status is checked; rates are computed from the times.

mod cycle;
mod extras;
mod make;
mod options;
mod report;
mod rounds;
mod subject;
mod way;

pub use options::{CreationOptions, Touch};
pub(crate) use subject::{Ask, CreationSubject, Spec};
pub use way::{Phase, Then, Way};

use crate::{BenchError, Outcome, Progress, experiment};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "creation";

/// Runs the experiment: waits for the machine-wide lock, refuses sizes that don't fit before allocating anything, measures.
pub fn run(options: &CreationOptions, progress: &mut dyn Progress) -> Result<Outcome, BenchError> {
    let measure = |results: &mut _, progress: &mut dyn Progress| rounds::measure(options, results, progress);
    experiment::run(EXPERIMENT, progress, measure, |document| report::render_all(document, options))
}
