//! `bench compare`: two record files, cell by cell, with a verdict in words.
//!
//! docs/MEASURING.md says what counts as a difference. Samples of one round share the state of the machine at that
//! moment, so where the rounds are known the test compares their medians.

mod text;

use std::path::Path;

use serde::Serialize;

use crate::{
	BenchError, Result,
	host::HostCard,
	record::{Document, Record, Values},
	stats::{RankTest, Ratio, Rounds, holm, median, rank_test, ratio_of_medians, smallest_p},
};

/// Differences of medians up to this share are of no consequence, significant or not.
const NEGLIGIBLE: f64 = 0.03;
/// A difference counts when chance makes one like it less often than this, over all cells together.
const CHANCE: f64 = 0.01;
/// What is said about one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
	/// The second file's figure is lower.
	Lower,
	/// The second file's figure is higher.
	Higher,
	/// Different beyond chance, but by too little to matter.
	Negligible,
	/// No difference beyond chance.
	Same,
	/// So few rounds that even a difference without any overlap could be chance.
	TooFew,
}

/// One cell that both files have.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
	/// Which: experiment, method and what was chosen.
	pub cell: String,
	/// Its experiment and method.
	#[serde(skip)]
	what: String,
	#[serde(skip)]
	chosen: Values,
	/// The unit of the medians.
	pub unit: String,
	/// The first file's median.
	pub first: f64,
	/// The second file's.
	pub second: f64,
	/// The second divided by the first; `None` when the first is zero.
	pub ratio: Option<f64>,
	/// The ratio's 95 % interval.
	pub interval: Option<[f64; 2]>,
	/// The chance of such a difference without a cause, adjusted for all cells; `None` with too few rounds.
	pub p: Option<f64>,
	/// The verdict.
	pub verdict: Verdict,
}

/// Two files compared.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
	/// Every cell both have, in the first file's order.
	pub cells: Vec<Cell>,
	/// How many records only one of them has.
	pub unmatched: [usize; 2],
	/// Where the machines differ.
	pub hosts: Vec<String>,
}

/// Compares the record files `first` and `second`. Fails when one can't be read or they have no cell in common.
pub fn files(first: &Path, second: &Path) -> Result<Comparison> {
	documents(&Document::read(first)?, &Document::read(second)?)
}

/// Compares two documents. Fails when they have no cell in common.
pub fn documents(first: &Document, second: &Document) -> Result<Comparison> {
	let mut rest: Vec<&Record> = second.records.iter().collect();
	let (mut pairs, mut only_first) = (Vec::new(), 0);
	for record in &first.records {
		match rest.iter().position(|other| is_same_cell(other, record)) {
			Some(index) => pairs.push((record, rest.remove(index))),
			None => only_first += 1,
		}
	}
	if pairs.is_empty() {
		let why = "the two files have no cell in common; compare runs of the same experiment with the same options";
		return Err(BenchError::Unable(why.to_owned()));
	}
	let tests: Vec<Option<RankTest>> =
		pairs.iter().map(|(a, b)| rank_test(&units(&a.rounds()), &units(&b.rounds()))).collect();
	let mut adjusted = holm(&tests.iter().flatten().map(|test| test.p).collect::<Vec<_>>()).into_iter();
	let number = tests.iter().flatten().count();
	let cells = pairs
		.into_iter()
		.zip(tests)
		.map(|((a, b), test)| judge(a, b, number, test.and_then(|_| adjusted.next())))
		.collect();
	Ok(Comparison { cells, unmatched: [only_first, rest.len()], hosts: differences(&first.host, &second.host) })
}

/// Figures in different units are not of the same cell, whatever it is called.
fn is_same_cell(a: &Record, b: &Record) -> bool {
	(&a.experiment, &a.method, &a.chosen, &a.unit) == (&b.experiment, &b.method, &b.chosen, &b.unit)
}

/// One figure per round.
fn units(rounds: &Rounds) -> Vec<f64> {
	rounds.0.iter().filter(|round| !round.is_empty()).map(|round| median(&mut round.clone())).collect()
}

