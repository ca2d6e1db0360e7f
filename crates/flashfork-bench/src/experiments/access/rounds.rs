//! All methods side by side.

use serde_json::json;

use super::mix::{BLOCK, MIXES, QUICK_SHARES, SHARES, Walk};
use super::options::{AccessMixOptions, FaultOptions};
use super::subject::{AccessSubject, Ask, Measure};
use crate::subjects::Method;
use crate::subjects::memory;
use crate::subjects::parent::{self, RESERVE, Spec};
use flashfork_measure::experiment::Results;
use flashfork_measure::sampling::sample;
use flashfork_measure::worker::Worker;
use flashfork_measure::{BenchError, Progress};
use flashfork_terminal::size::show;

/// Samples a visit.
const BATCH: usize = 5;

/// Bytes that a child copies which writes to two neighbouring pages, huge ones as they may be.
const FAULTS: u64 = 4 << 20;

/// Prepared parents, one for each method.
type Parents = Vec<(Method, Worker<AccessSubject>)>;

/// Parents of all methods this host can. `copied`: bytes a single one of them may copy meanwhile.
fn prepare(size: u64, copied: u64, results: &mut Results, progress: &mut dyn Progress) -> Result<Parents, BenchError> {
    let methods = parent::methods(results, progress)?;
    let needed: u64 = methods.iter().map(|method| method.memory_needed(size) + BLOCK as u64).sum();
    let what = format!("{}, one parent for each method,", show(size));
    memory::require(&memory::headroom()?, what, needed + copied + RESERVE)?;
    progress.begin("preparing parents", methods.len() as u64);
    let mut parents = Vec::new();
    for method in methods {
        if progress.interrupted() {
            break;
        }
        let spec = Spec::here(method, size)?;
        if let Some(why) = spec.shortage(copied)? {
            results.leave_out(method.name(), why, progress);
            continue;
        }
        let worker = spec.start::<AccessSubject>()?;
        progress.step();
        match spec.flaw(worker.ready()) {
            Some(flaw) => results.leave_out(method.name(), flaw, progress),
            None => parents.push((method, worker)),
        }
    }
    Ok(parents)
}

/// Measures the first write after a fork.
pub(super) fn fault(
    options: &FaultOptions,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let size = options.size.0;
    let mut parents = prepare(size, FAULTS, results, progress)?;
    let effort = options.effort().until(progress.deadline());
    progress.begin("first writes", effort.steps());
    let (sampled, done) =
        sample(parents.len(), &effort, size, progress, |cell, _| parents[cell].1.ask(&Ask::Faults { samples: BATCH }));
    for ((method, worker), series) in parents.iter().zip(&sampled.cells) {
        for series in series {
            let chosen = [("measure", json!(series.measure.name())), ("size", json!(size))];
            let observed = [("facts", json!(worker.ready()))];
            results.keep(method.name(), chosen, observed, "us", series, sampled.ended)?;
        }
    }
    done
}

/// Measures walks through the memory after a fork.
pub(super) fn access_mix(
    options: &AccessMixOptions,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let size = options.size.0;
    let mut parents = prepare(size, size, results, progress)?;
    let shares = if options.quick { &QUICK_SHARES[..] } else { &SHARES };
    let mut cells = Vec::new();
    for parent in 0..parents.len() {
        for &share in shares {
            // Nothing is read or written of nothing: one mix stands for all.
            let mixes = if share == 0 { &MIXES[..1] } else { &MIXES };
            cells.extend(mixes.iter().map(|&read| (parent, Walk { share, read })));
        }
    }
    let effort = options.effort().until(progress.deadline());
    progress.begin("mixes of reads and writes", effort.steps());
    let (sampled, done) = sample(cells.len(), &effort, size, progress, |cell, _| {
        let (parent, walk) = cells[cell];
        parents[parent].1.ask(&Ask::Walk(walk))
    });
    for (&(parent, walk), series) in cells.iter().zip(&sampled.cells) {
        let (method, worker) = &parents[parent];
        for series in series {
            let chosen = [
                ("measure", json!(series.measure.name())),
                ("size", json!(size)),
                ("accessed_percent", json!(walk.share)),
                ("read_percent", json!(walk.read)),
            ];
            let observed = [("facts", json!(worker.ready()))];
            let unit = if series.measure == Measure::Reseal { "us (not part)" } else { "us" };
            results.keep(method.name(), chosen, observed, unit, series, sampled.ended)?;
        }
    }
    done
}
