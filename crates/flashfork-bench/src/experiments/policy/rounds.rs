//! Every cell of the grid, each run in a process of its own, engines in random order.

use serde_json::{Value, json};

use super::EXPERIMENT;
use super::options::PolicyOptions;
use super::subject::{Ask, PolicySubject, Reply, Spec, Who};
use crate::subjects::memory;
use crate::subjects::parent::RESERVE;
use flashfork_measure::experiment::Results;
use flashfork_measure::order::shuffled_rounds;
use flashfork_measure::record::Record;
use flashfork_measure::worker::Worker;
use flashfork_measure::{BenchError, Progress, pin};
use flashfork_terminal::size::show;

/// Milliseconds: a mark that a run would reach later is left out.
const BUDGET: u64 = 6_000;

/// A cell: the memory of the parents, and the share of its pages that each cycle writes.
#[derive(Clone, Copy)]
struct Cell {
    thp: bool,
    size: u64,
    percent: f64,
    in_a_row: bool,
}

impl Cell {
    fn name(&self) -> String {
        let (kind, row) = (if self.thp { "THP" } else { "4 KB" }, if self.in_a_row { " in a row" } else { "" });
        format!("{}, {kind}, {} % written{row}", show(self.size), self.percent)
    }

    fn chosen(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let all = [("size", json!(self.size)), ("dirty_percent", json!(self.percent)), ("thp", json!(self.thp))];
        all.into_iter().chain(self.in_a_row.then_some(("in_a_row", json!(true))))
    }

    fn pages(&self) -> usize {
        (self.size as f64 / 4096.0 * self.percent / 100.0).round() as usize
    }
}

/// Measures the grid.
pub(super) fn measure(
    options: &PolicyOptions,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let (sizes, marks) = (options.sizes(), options.forks());
    let largest = sizes.iter().max().copied().unwrap_or(0);
    // A seal holds written pages twice.
    memory::require(&memory::headroom()?, format!("{}, sealed,", show(largest)), 2 * largest + RESERVE)?;
    // Memory that a virtual machine's host has yet to give it would be the loss of whoever seals first.
    let warm_up = Spec { who: Who::Fork, thp: true, size: 2 * largest, cpu: pin::chosen_cpu()? };
    drop(Worker::<PolicySubject>::start("warm-up", &warm_up)?);
    for &size in &sizes {
        let dirty = options.dirty();
        progress.begin(&show(size), (2 * dirty.len() * options.rounds() * Who::ALL.len()) as u64);
        for thp in [false, true] {
            for &percent in &dirty {
                let cell = Cell { thp, size, percent, in_a_row: options.in_a_row };
                if progress.deadline().passed() {
                    results.no_time_for(cell.name(), progress);
                    continue;
                }
                match runs(&cell, &marks, options.rounds(), progress)? {
                    Runs::Interrupted => return Ok(()),
                    Runs::Flawed(why) => results.leave_out(cell.name(), why, progress),
                    Runs::Done(runs) => {
                        for (who, runs) in Who::ALL.into_iter().zip(&runs) {
                            keep(results, who, &cell, &marks, runs, progress)?;
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// What came of a cell.
enum Runs {
    /// By engine, in the order of [`Who::ALL`].
    Done([Vec<Reply>; 3]),
    /// Why its memory is not what it should be.
    Flawed(String),
    Interrupted,
}

fn runs(cell: &Cell, marks: &[usize], rounds: usize, progress: &mut dyn Progress) -> Result<Runs, BenchError> {
    let cpu = pin::chosen_cpu()?;
    let mut runs = [const { Vec::new() }; 3];
    for order in shuffled_rounds(rounds, Who::ALL.len(), cell.size) {
        for i in order {
            if progress.interrupted() {
                return Ok(Runs::Interrupted);
            }
            let spec = Spec { who: Who::ALL[i], thp: cell.thp, size: cell.size, cpu };
            let name = format!("{} {}", spec.who.name(), show(cell.size));
            let mut worker = Worker::<PolicySubject>::start(name, &spec)?;
            if let Some(why) = spec.parent().flaw(worker.ready()) {
                return Ok(Runs::Flawed(why));
            }
            runs[i].push(worker.ask(&Ask {
                pages: cell.pages(),
                in_a_row: cell.in_a_row,
                marks: marks.to_vec(),
                budget: BUDGET,
            })?);
            progress.step();
        }
    }
    Ok(Runs::Done(runs))
}

/// Records of an engine in a cell: the time of a cycle, over all up to each mark and over those since the mark before;
/// and memory.
fn keep(
    results: &mut Results,
    who: Who,
    cell: &Cell,
    marks: &[usize],
    runs: &[Reply],
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let mut record = |measure: &str, forks: Option<usize>, unit, samples| {
        let chosen = cell.chosen().chain([("measure", json!(measure))]);
        let chosen = chosen.chain(forks.map(|forks| ("forks", json!(forks))));
        Record::new(EXPERIMENT, who.name(), chosen, unit, samples).map(|record| results.records.push(record))
    };
    let mut missing = Vec::new();
    for (i, &forks) in marks.iter().enumerate() {
        let reached: Vec<&[f64]> = runs.iter().map(|run| &run.taken[..]).filter(|taken| taken.len() > i).collect();
        if reached.is_empty() {
            missing.push(forks.to_string());
            continue;
        }
        let before = |taken: &[f64]| if i == 0 { (0.0, 0) } else { (taken[i - 1], marks[i - 1]) };
        let all = reached.iter().map(|taken| taken[i] / forks as f64).collect();
        let latest = reached.iter().map(|taken| (taken[i] - before(taken).0) / (forks - before(taken).1) as f64);
        record("all", Some(forks), "us", all)?;
        record("latest", Some(forks), "us", latest.collect())?;
    }
    let extra = runs.iter().map(|run| run.extra as f64 / cell.size as f64).collect();
    record("extra_memory", None, "times", extra)?;
    record("longest_wait", None, "us", runs.iter().map(|run| run.longest_wait).collect())?;
    if !missing.is_empty() {
        let why = format!("{} forks would take more than {} s", missing.join(", "), BUDGET / 1000);
        results.leave_out(format!("{}, {}", who.name(), cell.name()), why, progress);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashfork_measure::Silent;

    #[test]
    fn a_run_becomes_its_records_and_what_it_did_not_reach_is_said() {
        let mut results = Results::new(EXPERIMENT);
        let cell = Cell { thp: true, size: 1 << 20, percent: 10.0, in_a_row: true };
        assert_eq!(cell.pages(), 26);
        let run = |taken: &[f64]| Reply { taken: taken.to_vec(), extra: 1 << 18, longest_wait: 5.0 };
        let runs = [run(&[100.0, 1_000.0]), run(&[140.0])];
        keep(&mut results, Who::Auto, &cell, &[10, 100, 1_000], &runs, &mut Silent).unwrap();
        let samples: Vec<_> = results.records.iter().map(|record| record.samples.clone()).collect();
        assert_eq!(
            samples,
            [vec![10.0, 14.0], vec![10.0, 14.0], vec![10.0], vec![10.0], vec![0.25, 0.25], vec![5.0, 5.0]]
        );
        assert_eq!(results.missing.len(), 1);
        assert!(results.records.iter().all(|record| record.chosen["in_a_row"] == json!(true)));
        assert!(results.missing[0].reason.contains("1000 forks") && results.missing[0].cell.contains("1 MB, THP"));
    }
}
