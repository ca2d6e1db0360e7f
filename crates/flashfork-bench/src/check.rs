//! `bench check`: our figures beside those of programs everybody knows, in the same minute.
//!
//! A tool measures what its own parent and children do, so the same word means different things: each of ours imitates the
//! other's as far as that goes, runs in turn with it, and the table says what the rest is made of. What isn't installed is
//! left out with its reason.

mod report;
mod rounds;
mod tool;

pub use tool::{Checked, Tool};

use crate::{BenchError, Outcome, Progress, experiment};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "check";

/// Options of the experiment.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "Example: flashfork bench check")]
pub struct CheckOptions {
    /// Two runs of each tool instead of five
    #[arg(long)]
    pub quick: bool,
}

/// Runs the experiment: waits for the machine-wide lock, asks every tool that is there and ourselves in turn.
pub fn run(options: &CheckOptions, progress: &mut dyn Progress) -> Result<Outcome, BenchError> {
    let measure = |results: &mut _, progress: &mut dyn Progress| rounds::measure(options, results, progress);
    experiment::run(EXPERIMENT, progress, measure, report::render_all)
}
