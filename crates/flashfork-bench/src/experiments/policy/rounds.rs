//! Every cell of the grid, each run in its own process, engines in random order.

use super::{
	PolicyOptions,
	subject::{Ask, PolicySubject, Reply, Spec, Who},
};
use crate::{prelude::*, subjects::parent::RESERVE};
use flashfork_measure::order::shuffled_rounds;

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

	fn row(&self, who: Who, measure: &str, unit: &'static str) -> Row {
		let chosen = json!({ "measure": measure, "size": self.size, "dirty_percent": self.percent, "thp": self.thp });
		let row = Row::of(who.as_ref(), unit, chosen);
		if self.in_a_row { row.chosen("in_a_row", true) } else { row }
	}

	fn pages(&self) -> usize {
		(self.size as f64 / 4096.0 * self.percent / 100.0).round() as usize
	}
}

pub fn measure(options: &PolicyOptions, run: &mut Run) -> Result {
	let (sizes, marks) = (options.sizes(), options.forks());
	let largest = sizes.iter().max().copied().unwrap_or(0);
	// A seal holds written pages twice.
	memory::require(&memory::headroom()?, format!("{}, sealed,", show(largest)), 2 * largest + RESERVE)?;
	// Memory that a virtual machine's host has yet to give it would be the loss of whoever seals first.
	let warm_up = Spec { who: Who::Fork, thp: true, size: 2 * largest, cpu: pin::chosen_cpu()? };
	drop(Worker::<PolicySubject>::start("warm-up", &warm_up)?);
	for &size in &sizes {
		let dirty = options.dirty();
		run.begin(&show(size), (2 * dirty.len() * options.rounds() * Who::VARIANTS.len()) as u64);
		for thp in [false, true] {
			for &percent in &dirty {
				let cell = Cell { thp, size, percent, in_a_row: options.in_a_row };
				if run.no_time_for(cell.name()) {
					continue;
				}
				match runs(&cell, &marks, options.rounds(), run)? {
					Err(flaw) => run.leave_out(cell.name(), flaw),
					Ok(runs) => {
						for (who, runs) in Who::all().zip(&runs) {
							keep(run, who, &cell, &marks, runs)?;
						}
					}
				}
			}
		}
	}
	Ok(())
}

/// What came of a cell, by engine in the order of [`Who`]; or why its memory is not what it should be.
type Runs = Result<[Vec<Reply>; 3], String>;

fn runs(cell: &Cell, marks: &[usize], rounds: usize, run: &mut Run) -> Result<Runs> {
	let cpu = pin::chosen_cpu()?;
	let mut runs = [const { Vec::new() }; 3];
	for order in shuffled_rounds(rounds, Who::VARIANTS.len(), cell.size) {
		for i in order {
			run.go_on()?;
			let spec = Spec { who: Who::VARIANTS[i], thp: cell.thp, size: cell.size, cpu };
			let name = format!("{} {}", spec.who.as_ref(), show(cell.size));
			let mut worker = Worker::<PolicySubject>::start(name, &spec)?;
			if let Some(why) = spec.parent().flaw(worker.ready()) {
				return Ok(Err(why));
			}
			runs[i].push(worker.ask(&Ask {
				pages: cell.pages(),
				in_a_row: cell.in_a_row,
				marks: marks.to_vec(),
				budget: BUDGET,
			})?);
			run.step();
		}
	}
	Ok(Ok(runs))
}

/// Records of an engine in a cell: the time of a cycle, over all up to each mark and over those since the mark before;
/// and memory.
fn keep(run: &mut Run, who: Who, cell: &Cell, marks: &[usize], runs: &[Reply]) -> Result {
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
		run.keep(cell.row(who, "all", "us").chosen("forks", forks), all)?;
		run.keep(cell.row(who, "latest", "us").chosen("forks", forks), latest.collect())?;
	}
	let extra = runs.iter().map(|run| run.extra as f64 / cell.size as f64).collect();
	run.keep(cell.row(who, "extra_memory", "times"), extra)?;
	run.keep(cell.row(who, "longest_wait", "us"), runs.iter().map(|run| run.longest_wait).collect())?;
	if !missing.is_empty() {
		let why = format!("{} forks would take more than {} s", missing.join(", "), BUDGET / 1000);
		run.leave_out(format!("{}, {}", who.as_ref(), cell.name()), why);
	}
	Ok(())
}

#[cfg(test)]
mod tests {
	use super::{super::EXPERIMENT, *};
	use flashfork_measure::{Silent, experiment::Nowhere};

	#[test]
	fn a_run_becomes_its_records_and_what_it_did_not_reach_is_said() {
		let mut silent = Silent;
		let mut run = Run::new(EXPERIMENT, &Nowhere, &mut silent);
		let cell = Cell { thp: true, size: 1 << 20, percent: 10.0, in_a_row: true };
		assert_eq!(cell.pages(), 26);
		let reply = |taken: &[f64]| Reply { taken: taken.to_vec(), extra: 1 << 18, longest_wait: 5.0 };
		let runs = [reply(&[100.0, 1_000.0]), reply(&[140.0])];
		keep(&mut run, Who::Auto, &cell, &[10, 100, 1_000], &runs).unwrap();
		let samples: Vec<_> = run.records.iter().map(|record| record.samples.clone()).collect();
		assert_eq!(
			samples,
			[vec![10.0, 14.0], vec![10.0, 14.0], vec![10.0], vec![10.0], vec![0.25, 0.25], vec![5.0, 5.0]]
		);
		assert_eq!(run.missing.len(), 1);
		assert!(run.records.iter().all(|record| record.chosen["in_a_row"] == json!(true)));
		assert!(run.missing[0].reason.contains("1000 forks") && run.missing[0].cell.contains("1 MB, THP"));
	}
}
