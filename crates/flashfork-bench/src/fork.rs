//! `bench fork`: what it costs to clone a process with so much memory, by each method.
//!
//! For each size, one worker per method holds that much memory, filled with bytes that are neither zero nor compressible.
//! The workers of a size, and an empty process beside them, are asked in turn for batches of clones of four kinds
//! ([`probe::Probe`]) while the parent is in one state after another ([`touch::ParentState`]). Sealing itself is measured
//! in workers of its own, and `--concurrent` adds several workers that clone at the same time.
//!
//! References: on-demand-fork (EuroSys 2021), section 5.2, whose kinds of measurement these are.

mod concurrent;
mod cycle;
mod facts;
mod footprint;
mod measured;
mod method;
mod options;
mod plan;
mod probe;
mod region;
mod report;
mod rounds;
mod sealing;
mod subject;
mod targets;
mod touch;

pub(crate) use facts::Facts;
pub use method::Method;
pub use options::ForkOptions;
pub(crate) use probe::{Batch, Probe};
pub(crate) use region::{PAGE, Region, WORDS_PER_PAGE, word};
pub(crate) use sealing::SealingSubject;
pub(crate) use subject::{Ask, ForkSubject};

use crate::host::HostCard;
use crate::lock::MachineLock;
use crate::size::Size;
use crate::{BenchError, Deadline, Outcome, Progress, parent};
use measured::Results;
use plan::Plan;

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "fork";

/// Runs the experiment: waits for the machine-wide lock, refuses sizes that don't fit before allocating anything, measures.
pub fn run(options: &ForkOptions, progress: &mut dyn Progress) -> Result<Outcome, BenchError> {
    let _lock = MachineLock::acquire(progress)?;
    let host = HostCard::read()?;
    let mut results = Results::default();
    let plan = Plan::new(options, parent::methods(&mut results.found, progress)?)?;
    plan.missing.iter().for_each(|(cell, why)| results.found.leave_out(cell, why, progress));
    let measured = measure(&plan, &mut results, progress);
    let found = results.take_found()?;
    found.conclude(host, measured, progress.interrupted(), |document| report::render_all(document, &plan, &results))
}

/// The clones of every size, several at once where that was asked for, then the seals.
fn measure(plan: &Plan, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
    for (index, &size) in plan.sizes.iter().enumerate() {
        if progress.interrupted() {
            return Ok(());
        }
        if progress.deadline().passed() {
            results.found.no_time_for(Size(size).to_string(), progress);
            continue;
        }
        // Each size takes as much as another, the seals as much as one; what one leaves the next ones have.
        let deadline = progress.deadline().part(1.0 / (plan.sizes.len() - index + 1) as f64);
        let mut run = Run { plan, size, deadline, results: &mut *results, progress: &mut *progress };
        rounds::measure(&mut run)?;
        if plan.concurrent > 1 {
            concurrent::measure(&mut run)?;
        }
    }
    sealing::measure(plan, results, progress)
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
