//! `bench warm`: programs from the shell, started anew and as clones of a warmed template (`flashfork warm`, `flashfork
//! clone`).
//!
//! What is timed is what a shell sees: from starting the command until it has ended and been waited for, and until the
//! first line of its output is there. Before each sample is a pause, in which a template makes its next clone ahead; a
//! row of clones without pauses says what they cost when there is no time for that. `/bin/true` started anew, by
//! posix_spawn, is the floor.

mod command;
mod options;
mod program;
mod report;
mod rounds;
mod templates;

pub use options::WarmOptions;
pub use program::Program;

use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::{BenchError, Progress};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "warm";

impl Experiment for WarmOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str =
        "Programs from the shell, started anew and cloned from a warmed template: Python with numpy, Perl, Ruby";

    fn measure(&self, here: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        rounds::measure(self, &here.command()?, results, progress)
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }
}
