//! All cells of the grid in random order, then the copy rate, then real against system time.

use serde_json::json;

use super::grid::{COPIES, FORKS, FORKS_HEAP, QUICK_SHARES, SHARES, pages, written};
use super::options::CowModelOptions;
use super::subject::{Ask, CowSubject, Measure};
use crate::subjects::Method;
use crate::subjects::hugetlb::Pool;
use crate::subjects::memory;
use crate::subjects::parent::{RESERVE, Spec};
use flashfork_measure::experiment::Results;
use flashfork_measure::sampling::{Effort, sample};
use flashfork_measure::worker::Worker;
use flashfork_measure::{BenchError, Progress};

/// A batch of one cell ends after so many samples or microseconds.
const BATCH: usize = 10;
const BUDGET: u64 = 20_000;
/// The share of the time that the grid and the copies may take, where time is short.
const OF_GRID: f64 = 0.7;
const OF_COPIES: f64 = 0.5;

/// Measures everything.
pub(super) fn measure(
    options: &CowModelOptions,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let sizes = options.grid.sizes(options.quick);
    // All parents live at the same time, each with a child that writes everything.
    let needed: u64 = sizes.iter().map(|&size| 3 * Method::ForkThp.memory_needed(size)).sum();
    memory::require(&memory::headroom()?, format!("the {} grid", options.grid.name()), needed + RESERVE)?;
    grid(options, results, progress)?;
    if !progress.interrupted() {
        let effort = options.side_effort().until(progress.deadline().part(OF_COPIES));
        copies(&effort, results, progress)?;
    }
    if !progress.interrupted() {
        let effort = options.side_effort().until(progress.deadline());
        forks(&effort, options.quick, results, progress)?;
    }
    Ok(())
}

/// The parents of the grid, one for each method and size.
fn parents(
    options: &CowModelOptions,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<Vec<(Spec, Worker<CowSubject>)>, BenchError> {
    let sizes = options.grid.sizes(options.quick);
    let mut methods = options.grid.methods().to_vec();
    if methods.contains(&Method::Hugetlb)
        && let Some(why) = Pool::read()?.unusable()
    {
        results.leave_out(Method::Hugetlb.name(), why, progress);
        methods.retain(|&method| method != Method::Hugetlb);
    }
    progress.begin("preparing parents", (methods.len() * sizes.len()) as u64);
    let mut parents = Vec::new();
    for &method in &methods {
        for &size in sizes {
            if progress.interrupted() {
                return Ok(parents);
            }
            let spec = Spec::here(method, size)?;
            if let Some(why) = spec.shortage(size)? {
                results.leave_out(spec.name(), why, progress);
                continue;
            }
            let worker = spec.start::<CowSubject>()?;
            progress.step();
            match spec.flaw(worker.ready()) {
                Some(flaw) => results.leave_out(spec.name(), flaw, progress),
                None => parents.push((spec, worker)),
            }
        }
    }
    Ok(parents)
}

fn grid(options: &CowModelOptions, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
    let mut parents = parents(options, results, progress)?;
    let shares = if options.quick { &QUICK_SHARES[..] } else { &SHARES };
    let cells: Vec<(usize, f64)> =
        (0..parents.len()).flat_map(|parent| shares.iter().map(move |&share| (parent, share))).collect();
    let effort = options.effort().until(progress.deadline().part(OF_GRID));
    progress.begin("all sizes and shares in turn", effort.steps());
    let (sampled, done) = sample(cells.len(), &effort, 1988, progress, |cell, _| {
        let (parent, share) = cells[cell];
        let (spec, worker) = &mut parents[parent];
        worker.ask(&Ask::Each { written: written(spec.size, share), samples: BATCH, budget: BUDGET })
    });
    let whole = done.and_then(|()| parents.iter_mut().try_for_each(|(_, worker)| worker.ask(&Ask::Verify).map(drop)));
    for (&(parent, share), series) in cells.iter().zip(&sampled.cells) {
        let (Spec { method, size, .. }, worker) = &parents[parent];
        let chosen = [
            ("measure", json!(Measure::Cycle.name())),
            ("grid", json!(options.grid.name())),
            ("size", json!(size)),
            ("pages", json!(pages(*size))),
            ("share", json!(share)),
            ("pages_written", json!(written(*size, share))),
        ];
        let observed = [("facts", json!(worker.ready()))];
        for series in series {
            results.keep(method.name(), chosen.clone(), observed.clone(), "us", series, sampled.ended)?;
        }
    }
    whole
}

fn copies(effort: &Effort, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
    progress.begin("copying memory", effort.steps());
    let mut parent = Spec::here(Method::Fork4k, 0)?.start::<CowSubject>()?;
    let (sampled, done) =
        sample(COPIES.len(), effort, 2, progress, |cell, _| parent.ask(&Ask::Copy { bytes: COPIES[cell], samples: 2 }));
    for (bytes, series) in COPIES.iter().zip(&sampled.cells) {
        for series in series {
            let chosen = [("measure", json!(Measure::Copy.name())), ("size", json!(bytes))];
            results.keep("memcpy", chosen, [], Measure::Copy.unit(), series, sampled.ended)?;
        }
    }
    done
}

fn forks(effort: &Effort, quick: bool, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
    let (size, share) = FORKS_HEAP;
    let numbers = if quick { &FORKS[..5] } else { &FORKS };
    progress.begin("real against system time", effort.steps());
    let mut parent = Spec::here(Method::Fork4k, size)?.start::<CowSubject>()?;
    let written = written(size, share);
    let (sampled, done) = sample(numbers.len(), effort, 4, progress, |cell, _| {
        parent.ask(&Ask::Together { written, forks: numbers[cell] })
    });
    for (&forks, series) in numbers.iter().zip(&sampled.cells) {
        for series in series {
            let chosen = [
                ("measure", json!(series.measure.name())),
                ("size", json!(size)),
                ("share", json!(share)),
                ("forks", json!(forks)),
            ];
            results.keep(Method::Fork4k.name(), chosen, [], series.measure.unit(), series, sampled.ended)?;
        }
    }
    done
}
