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
pub(crate) use subject::{Ask, ForkSubject, Spec};

use crate::host::HostCard;
use crate::lock::MachineLock;
use crate::record::Document;
use crate::{BenchError, Outcome, Progress};
use plan::Plan;

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "fork";

/// Runs the experiment: waits for the machine-wide lock, refuses sizes that don't fit before allocating anything, measures.
pub fn run(options: &ForkOptions, progress: &mut dyn Progress) -> Result<Outcome, BenchError> {
    let _lock = MachineLock::acquire(|line| progress.note(line))?;
    let host = HostCard::read()?;
    let plan = Plan::new(options)?;
    for note in &plan.notes {
        progress.note(note);
    }
    let mut results = measured::Results::default();
    for &size in &plan.sizes {
        if progress.interrupted() {
            break;
        }
        rounds::measure(&plan, size, &mut results, progress)?;
        if plan.concurrent > 1 {
            concurrent::measure(&plan, size, &mut results, progress)?;
        }
    }
    sealing::measure(&plan, &mut results, progress)?;
    let table = report::render_all(&host, &plan, &results);
    Ok(Outcome { document: Document::new(host, results.into_records()?), table })
}
