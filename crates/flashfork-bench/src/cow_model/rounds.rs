//! All cells of the grid in random order, then the copy rate, then real against system time.

use serde_json::json;

use super::EXPERIMENT;
use super::grid::{COPIES, FORKS, FORKS_HEAP, QUICK_SHARES, SHARES, pages, written};
use super::options::CowModelOptions;
use super::subject::{Ask, CowSubject, Measure, Spec};
use crate::fork::Method;
use crate::record::{Missing, Record};
use crate::sampling::{Effort, sample};
use crate::size::show;
use crate::worker::Worker;
use crate::{BenchError, Progress, memory, pin, record};

/// A batch of one cell ends after so many samples or microseconds.
const BATCH: usize = 10;
const BUDGET: u64 = 20_000;
/// Left to the rest of the machine.
const RESERVE: u64 = 256 << 20;
/// Below this share of huge pages, what was measured would not be huge pages.
const MOSTLY_HUGE: f64 = 0.9;

/// Everything a run measured.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub records: Vec<Record>,
    pub missing: Vec<Missing>,
}

/// A parent and what it is.
struct Parent {
    method: Method,
    size: u64,
    worker: Worker<CowSubject>,
}

impl Parent {
    fn start(method: Method, size: u64) -> Result<Self, BenchError> {
        let spec = Spec { method, size, cpu: pin::chosen_cpu()? };
        Ok(Self { method, size, worker: Worker::start(format!("{method} {}", show(size)), &spec)? })
    }
}

/// Measures everything.
pub(super) fn measure(options: &CowModelOptions, progress: &mut dyn Progress) -> Result<Results, BenchError> {
    let sizes = options.grid.sizes(options.quick);
    // All parents live at the same time, each with a child that writes everything.
    let needed: u64 = sizes.iter().map(|&size| 3 * Method::ForkThp.memory_needed(size)).sum();
    memory::require(&memory::headroom()?, format!("the {} grid", options.grid.name()), needed + RESERVE)?;
    let mut results = Results::default();
    grid(options, &mut results, progress)?;
    if !progress.interrupted() {
        copies(&options.side_effort(), &mut results, progress)?;
    }
    if !progress.interrupted() {
        forks(&options.side_effort(), options.quick, &mut results, progress)?;
    }
    Ok(results)
}

fn grid(options: &CowModelOptions, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
    let (methods, sizes) = (options.grid.methods(), options.grid.sizes(options.quick));
    progress.begin("preparing parents", (methods.len() * sizes.len()) as u64);
    let mut parents = Vec::new();
    for &method in methods {
        for &size in sizes {
            let parent = Parent::start(method, size)?;
            let huge = parent.worker.ready().huge_fraction;
            progress.step();
            if method == Method::ForkThp && huge < MOSTLY_HUGE {
                let cell = format!("{method} {}", show(size));
                let reason = match size {
                    ..0x20_0000 => "smaller than one huge page".to_owned(),
                    _ => format!("the kernel gave huge pages for only {:.0} % of the memory", huge * 100.0),
                };
                progress.note(&format!("left out: {cell}: {reason}"));
                results.missing.push(Missing { experiment: EXPERIMENT.to_owned(), cell, reason });
            } else {
                parents.push(parent);
            }
        }
    }
    let shares = if options.quick { &QUICK_SHARES[..] } else { &SHARES };
    let cells: Vec<(usize, f64)> =
        (0..parents.len()).flat_map(|parent| shares.iter().map(move |&share| (parent, share))).collect();
    let effort = options.effort();
    progress.begin("all sizes and shares in turn", (effort.warm_up + effort.most) as u64);
    let sampled = sample(cells.len(), &effort, 1988, progress, |cell, _| {
        let (parent, share) = cells[cell];
        let written = written(parents[parent].size, share);
        parents[parent].worker.ask(&Ask::Each { written, samples: BATCH, budget: BUDGET })
    })?;
    parents.iter_mut().try_for_each(|parent| parent.worker.ask(&Ask::Verify).map(drop))?;
    for (&(parent, share), series) in cells.iter().zip(&sampled.cells) {
        let Parent { method, size, worker } = &parents[parent];
        let params = [
            ("measure", json!(Measure::Cycle.name())),
            ("grid", json!(options.grid.name())),
            ("size", json!(size)),
            ("pages", json!(pages(*size))),
            ("share", json!(share)),
            ("pages_written", json!(written(*size, share))),
            ("facts", json!(worker.ready())),
        ];
        for series in series.iter().filter(|series| !series.rounds.flat().is_empty()) {
            let record = record::of_series(EXPERIMENT, method.name(), params.clone(), "us", series, sampled.ended)?;
            results.records.push(record);
        }
    }
    Ok(())
}

fn copies(effort: &Effort, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
    progress.begin("copying memory", (effort.warm_up + effort.most) as u64);
    let mut parent = Parent::start(Method::Fork4k, 0)?;
    let sampled = sample(COPIES.len(), effort, 2, progress, |cell, _| {
        parent.worker.ask(&Ask::Copy { bytes: COPIES[cell], samples: 2 })
    })?;
    for (bytes, series) in COPIES.iter().zip(&sampled.cells) {
        let params = [("measure", json!(Measure::Copy.name())), ("size", json!(bytes))];
        for series in series.iter().filter(|series| !series.rounds.flat().is_empty()) {
            let unit = Measure::Copy.unit();
            results.records.push(record::of_series(EXPERIMENT, "memcpy", params.clone(), unit, series, sampled.ended)?);
        }
    }
    Ok(())
}

fn forks(effort: &Effort, quick: bool, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
    let (size, share) = FORKS_HEAP;
    let numbers = if quick { &FORKS[..5] } else { &FORKS };
    progress.begin("real against system time", (effort.warm_up + effort.most) as u64);
    let mut parent = Parent::start(Method::Fork4k, size)?;
    let written = written(size, share);
    let sampled = sample(numbers.len(), effort, 4, progress, |cell, _| {
        parent.worker.ask(&Ask::Together { written, forks: numbers[cell] })
    })?;
    for (&forks, series) in numbers.iter().zip(&sampled.cells) {
        for series in series.iter().filter(|series| !series.rounds.flat().is_empty()) {
            let params = [
                ("measure", json!(series.measure.name())),
                ("size", json!(size)),
                ("share", json!(share)),
                ("forks", json!(forks)),
            ];
            let (method, unit) = (Method::Fork4k.name(), series.measure.unit());
            results.records.push(record::of_series(EXPERIMENT, method, params, unit, series, sampled.ended)?);
        }
    }
    Ok(())
}
