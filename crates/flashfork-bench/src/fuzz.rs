//! `bench fuzz`: AFL++ on SQLite with a large database in memory, plain and with the shim.
//!
//! Section 5.3.1 and figure 9 of on-demand fork (EuroSys 2021): the fuzzed program loads its database, then AFL's deferred
//! fork server clones it for every input, and the cost of those clones is the throughput. The methods take turns in slices on
//! one CPU, each slice from the same seeds with the same random seed. A faster method sees more inputs; so that equal work
//! can be told from less work, each is also run for as many executions as the slowest managed, and the coverage compared.

mod afl_stats;
mod campaign;
mod corpus;
mod measured;
mod options;
mod process;
mod report;
mod shim;
mod slices;
mod target;

pub use options::FuzzOptions;

use std::path::Path;

use crate::database::{self, Image};
use crate::fork::Method;
use crate::host::HostCard;
use crate::lock::MachineLock;
use crate::memory;
use crate::record::Document;
use crate::workdir::WorkDir;
use crate::{BenchError, Outcome, Progress, pin, size};
use measured::Results;
use process::Setup;

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "fuzz";

/// Left to AFL and the rest of the machine.
const RESERVE: u64 = 512 << 20;

/// Runs the experiment: waits for the machine-wide lock, refuses what doesn't fit before allocating anything, measures.
pub fn run(options: &FuzzOptions, progress: &mut dyn Progress) -> Result<Outcome, BenchError> {
    let shim = shim(options)?;
    let _lock = MachineLock::acquire(progress)?;
    let host = HostCard::read()?;
    // SQLite and malloc need about a tenth more than the database; the methods run one at a time.
    let needed = Method::Seal.memory_needed(options.size.0 + options.size.0 / 8) + RESERVE;
    memory::require(&memory::headroom()?, format!("fuzzing with a database of {}", options.size), needed)?;
    let work = WorkDir::new(options.cache.as_deref())?;
    let keep = options.cache.as_deref().unwrap_or(work.path());
    let target = target::obtain(keep, work.path(), progress)?;
    progress.begin(&format!("database of {}", options.size), 1);
    let image = Image::obtain(options.size.0, keep, work.path())?;
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
    let mut results = Results::new(image.bytes, setup.cpu);
    slices::measure(options, &setup, work.path(), &mut results, progress)?;
    if let (Some(dir), Some(took)) = (&options.cache, image.built_in) {
        progress.note(&format!(
            "kept for later runs: the database image ({}, built in {:.0} s) and the fuzz target, in {}",
            size::show(image.bytes),
            took.as_secs_f64(),
            dir.display()
        ));
    }
    let table = report::render(&host, options, &results);
    Ok(Outcome { document: Document::new(host, results.records()?), table })
}

/// The shim to fuzz with.
fn shim(options: &FuzzOptions) -> Result<std::path::PathBuf, BenchError> {
    let path = options.preload.as_deref().ok_or_else(|| {
        BenchError::Unable("bench fuzz needs the shim, libflashfork_preload.so; say where it is with --preload".into())
    })?;
    // AFL changes into its own directories.
    path.canonicalize().map_err(|error| BenchError::system(format!("find the shim {}", path.display()), error))
}

fn names(image: &Path) -> Result<Vec<String>, BenchError> {
    database::names(&database::open(image)?)
}
