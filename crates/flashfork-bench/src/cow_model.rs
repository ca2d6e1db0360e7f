//! `bench cow-model`: the experiment of 1988, run again.
//!
//! J. M. Smith and G. Q. Maguire, "Effects of copy-on-write memory management on the response time of UNIX fork operations",
//! Computing Systems 1(3), 1988: a parent with so much memory forks, the child writes one byte in a share of its pages and
//! exits. From the times follows what a process, a page-table entry and a copied page cost, and how far the service of a page
//! fault is from the bare copy of its page. Their program `do-fork` is followed, with two differences: each child is waited for,
//! and the program times itself (they used the shell's `time` and regretted it).

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

use crate::{BenchError, Outcome, Progress, experiment};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "cow-model";

/// Runs the experiment: waits for the machine-wide lock, refuses sizes that don't fit before allocating anything, measures.
pub fn run(options: &CowModelOptions, progress: &mut dyn Progress) -> Result<Outcome, BenchError> {
    let measure = |results: &mut _, progress: &mut dyn Progress| rounds::measure(options, results, progress);
    experiment::run(EXPERIMENT, progress, measure, report::render_all)
}
