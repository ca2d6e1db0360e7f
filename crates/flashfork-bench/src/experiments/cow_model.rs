//! `bench cow-model`: the experiment of 1988, run again.
//!
//! J. M. Smith and G. Q. Maguire, "Effects of copy-on-write memory management on the response time of UNIX fork
//! operations", Computing Systems 1(3), 1988: a parent with so much memory forks, the child writes one byte in a share
//! of its pages and exits. From the times follows what a process, a page-table entry and a copied page cost, and how
//! far the service of a page fault is from the bare copy of its page. Their program `do-fork` is followed, with two
//! differences: each child is waited for, and the program times itself (they used the shell's `time` and regretted it).

mod grid;
mod model;
mod options;
mod report;
mod rounds;
mod subject;

pub use grid::Grid;
pub use model::{Cell, Line, Model, PAPER, PAPER_MERIT, PaperLine, copy_rate, times_by_forks};
pub use options::CowModelOptions;
pub(crate) use subject::{Ask, CowSubject};

use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::worker::Registered;
use flashfork_measure::{BenchError, Progress};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "cow-model";

impl Experiment for CowModelOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str =
        "The copy-on-write experiment of 1988 with today's figures: what a process, a page and a written page cost";
    const WORKERS: &'static [Registered] = &[Registered::of::<CowSubject>()];

    fn measure(&self, _: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        rounds::measure(self, results, progress)
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }

    fn in_all(quick: bool) -> Option<(Self, u64)> {
        let options = Self { grid: Grid::Modern, quick };
        Some((options, if quick { 40 } else { 200 }))
    }
}
