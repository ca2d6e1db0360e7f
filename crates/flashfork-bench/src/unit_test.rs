//! `bench unit-test`: SQLite unit tests, each from the same loaded database, each in a clone.
//!
//! A harness loads a database into memory once; every test then runs in a clone of it, as section 5.3.2 of on-demand fork
//! (EuroSys 2021) proposes, and is timed in the same phases: initialise, clone, test, reap. Each method has harness processes
//! of its own, asked in turn. Every clone checks what it found against what its parent had counted before, and a checksum
//! over the whole database shows afterwards that no clone changed its parent's.

mod case;
mod cycle;
mod measured;
mod options;
mod plan;
mod report;
mod rounds;
mod subject;

pub use options::UnitTestOptions;
pub(crate) use subject::UnitTestSubject;

use crate::database::Image;
use crate::fork::Method;
use crate::host::HostCard;
use crate::lock::MachineLock;
use crate::memory;
use crate::record::Document;
use crate::workdir::WorkDir;
use crate::{BenchError, Outcome, Progress, pin, size};
use measured::Results;
use plan::Plan;

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "unit-test";

/// Runs the experiment: waits for the machine-wide lock, refuses what doesn't fit before allocating anything, measures.
pub fn run(options: &UnitTestOptions, progress: &mut dyn Progress) -> Result<Outcome, BenchError> {
    let _lock = MachineLock::acquire(progress)?;
    let host = HostCard::read()?;
    let (methods, missing) = Method::here();
    let plan = Plan::new(options, methods, &pin::allowed_cpus()?, &memory::headroom()?)?;
    let notes: Vec<String> = missing.iter().map(|(method, why)| format!("left out: method {method}: {why}")).collect();
    notes.iter().for_each(|note| progress.note(note));
    progress.begin(&format!("database of {}", plan.size), 1);
    let work = WorkDir::new(options.cache.as_deref())?;
    let image = Image::obtain(plan.size.0, options.cache.as_deref().unwrap_or(work.path()), work.path())?;
    progress.step();
    if let (Some(_), Some(took)) = (&options.cache, image.built_in) {
        progress.note(&format!(
            "the database image ({}, built in {:.0} s) is kept for later runs: {}",
            size::show(image.bytes),
            took.as_secs_f64(),
            image.path.display()
        ));
    }
    let mut results = Results {
        database_bytes: image.bytes,
        jobs: plan.jobs,
        built_in: image.built_in.map(|took| took.as_secs_f64()),
        notes,
        ..Results::default()
    };
    rounds::measure(&plan, &image, &mut results, progress)?;
    let table = report::render(&host, &plan, &results);
    Ok(Outcome { document: Document::new(host, results.records()?), table })
}
