//! All methods side by side.

use serde_json::json;

use super::mix::{BLOCK, MIXES, QUICK_SHARES, SHARES, Walk};
use super::options::{AccessMixOptions, FaultOptions};
use super::subject::{AccessSubject, Ask, Measure, Spec};
use super::{ACCESS_MIX, FAULT};
use crate::fork::Method;
use crate::record::{Missing, Record};
use crate::sampling::sample;
use crate::size::show;
use crate::worker::Worker;
use crate::{BenchError, Progress, memory, pin, record};

/// Samples a visit.
const BATCH: usize = 5;
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

/// Parents of all methods this kernel can, prepared.
struct Parents {
    workers: Vec<(Method, Worker<AccessSubject>)>,
    missing: Vec<Missing>,
}

impl Parents {
    /// `copied`: bytes a single one of them may copy meanwhile.
    fn prepare(experiment: &str, size: u64, copied: u64, progress: &mut dyn Progress) -> Result<Self, BenchError> {
        let (methods, note) = Method::here();
        let needed: u64 = methods.iter().map(|method| method.memory_needed(size) + BLOCK as u64).sum();
        let what = format!("{}, one parent for each method,", show(size));
        memory::require(&memory::headroom()?, what, needed + copied + RESERVE)?;
        let mut parents = Self { workers: Vec::new(), missing: Vec::new() };
        let mut leave_out = |cell: String, reason: String, progress: &mut dyn Progress| {
            progress.note(&format!("left out: {cell}: {reason}"));
            parents.missing.push(Missing { experiment: experiment.to_owned(), cell, reason });
        };
        if let Some(note) = note {
            leave_out("odf".into(), note.trim_start_matches("left out: method odf: ").to_owned(), progress);
        }
        progress.begin("preparing parents", methods.len() as u64);
        let cpu = pin::chosen_cpu()?;
        for method in methods {
            let worker =
                Worker::<AccessSubject>::start(format!("{method} {}", show(size)), &Spec { method, size, cpu })?;
            progress.step();
            let huge = worker.ready().huge_fraction;
            if method == Method::ForkThp && huge < MOSTLY_HUGE {
                let reason = format!("the kernel gave huge pages for only {:.0} % of the memory", huge * 100.0);
                leave_out(method.name().to_owned(), reason, progress);
            } else {
                parents.workers.push((method, worker));
            }
        }
        Ok(parents)
    }
}

/// Measures the first write after a fork.
pub(super) fn fault(options: &FaultOptions, progress: &mut dyn Progress) -> Result<Results, BenchError> {
    let size = options.size.0;
    let mut parents = Parents::prepare(FAULT, size, 0, progress)?;
    let effort = options.effort();
    progress.begin("first writes", (effort.warm_up + effort.most) as u64);
    let sampled = sample(parents.workers.len(), &effort, size, progress, |cell, _| {
        parents.workers[cell].1.ask(&Ask::Faults { samples: BATCH })
    })?;
    let mut records = Vec::new();
    for ((method, worker), series) in parents.workers.iter().zip(&sampled.cells) {
        for series in series.iter().filter(|series| !series.rounds.flat().is_empty()) {
            let params =
                [("measure", json!(series.measure.name())), ("size", json!(size)), ("facts", json!(worker.ready()))];
            records.push(record::of_series(FAULT, method.name(), params, "us", series, sampled.ended)?);
        }
    }
    Ok(Results { records, missing: parents.missing })
}

/// Measures walks through the memory after a fork.
pub(super) fn access_mix(options: &AccessMixOptions, progress: &mut dyn Progress) -> Result<Results, BenchError> {
    let size = options.size.0;
    let mut parents = Parents::prepare(ACCESS_MIX, size, size, progress)?;
    let shares = if options.quick { &QUICK_SHARES[..] } else { &SHARES };
    let mut cells = Vec::new();
    for parent in 0..parents.workers.len() {
        for &share in shares {
            // Nothing is read or written of nothing: one mix stands for all.
            let mixes = if share == 0 { &MIXES[..1] } else { &MIXES };
            cells.extend(mixes.iter().map(|&read| (parent, Walk { share, read })));
        }
    }
    let effort = options.effort();
    progress.begin("mixes of reads and writes", (effort.warm_up + effort.most) as u64);
    let sampled = sample(cells.len(), &effort, size, progress, |cell, _| {
        let (parent, walk) = cells[cell];
        parents.workers[parent].1.ask(&Ask::Walk(walk))
    })?;
    let mut records = Vec::new();
    for (&(parent, walk), series) in cells.iter().zip(&sampled.cells) {
        let (method, worker) = &parents.workers[parent];
        for series in series.iter().filter(|series| !series.rounds.flat().is_empty()) {
            let params = [
                ("measure", json!(series.measure.name())),
                ("size", json!(size)),
                ("accessed_percent", json!(walk.share)),
                ("read_percent", json!(walk.read)),
                ("facts", json!(worker.ready())),
            ];
            let unit = if series.measure == Measure::Reseal { "us (not part)" } else { "us" };
            records.push(record::of_series(ACCESS_MIX, method.name(), params, unit, series, sampled.ended)?);
        }
    }
    Ok(Results { records, missing: parents.missing })
}
