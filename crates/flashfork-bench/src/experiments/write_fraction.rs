//! `bench write-fraction`: how much of a real program's memory changes between two moments.
//!
//! Section 4 of J. M. Smith and G. Q. Maguire, "Effects of copy-on-write memory management on the response time of UNIX
//! fork operations", 1988, for the programs of today: they compared core dumps byte by byte and page by page, and found
//! that less than half of the pages of two Lisp systems changed. What doesn't change is what copy-on-write saves.
//!
//! How it is looked at: [`flashfork_advise::look`].

mod options;
mod program;
mod report;
mod runs;

pub use options::{Ready, WriteFractionOptions};
pub use report::PAPER;

use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::{BenchError, Progress};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "write-fraction";

impl Experiment for WriteFractionOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str = "How much of a program's memory changes between two moments: bytes, pages, huge pages";

    fn measure(&self, _: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        runs::measure(self, results, progress)
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }

    fn in_all(quick: bool) -> Option<(Self, u64)> {
        let options = Self { runs: if quick { 1 } else { 5 }, ..Self::default() };
        Some((options, if quick { 15 } else { 60 }))
    }
}