/// `p`: adjusted for all `number` cells that were tested.
fn judge(a: &Record, b: &Record, number: usize, p: Option<f64>) -> Cell {
	let ratio = ratio_of_medians(&a.rounds(), &b.rounds()).map(inverse).filter(|ratio| ratio.value.is_finite());
	// What the surest difference would have, were it the surest of all cells.
	let surest = || smallest_p(units(&a.rounds()).len(), units(&b.rounds()).len()) * number as f64;
	let verdict = match (p, a.p50, b.p50) {
		(None, ..) => Verdict::TooFew,
		(Some(p), ..) if p >= CHANCE && surest() >= CHANCE => Verdict::TooFew,
		(Some(p), ..) if p >= CHANCE => Verdict::Same,
		(_, first, second) if (second - first).abs() <= NEGLIGIBLE * first.abs() => Verdict::Negligible,
		(_, first, second) if second < first => Verdict::Lower,
		_ => Verdict::Higher,
	};
	Cell {
		cell: a.name(),
		what: format!("{} {}", a.experiment, a.method),
		chosen: a.chosen.clone(),
		unit: a.unit.clone(),
		first: a.p50,
		second: b.p50,
		ratio: ratio.map(|ratio| ratio.value),
		interval: ratio.map(|ratio| [ratio.interval.low, ratio.interval.high]),
		p,
		verdict,
	}
}

/// Second by first, from first by second.
fn inverse(ratio: Ratio) -> Ratio {
	let interval = crate::stats::Interval { low: 1.0 / ratio.interval.high, high: 1.0 / ratio.interval.low };
	Ratio { value: 1.0 / ratio.value, interval }
}

fn differences(first: &HostCard, second: &HostCard) -> Vec<String> {
	let mut differences = Vec::new();
	let mut differ = |what: &str, a: String, b: String| {
		if a != b {
			differences.push(format!("{what}: {a} and {b}"));
		}
	};
	differ("CPU", first.cpu.clone(), second.cpu.clone());
	differ("CPUs", first.cpus.to_string(), second.cpus.to_string());
	differ("kernel", first.kernel.clone(), second.kernel.clone());
	let thp = |host: &HostCard| host.thp_enabled.clone().unwrap_or("unavailable".into());
	differ("huge pages", thp(first), thp(second));
	differ("flashfork", first.flashfork.clone(), second.flashfork.clone());
	let busy = |host: &HostCard| if host.warning().is_some() { "busy" } else { "quiet" }.to_owned();
	differ("the machine when it began", busy(first), busy(second));
	differences
}

#[cfg(test)]
mod tests {
	use super::*;
	use serde_json::json;

	fn series(mean: f64, noise: f64, seed: u64) -> Vec<f64> {
		let mut random = fastrand::Rng::with_seed(seed);
		(0..60).map(|_| mean * (1.0 + noise * (random.f64() - 0.5))).collect()
	}

	fn record(method: &str, size: u64, samples: Vec<f64>) -> Record {
		let observed = [("vmas", json!(samples.len() * 3)), ("ended", json!("time"))];
		Record::new("fork", method, [("size", json!(size))], "us", samples).unwrap().beside(observed)
	}

	fn document(records: Vec<Record>) -> Document {
		Document::here(records).unwrap()
	}

	#[test]
	fn a_known_change_is_found_and_nothing_else() {
		let make = |seed, change: f64| {
			document(vec![
				record("fork-4k", 1, series(50.0, 0.2, seed)),
				record("seal", 1, series(50.0 * change, 0.2, seed + 1)),
				record("seal", 2, series(80.0 * 1.005, 0.001, seed + 2)),
			])
		};
		let found = documents(&make(1, 1.0), &make(11, 1.4)).unwrap();
		let verdicts: Vec<Verdict> = found.cells.iter().map(|cell| cell.verdict).collect();
		assert_eq!(verdicts, [Verdict::Same, Verdict::Higher, Verdict::Same]);
		let [low, high] = found.cells[1].interval.unwrap();
		assert!((low..high).contains(&1.4), "{low} {high}");
		let sentence = found.sentence();
		assert!(
			sentence.starts_with("1 of 3 cells differs: in 0 the second file is lower, in 1 higher."),
			"{sentence}"
		);
		assert!(sentence.contains("seal: size 1") && found.table(false).contains("second is higher"));
		let back = documents(&make(11, 1.4), &make(1, 1.0)).unwrap();
		assert_eq!(back.cells[1].verdict, Verdict::Lower);
	}

	#[test]
	fn a_sure_difference_too_small_to_matter_is_said_to_be_so() {
		let first = document(vec![record("seal", 1, series(100.0, 0.001, 1))]);
		let second = document(vec![record("seal", 1, series(101.0, 0.001, 2))]);
		let found = documents(&first, &second).unwrap();
		assert_eq!(found.cells[0].verdict, Verdict::Negligible);
		assert_eq!(found.sentence(), "No difference that matters in any of 1 cell.");
	}

