//! `bench profile`: where the time of a plain fork goes, function by function of the kernel.
//!
//! Figure 3 of on-demand-fork (EuroSys 2021) found it in the counting of references to pages. `perf` samples a parent
//! that forks again and again; what its children spend on exiting is theirs and not in it.

mod perf;

use std::time::{Duration, Instant};

use serde_json::json;

use crate::experiments::fork::{Ask, Batch, ForkSubject, Probe};
use crate::subjects::Method;
use crate::subjects::memory;
use crate::subjects::parent::Spec;
use flashfork_measure::experiment::{Experiment, Places, Results, page};
use flashfork_measure::record::{Document, Record};
use flashfork_measure::workdir::WorkDir;
use flashfork_measure::{BenchError, Progress};
use flashfork_terminal::size::Size;
use flashfork_terminal::table::{render, three_figures};
use perf::Recording;

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "profile";

/// How many functions are kept, and shown.
const KEPT: usize = 25;

/// Options of the experiment.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench profile --size 1G")]
pub struct ProfileOptions {
    /// Size of the parent's memory, on 4 KB pages
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub size: Size,

    /// How long the parent forks, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
}

impl Experiment for ProfileOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str = "Where the time of a plain fork goes in the kernel, by perf";

    fn measure(&self, _: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        measure(self, results, progress)
    }

    fn page(document: &Document) -> String {
        text(document)
    }
}

fn measure(options: &ProfileOptions, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
    let (method, size) = (Method::Fork4k, options.size.0);
    memory::require(&memory::headroom()?, format!("{}", options.size), method.memory_needed(size))?;
    let dir = WorkDir::new(None)?;
    let file = dir.path().join("perf.data");
    progress.begin("filling memory", 1);
    let mut worker = Spec::here(method, size)?.start::<ForkSubject>()?;
    progress.step();
    progress.begin("forking under perf", options.seconds);
    let recording = Recording::start(worker.pid(), &file)?;
    let (begin, mut shown) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(options.seconds) && !progress.interrupted() {
        let batch = Batch { probe: Probe::Exit, samples: usize::MAX, budget: 200_000, start: None, seed: 1 };
        worker.ask(&Ask::Batch(batch))?;
        while shown < begin.elapsed().as_secs().min(options.seconds) {
            progress.step();
            shown += 1;
        }
    }
    recording.stop()?;
    let shares = perf::shares(&file)?;
    for (symbol, share) in shares.iter().take(KEPT) {
        let chosen = [("measure", json!("share_of_time")), ("size", json!(size)), ("function", json!(symbol))];
        results.records.push(Record::new(EXPERIMENT, method.name(), chosen, "ratio", vec![*share])?);
    }
    Ok(())
}

fn text(document: &Document) -> String {
    let size = document.records.first().and_then(|record| record.chosen.get("size")?.as_u64()).unwrap_or(0);
    let rows: Vec<Vec<String>> = document
        .records
        .iter()
        .map(|record| {
            let function = record.chosen.get("function").and_then(|name| name.as_str()).unwrap_or_default();
            vec![function.to_owned(), format!("{} %", three_figures(record.p50 * 100.0))]
        })
        .collect();
    let table = format!(
        "Where the time of a parent goes that forks {} on 4 KB pages again and again ([k]: the kernel)\n{}",
        Size(size),
        render(&["function", "of the time"], &rows, 1)
    );
    page(document, [table])
}
