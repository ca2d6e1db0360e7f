//! `bench fork`: what it costs to clone a process with so much memory, by each method.
//!
//! For each size, one worker per method holds that much memory, filled with bytes that are neither zero nor
//! compressible. The workers of a size, and an empty process beside them, are asked in turn for batches of clones of
//! four kinds ([`probe::Probe`]) while the parent is in one state after another ([`touch::ParentState`]). Sealing
//! itself is measured in workers of its own, and `--concurrent` adds several workers that clone at the same time.
//!
//! References: on-demand-fork (EuroSys 2021), section 5.2, whose kinds of measurement these are.

mod concurrent;
mod cycle;
mod footprint;
mod found;
mod options;
mod plan;
mod probe;
mod report;
mod rounds;
mod sealing;
mod subject;
mod targets;
mod tmpfs;
mod touch;

pub use options::ForkOptions;
pub(crate) use probe::{Batch, Probe};
pub(crate) use sealing::SealingSubject;
pub(crate) use subject::{Ask, ForkSubject};

use crate::subjects::parent;
use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::worker::Registered;
use flashfork_measure::{BenchError, Deadline, Progress};
use flashfork_terminal::size::Size;
use plan::Plan;

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "fork";

impl Experiment for ForkOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str = "What a clone costs by size of the parent: 4 KB pages, THP, sealed";
    const WORKERS: &'static [Registered] = &[Registered::of::<ForkSubject>(), Registered::of::<SealingSubject>()];

    /// The clones of every size, several at once where that was asked for, then the seals.
    fn measure(&self, _: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        let plan = Plan::new(self, parent::methods(results, progress)?)?;
        plan.missing.iter().for_each(|(cell, why)| results.leave_out(cell, why, progress));
        for (index, &size) in plan.sizes.iter().enumerate() {
            if progress.interrupted() {
                return Ok(());
            }
            if progress.deadline().passed() {
                results.no_time_for(Size(size).to_string(), progress);
                continue;
            }
            // Each size takes as much as another, the seals as much as one; what one leaves the next ones have.
            let deadline = progress.deadline().part(1.0 / (plan.sizes.len() - index + 1) as f64);
            let mut run = Run { plan: &plan, size, deadline, results: &mut *results, progress: &mut *progress };
            rounds::measure(&mut run)?;
            if plan.concurrent > 1 {
                concurrent::measure(&mut run)?;
            }
        }
        sealing::measure(&plan, results, progress)
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }

    fn figure(document: &Document) -> Option<Result<String, BenchError>> {
        let own: Vec<_> = document.records.iter().filter(|record| record.experiment == EXPERIMENT).collect();
        (!own.is_empty()).then(|| crate::figure::of_forks(&own, &document.host))
    }

    fn in_all(quick: bool) -> Option<(Self, u64)> {
        Some((Self { quick, ..Self::default() }, if quick { 70 } else { 1200 }))
    }
}

/// The measurement of one size.
struct Run<'a> {
    plan: &'a Plan,
    /// Bytes of memory of each parent.
    size: u64,
    /// By when it should be over.
    deadline: Deadline,
    results: &'a mut Results,
    progress: &'a mut dyn Progress,
}
