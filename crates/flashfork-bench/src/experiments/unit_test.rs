//! `bench unit-test`: SQLite unit tests, each from the same loaded database, each in a clone.
//!
//! A harness loads a database into memory once; every test then runs in a clone of it, as section 5.3.2 of on-demand
//! fork (EuroSys 2021) proposes, and is timed in the same phases: initialise, clone, test, reap. Each method has
//! harness processes of its own, asked in turn. Every clone checks what it found against what its parent had counted
//! before, and a checksum over the whole database shows afterwards that no clone changed its parent's.

mod case;
mod cycle;
mod found;
mod options;
mod plan;
mod report;
mod rounds;
mod subject;

pub use options::UnitTestOptions;
pub(crate) use subject::UnitTestSubject;

use crate::subjects::Method;
use crate::subjects::database::Image;
use crate::subjects::memory;
use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::workdir::WorkDir;
use flashfork_measure::worker::Registered;
use flashfork_measure::{BenchError, Progress, pin};
use flashfork_terminal::size;
use plan::Plan;

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "unit-test";

impl Experiment for UnitTestOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str = "Real SQLite: each test in a clone of one warmed database";
    const WORKERS: &'static [Registered] = &[Registered::of::<UnitTestSubject>()];

    fn measure(&self, here: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        let (methods, missing) = Method::here();
        missing.into_iter().for_each(|(method, why)| results.leave_out(method.name(), why, progress));
        let plan = Plan::new(self, methods, &pin::allowed_cpus()?, &memory::headroom()?)?;
        progress.begin(&format!("database of {}", plan.size), 1);
        let cache = self.cache.clone().map_or_else(|| here.cache("bench"), Ok)?;
        let work = WorkDir::new(Some(&cache))?;
        let image = Image::obtain(plan.size.0, &cache, work.path())?;
        progress.step();
        if let Some(took) = image.built_in {
            progress.note(&format!(
                "the database image ({}, built in {:.0} s) is kept for later runs: {}",
                size::show(image.bytes),
                took.as_secs_f64(),
                image.path.display()
            ));
        }
        rounds::measure(&plan, &image, results, progress)
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }
}
