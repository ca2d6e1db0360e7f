//! Every cell of the grid, each run in a process of its own, engines in turn.

use serde_json::json;

use super::EXPERIMENT;
use super::options::PolicyOptions;
use super::subject::{Ask, PolicySubject, Spec, Who};
use crate::experiment::Results;
use crate::parent::RESERVE;
use crate::record::{Params, Record};
use crate::size::show;
use crate::worker::Worker;
use crate::{BenchError, Progress, memory, pin};

/// Milliseconds after which a run waits for no further mark.
const BUDGET: u64 = 8_000;

/// Measures the grid.
pub(super) fn measure(
    options: &PolicyOptions,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let (sizes, marks, cpu) = (options.sizes(), options.forks(), pin::chosen_cpu()?);
    let largest = sizes.iter().max().copied().unwrap_or(0);
    // A seal holds written pages twice.
    memory::require(&memory::headroom()?, format!("{}, sealed,", show(largest)), 2 * largest + RESERVE)?;
    for &size in &sizes {
        let dirty = options.dirty();
        progress.begin(&show(size), (2 * dirty.len() * options.rounds() * Who::ALL.len()) as u64);
        for thp in [false, true] {
            for &percent in &dirty {
                if progress.interrupted() {
                    return Ok(());
                }
                let mut runs = [const { Vec::new() }; 3];
                for _ in 0..options.rounds() {
                    for (who, runs) in Who::ALL.into_iter().zip(&mut runs) {
                        let name = format!("{} {}", who.name(), show(size));
                        let mut worker = Worker::<PolicySubject>::start(name, &Spec { who, thp, size, cpu })?;
                        let pages = (size as f64 / 4096.0 * percent / 100.0).round() as usize;
                        runs.push(worker.ask(&Ask { pages, marks: marks.clone(), budget: BUDGET })?);
                        progress.step();
                    }
                }
                for (who, runs) in Who::ALL.into_iter().zip(&runs) {
                    for (i, &forks) in marks.iter().enumerate() {
                        let cell = [("size", json!(size)), ("dirty_percent", json!(percent)), ("thp", json!(thp))];
                        keep(results, who, &cell, forks, runs, &marks, i)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Records for one mark: the time of a cycle, over all so far and over those since the mark before.
fn keep(
    results: &mut Results,
    who: Who,
    cell: &[(&str, serde_json::Value)],
    forks: usize,
    runs: &[Vec<f64>],
    marks: &[usize],
    i: usize,
) -> Result<(), BenchError> {
    let reached: Vec<&Vec<f64>> = runs.iter().filter(|run| run.len() > i).collect();
    if reached.is_empty() {
        return Ok(());
    }
    let before = |run: &[f64]| if i == 0 { (0.0, 0) } else { (run[i - 1], marks[i - 1]) };
    let all = reached.iter().map(|run| run[i] / forks as f64).collect();
    let latest = reached.iter().map(|run| (run[i] - before(run).0) / (forks - before(run).1) as f64).collect();
    for (measure, samples) in [("all", all), ("latest", latest)] {
        let mut params: Params = cell.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        params.insert("forks".to_owned(), json!(forks));
        params.insert("measure".to_owned(), json!(measure));
        results.records.push(Record::new(EXPERIMENT, who.name(), params, "us", samples)?);
    }
    Ok(())
}
