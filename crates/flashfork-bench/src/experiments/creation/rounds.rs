//! All ways of a size side by side, size by size.

use serde_json::{Value, json};

use super::options::{CreationOptions, Touch};
use super::subject::{Ask, CreationSubject, Ready, Spec};
use super::way::{PROGRAM, Then, Way};
use crate::subjects::Method;
use crate::subjects::memory;
use crate::subjects::parent::{self, RESERVE};
use flashfork_measure::experiment::Results;
use flashfork_measure::sampling::sample;
use flashfork_measure::worker::Worker;
use flashfork_measure::{BenchError, Progress};
use flashfork_terminal::size::show;

/// A batch ends after so many samples ...
const BATCH: usize = 12;
/// ... or after so long (microseconds), whichever comes first.
const BUDGET: u64 = 12_000;

/// Measures every size that was asked for.
pub(super) fn measure(
    options: &CreationOptions,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let sizes = options.bytes();
    let methods = parent::methods(results, progress)?;
    // Refused before anything is allocated: all parents of a size live at the same time.
    let headroom = memory::headroom()?;
    for &size in &sizes {
        let needed: u64 = parents(&methods).map(|(method, _)| method.memory_needed(size)).sum();
        memory::require(&headroom, format!("{}, one parent of each kind,", show(size)), needed + RESERVE)?;
    }
    for (index, &size) in sizes.iter().enumerate() {
        if progress.interrupted() {
            break;
        }
        if progress.deadline().passed() {
            results.no_time_for(show(size), progress);
            continue;
        }
        measure_size(options, &methods, size, 1.0 / (sizes.len() - index) as f64, results, progress)?;
    }
    Ok(())
}

/// The parents of a size: how each holds its memory, and the ways it is asked for. A process that once had a thread
/// forks more slowly ever after (the C library then takes its locks), so threads have a parent of their own.
fn parents(methods: &[Method]) -> impl Iterator<Item = (Method, Vec<Way>)> {
    let of = |method: Method| {
        let ways = Way::ALL.into_iter().filter(move |way| way.method() == method && *way != Way::Pthread);
        (method, ways.collect())
    };
    methods.iter().map(move |&method| of(method)).chain([(Method::Fork4k, vec![Way::Pthread])])
}

/// `share`: how much of what time is left the size may take.
fn measure_size(
    options: &CreationOptions,
    methods: &[Method],
    size: u64,
    share: f64,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let deadline = progress.deadline().part(share);
    progress.begin(&format!("{}: preparing parents", show(size)), parents(methods).count() as u64);
    let (mut workers, mut cells) = (Vec::new(), Vec::new());
    for (method, ways) in parents(methods) {
        if progress.interrupted() {
            return Ok(());
        }
        let parent = parent::Spec::here(method, size)?;
        if let Some(why) = parent.shortage(0)? {
            results.leave_out(parent.name(), why, progress);
            continue;
        }
        let touch = options.touch == Touch::All;
        let spec = Spec { parent, touch, fds: options.fds, vmas: options.vmas };
        let worker = Worker::<CreationSubject>::start(parent.name(), &spec)?;
        progress.step();
        match flaw(&spec, worker.ready()) {
            Some(why) => results.leave_out(parent.name(), why, progress),
            None => {
                let index = workers.len();
                cells.extend(ways.iter().flat_map(|&way| way.then().iter().map(move |&then| (index, way, then))));
                workers.push(worker);
            }
        }
    }
    let effort = options.effort().until(deadline);
    progress.begin(&format!("{}: all ways in turn", show(size)), effort.steps());
    let (sampled, done) = sample(cells.len(), &effort, size, progress, |cell, _| {
        let (worker, way, then) = cells[cell];
        workers[worker].ask(&Ask::Batch { way, then, samples: BATCH, budget: BUDGET })
    });
    let whole = done.and_then(|()| workers.iter_mut().try_for_each(|worker| worker.ask(&Ask::Verify).map(drop)));
    for (&(worker, way, then), series) in cells.iter().zip(&sampled.cells) {
        let Ready { sealed, facts, .. } = workers[worker].ready();
        for series in series {
            let chosen = chosen(options, size, then).chain([("measure", json!(series.measure.name()))]);
            let observed = [("sealed_bytes", json!(sealed)), ("facts", json!(facts))];
            results.keep(way.name(), chosen, observed, "us", series, sampled.ended)?;
        }
    }
    whole
}

/// Why a parent is not what its ways need, if so.
fn flaw(spec: &Spec, ready: &Ready) -> Option<String> {
    let parent::Spec { method, size, .. } = spec.parent;
    match method {
        _ if !spec.touch => None,
        Method::Seal if ready.sealed < size / 2 => Some(format!("only {} could be sealed", show(ready.sealed))),
        _ => spec.parent.flaw(&ready.facts),
    }
}

/// What was chosen for all phases of a cell.
fn chosen(options: &CreationOptions, size: u64, then: Then) -> impl Iterator<Item = (&'static str, Value)> {
    let all = [
        ("size", json!(size)),
        ("then", json!(then.name())),
        ("touch", json!(if options.touch == Touch::All { "all" } else { "none" })),
        ("extra_fds", json!(options.fds)),
        ("extra_vmas", json!(options.vmas)),
    ];
    let program = (then == Then::Exec).then(|| ("program", json!(PROGRAM.to_string_lossy())));
    all.into_iter().chain(program)
}
