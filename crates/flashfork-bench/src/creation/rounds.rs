//! All ways of a size side by side, size by size.

use serde_json::json;

use super::EXPERIMENT;
use super::options::{CreationOptions, Touch};
use super::subject::{Ask, CreationSubject, Ready, Spec};
use super::way::{PROGRAM, Phase, Then, Way};
use crate::fork::Method;
use crate::memory;
use crate::record::{Missing, Record};
use crate::sampling::{Sampled, sample};
use crate::size::show;
use crate::stats::Rounds;
use crate::worker::Worker;
use crate::{BenchError, Progress, pin, record};

/// A batch ends after so many samples ...
const BATCH: usize = 12;
/// ... or after so long (microseconds), whichever comes first.
const BUDGET: u64 = 12_000;
/// Left to the rest of the machine.
const RESERVE: u64 = 256 << 20;

/// Everything a run measured.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// By size, way, then and phase.
    pub cells: Vec<Cell>,
    /// One per cell.
    pub records: Vec<Record>,
    /// What could not be measured.
    pub missing: Vec<Missing>,
}

/// One way at one size, one phase of it.
#[derive(Debug)]
pub(super) struct Cell {
    pub size: u64,
    pub way: Way,
    pub then: Then,
    pub phase: Phase,
    pub rounds: Rounds,
}

impl Results {
    pub(super) fn cell(&self, size: u64, way: Way, then: Then, phase: Phase) -> Option<&Cell> {
        self.cells.iter().find(|cell| (cell.size, cell.way, cell.then, cell.phase) == (size, way, then, phase))
    }

    fn leave_out(&mut self, cell: String, reason: String, progress: &mut dyn Progress) {
        progress.note(&format!("left out: {cell}: {reason}"));
        self.missing.push(Missing { experiment: EXPERIMENT.to_owned(), cell, reason });
    }
}

/// Measures every size that was asked for.
pub(super) fn measure(options: &CreationOptions, progress: &mut dyn Progress) -> Result<Results, BenchError> {
    let sizes = options.bytes();
    let (methods, note) = Method::here();
    // Refused before anything is allocated: all parents of a size live at the same time.
    let headroom = memory::headroom()?;
    for &size in &sizes {
        let needed: u64 = parents(&methods).map(|(method, _)| method.memory_needed(size)).sum();
        memory::require(&headroom, format!("{}, one parent of each kind,", show(size)), needed + RESERVE)?;
    }
    let mut results = Results::default();
    if let Some(note) = note {
        let reason = note.trim_start_matches("left out: method odf: ").to_owned();
        results.leave_out("odf".to_owned(), reason, progress);
    }
    for size in sizes {
        if progress.interrupted() {
            break;
        }
        measure_size(options, &methods, size, &mut results, progress)?;
    }
    Ok(results)
}

/// The parents of a size: how each holds its memory, and the ways it is asked for. A process that once had a thread forks
/// more slowly ever after (the C library then takes its locks), so threads have a parent of their own.
fn parents(methods: &[Method]) -> impl Iterator<Item = (Method, Vec<Way>)> {
    let of = |method: Method| {
        let ways = Way::ALL.into_iter().filter(move |way| way.method() == method && *way != Way::Pthread);
        (method, ways.collect())
    };
    methods.iter().map(move |&method| of(method)).chain([(Method::Fork4k, vec![Way::Pthread])])
}

fn measure_size(
    options: &CreationOptions,
    methods: &[Method],
    size: u64,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let cpu = pin::chosen_cpu()?;
    progress.begin(&format!("{}: preparing parents", show(size)), parents(methods).count() as u64);
    let mut workers = Vec::new();
    let mut cells = Vec::new();
    for (method, ways) in parents(methods) {
        let touch = options.touch == Touch::All;
        let spec = Spec { method, size, touch, fds: options.fds, vmas: options.vmas, cpu };
        let name = format!("{method} {}", show(size));
        let worker = Worker::<CreationSubject>::start(name.clone(), &spec)?;
        progress.step();
        match flaw(method, size, touch, worker.ready()) {
            Some(why) => results.leave_out(name, why, progress),
            None => {
                let index = workers.len();
                cells.extend(ways.iter().flat_map(|&way| way.then().iter().map(move |&then| (index, way, then))));
                workers.push(worker);
            }
        }
    }
    let effort = options.effort();
    progress.begin(&format!("{}: all ways in turn", show(size)), (effort.warm_up + effort.most) as u64);
    let sampled = sample(cells.len(), &effort, size, progress, |cell, _| {
        let (worker, way, then) = cells[cell];
        workers[worker].ask(&Ask::Batch { way, then, samples: BATCH, budget: BUDGET })
    })?;
    for worker in &mut workers {
        worker.ask(&Ask::Verify)?;
    }
    for (number, &(worker, way, then)) in cells.iter().enumerate() {
        let ready = *workers[worker].ready();
        results.records.extend(records(options, size, way, then, &ready, &sampled, number)?);
        for series in &sampled.cells[number] {
            let (phase, rounds) = (series.measure, series.rounds.clone());
            if !rounds.flat().is_empty() {
                results.cells.push(Cell { size, way, then, phase, rounds });
            }
        }
    }
    Ok(())
}

/// Why a parent is not what its ways need, if so.
fn flaw(method: Method, size: u64, touch: bool, ready: &Ready) -> Option<String> {
    const HUGE: u64 = 2 << 20;
    let huge = size / HUGE * HUGE;
    let got = ready.facts.huge_fraction * size as f64;
    match method {
        _ if !touch => None,
        Method::ForkThp if huge == 0 => Some("the memory is smaller than one huge page".to_owned()),
        Method::ForkThp if got < 0.9 * huge as f64 => {
            Some(format!("the kernel gave huge pages for only {}", show(got as u64)))
        }
        Method::Seal if ready.sealed < size / 2 => Some(format!("only {} could be sealed", show(ready.sealed))),
        _ => None,
    }
}

fn records(
    options: &CreationOptions,
    size: u64,
    way: Way,
    then: Then,
    ready: &Ready,
    sampled: &Sampled<Phase>,
    number: usize,
) -> Result<Vec<Record>, BenchError> {
    let chosen = [
        ("size", json!(size)),
        ("then", json!(then.name())),
        ("touch", json!(if options.touch == Touch::All { "all" } else { "none" })),
        ("extra_fds", json!(options.fds)),
        ("extra_vmas", json!(options.vmas)),
        ("program", json!((then == Then::Exec).then(|| PROGRAM.to_string_lossy()))),
        ("sealed_bytes", json!(ready.sealed)),
        ("facts", json!(ready.facts)),
    ];
    let made = sampled.cells[number].iter().filter(|series| !series.rounds.flat().is_empty());
    made.map(|series| {
        let measure = [("measure", json!(series.measure.name()))];
        let params = measure.into_iter().chain(chosen.iter().cloned());
        record::of_series(EXPERIMENT, way.name(), params, "us", series, sampled.ended)
    })
    .collect()
}
