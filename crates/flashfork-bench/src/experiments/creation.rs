//! `bench creation`: every way to make a process (and a thread, as the floor) beside the others, by the parent's
//! memory.
//!
//! What chapter 28.3 of "The Linux Programming Interface" (M. Kerrisk, 2010) tabulates, with the parent's memory really
//! touched, the phases apart, and the engines of this project in the same run. All ways of one size are visited in
//! random order ([`flashfork_measure::sampling`]); ways that prepare the parent differently (huge pages, sealed, on
//! demand, with threads) live in workers of their own. Every child's status is checked; rates are computed from the
//! times.

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

use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::worker::Registered;
use flashfork_measure::{BenchError, Progress};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "creation";

impl Experiment for CreationOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str =
        "Every way to make a process beside the others: fork, vfork, clone, posix_spawn, threads, sealed";
    const WORKERS: &'static [Registered] = &[Registered::of::<CreationSubject>()];

    fn measure(&self, _: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        rounds::measure(self, results, progress)
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }

    fn in_all(quick: bool) -> Option<(Self, u64)> {
        let options = Self { quick, ..Self::default() };
        Some((options, if quick { 35 } else { 240 }))
    }
}
