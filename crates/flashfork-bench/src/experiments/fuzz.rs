//! `bench fuzz`: AFL++ on SQLite with a large database in memory, plain and with the shim.
//!
//! Section 5.3.1 and figure 9 of on-demand fork (EuroSys 2021): the fuzzed program loads its database, then AFL's
//! deferred fork server clones it for every input, and the cost of those clones is the throughput. The methods take
//! turns in slices on one CPU, each slice from the same seeds with the same random seed. A faster method sees more
//! inputs; so that equal work can be told from less work, each is also run for as many executions as the slowest
//! managed, and the coverage compared. With `--targets` it is about small libraries instead: see `targets.rs`.

mod afl_stats;
mod campaign;
mod corpus;
mod found;
mod options;
mod process;
mod report;
mod shim;
mod slices;
mod target;
mod targets;

pub use options::FuzzOptions;
pub use targets::Target;

use std::path::{Path, PathBuf};

use crate::subjects::Method;
use crate::subjects::database::{self, Image};
use crate::subjects::memory;
use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::workdir::WorkDir;
use flashfork_measure::{BenchError, Progress, pin};
use flashfork_terminal::size;
use process::Setup;

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "fuzz";

/// Left to AFL and the rest of the machine.
const RESERVE: u64 = 512 << 20;

impl Experiment for FuzzOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str = "Real AFL++ on SQLite with a warmed database, plain against the shim";

    fn measure(&self, here: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        if !self.targets.is_empty() {
            return targets::measure(&self.targets, self, here, results, progress);
        }
        let shim = shim(self, here)?;
        // SQLite and malloc need about a tenth more than the database; the methods run one at a time.
        let needed = Method::Seal.memory_needed(self.size.0 + self.size.0 / 8) + RESERVE;
        memory::require(&memory::headroom()?, format!("fuzzing with a database of {}", self.size), needed)?;
        let cache = self.cache.clone().map_or_else(|| here.cache("bench"), Ok)?;
        let work = WorkDir::new(Some(&cache))?;
        let target = target::obtain(&cache, work.path(), progress)?;
        progress.begin(&format!("database of {}", self.size), 1);
        let image = Image::obtain(self.size.0, &cache, work.path())?;
        progress.step();
        let setup = Setup {
            target,
            seeds: work.path().join("seeds"),
            dictionary: work.path().join("dictionary"),
            shim,
            cpu: pin::chosen_cpu()?,
            image: image.path,
        };
        corpus::write_seeds(&setup.seeds)?;
        corpus::write_dictionary(&setup.dictionary, &names(&setup.image)?)?;
        if let Some(took) = image.built_in {
            progress.note(&format!(
                "kept for later runs: the database image ({}, built in {:.0} s) and the fuzz target, in {}",
                size::show(image.bytes),
                took.as_secs_f64(),
                cache.display()
            ));
        }
        let mut runs = slices::Runs { options: self, setup: &setup, database_bytes: image.bytes, results, progress };
        runs.measure(work.path())
    }

    fn page(document: &Document) -> String {
        targets::render(document).unwrap_or_else(|| report::render_all(document))
    }
}

/// The shim to fuzz with.
fn shim(options: &FuzzOptions, here: &dyn Places) -> Result<PathBuf, BenchError> {
    let path = options.preload.clone().map_or_else(|| here.shim(), Ok)?;
    // AFL changes into its own directories.
    path.canonicalize().map_err(|error| BenchError::system(format!("find the shim {}", path.display()), error))
}

fn names(image: &Path) -> Result<Vec<String>, BenchError> {
    database::names(&database::open(image)?)
}