	#[test]
	fn samples_of_one_round_are_one_voice() {
		// Three rounds of twenty equal samples each: sixty samples that say no more than three.
		let rounds = |level: f64| {
			let samples: Vec<f64> = (0..60).map(|i| level + f64::from(i / 20)).collect();
			document(vec![record("seal", 1, samples).beside([("samples_per_round", json!([20, 20, 20]))])])
		};
		let found = documents(&rounds(10.0), &rounds(30.0)).unwrap();
		assert_eq!((found.cells[0].verdict, found.cells[0].p), (Verdict::TooFew, None));
	}

	#[test]
	fn what_no_difference_could_prove_is_not_called_the_same() {
		// Four rounds against four: no overlap at all has a chance of 3 in 100.
		let found = documents(
			&document(vec![record("seal", 1, vec![1.0, 2.0, 3.0, 4.0])]),
			&document(vec![record("seal", 1, vec![50.0, 60.0, 70.0, 80.0])]),
		)
		.unwrap();
		assert_eq!(found.cells[0].verdict, Verdict::TooFew);
		assert!(found.cells[0].p.is_some_and(|p| p < 0.05), "{:?}", found.cells[0]);
		assert!(found.sentence().contains("1 of 1 cell has too few rounds to tell"), "{}", found.sentence());
	}

	#[test]
	fn what_only_one_has_and_other_hosts_are_told() {
		let first = document(vec![record("seal", 1, series(5.0, 0.1, 1)), record("odf", 1, series(5.0, 0.1, 1))]);
		let mut second = document(vec![record("seal", 1, series(5.0, 0.1, 3))]);
		second.host.kernel = "2.6.27".into();
		let found = documents(&first, &second).unwrap();
		assert_eq!((found.cells.len(), found.unmatched), (1, [1, 0]));
		assert!(found.table(false).contains("2.6.27"), "{}", found.table(false));
		let none = documents(&first, &document(vec![record("seal", 9, vec![1.0; 5])])).unwrap_err();
		assert!(none.to_string().contains("no cell in common"));
	}

	#[test]
	fn two_runs_of_an_experiment_are_compared_whatever_they_measured_beside() {
		let with = |seed: u64| {
			let record = record("cpython", 1, series(0.0004, 0.01, seed)).beside([("in_use", json!([seed, seed + 1]))]);
			document(vec![Record { unit: "ratio".into(), ..record }])
		};
		let found = documents(&with(1), &with(7)).unwrap();
		assert_eq!(found.cells[0].verdict, Verdict::Same);
		assert_eq!(found.cells[0].cell, "fork cpython: size 1");
		assert!(found.table(true).contains("0.04"), "a small share is told: {}", found.table(true));
		let table = found.table(false);
		assert!(table.contains("1 cell without a difference") && !table.contains("cpython"), "{table}");
	}

	#[test]
	fn what_all_cells_shown_have_in_common_is_said_once() {
		let with = |method: &str, size: u64, mean: f64, seed| {
			let chosen = [("size", json!(size)), ("measure", json!("call"))];
			Record::new("fork", method, chosen, "us", series(mean, 0.1, seed)).unwrap()
		};
		let first = document(vec![with("seal", 1 << 20, 5.0, 1), with("seal", 1 << 30, 5.0, 2)]);
		let second = document(vec![with("seal", 1 << 20, 9.0, 3), with("seal", 1 << 30, 9.0, 4)]);
		let table = documents(&first, &second).unwrap().table(false);
		assert!(table.contains("In all of them: measure call."), "{table}");
		assert!(table.contains(" fork seal: size 1M ") && table.contains(" fork seal: size 1G "), "{table}");
		assert!(table.contains("Over all cells the second file's figures are 1.8"), "{table}");
	}

	#[test]
	fn figures_in_different_units_are_not_compared() {
		let first = document(vec![record("seal", 1, series(5.0, 0.1, 1)), record("seal", 2, series(5.0, 0.1, 2))]);
		let mut second = first.clone();
		second.records[1].unit = "s".into();
		let found = documents(&first, &second).unwrap();
		assert_eq!((found.cells.len(), found.unmatched), (1, [1, 1]));
	}
}
