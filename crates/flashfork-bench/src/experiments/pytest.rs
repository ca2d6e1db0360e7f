//! `bench pytest`: suites of tests in Python, run by pytest alone, by workers of xdist, by pytest-forked, and in clones
//! (`--clones` and `--clone-each` of the Python package's plugin); and a program that is cloned from Python.
//!
//! Three suites: many small tests, for which starting is what costs; a real package's own; and one whose session
//! fixture holds a lot of memory, each test of which reads and writes in it. Each run is a command as a person types
//! it. Every way must come to the same outcomes as pytest alone, or nothing of it is believed.

mod client;
mod options;
mod report;
mod rounds;
mod run;
mod suite;
mod way;

pub use options::PytestOptions;
pub use suite::Suite;

use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::{BenchError, Progress};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "pytest";

impl Experiment for PytestOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str = "Tests in Python: pytest alone, xdist, pytest-forked, and tests in clones";

    fn measure(&self, _: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        rounds::measure(self, results, progress)
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }
}
