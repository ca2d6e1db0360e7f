//! The records of `bench fuzz`: what tells them apart, and how they are found again.

use super::{EXPERIMENT, afl_stats::AflStats, campaign::Campaign};
use crate::{prelude::*, subjects::shim::ShimReport};

const RATE: &str = "rate over time";
const MEAN: &str = "mean rate of each slice";
const START_UP: &str = "start-up";
const EQUAL: &str = "edges after equal work";

/// What records are made of: all of a run share this.
#[derive(Clone, Copy)]
pub struct Made {
	pub database_bytes: u64,
	/// The CPU AFL and the fuzzed program share.
	pub cpu: usize,
}

impl Made {
	/// Keeps one slice of a method's time: executions per second in windows of a second.
	pub fn keep_slice(self, method: Method, slice: usize, seed: u64, campaign: &Campaign, run: &mut Run) -> Result {
		let ends: Vec<f64> = campaign.windows.iter().map(|window| window.end).collect();
		let row = self.row(method, RATE, "1/s").chosen("slice", slice).chosen("afl_seed", seed).beside(json!({
			"t_s": ends,
			"executions": campaign.executions,
			"seconds": campaign.seconds,
			"startup_s": campaign.startup,
			"afl": campaign.afl,
			"heap_huge_fraction": campaign.pages.huge_fraction(),
			"shim": campaign.shim,
		}));
		run.keep(row, campaign.windows.iter().map(|window| window.rate).collect())
	}

	/// Keeps the mean rates and the start-up times of a method's slices.
	pub fn keep_slices(self, method: Method, slices: &[Slice], run: &mut Run) -> Result {
		let means = slices.iter().map(|slice| slice.executions as f64 / slice.seconds).collect();
		run.keep(self.row(method, MEAN, "1/s"), means)?;
		run.keep(self.row(method, START_UP, "s"), slices.iter().map(|slice| slice.startup_s).collect())
	}

	/// Keeps a method's coverage after as many executions as the slowest method managed in a slice.
	pub fn keep_equal(self, method: Method, afl: &AflStats, run: &mut Run) -> Result {
		let row = self.row(method, EQUAL, "edges").beside(json!({ "executions": afl.executions, "afl": afl }));
		run.keep(row, vec![afl.edges as f64])
	}

	fn row(self, method: Method, measure: &str, unit: &'static str) -> Row {
		let chosen = json!({ "measure": measure, "database_bytes": self.database_bytes });
		Row::of(method.as_ref(), unit, chosen).beside(json!({ "cpu": self.cpu }))
	}
}

/// What was observed beside a slice's rates.
#[derive(Clone, PartialEq, Deserialize)]
pub struct Slice {
	/// Executions since the first.
	pub executions: u64,
	/// Seconds since the first.
	pub seconds: f64,
	/// Seconds from AFL's start to the first execution.
	pub startup_s: f64,
	/// AFL's own account.
	pub afl: AflStats,
	/// The share of the fork server's heap on huge pages.
	pub heap_huge_fraction: f64,
	/// What the shim did, where there was one.
	pub shim: Option<ShimReport>,
}

/// The methods that were measured, in table order.
pub fn methods(records: &[Record]) -> impl Iterator<Item = Method> {
	Method::all().filter(|&method| series(records, method).next().is_some())
}

/// The slices of `method`, in order.
pub fn slices(records: &[Record], method: Method) -> Vec<Slice> {
	let observed = |record: &Record| serde_json::to_value(&record.observed).and_then(serde_json::from_value).ok();
	series(records, method).filter_map(observed).collect()
}

/// AFL's account of `method` after equal work.
pub fn equal(document: &Document, method: Method) -> Option<AflStats> {
	let record = document.find(EXPERIMENT, method, json!({ "measure": EQUAL }))?;
	serde_json::from_value(record.observed.get("afl")?.clone()).ok()
}

/// Executions per second in windows of a second, slice by slice.
pub fn rates(document: &Document, method: Method) -> Rounds {
	Rounds(series(&document.records, method).map(|record| record.samples.clone()).collect())
}

/// Executions per second over all slices: the paper's average.
pub fn mean_rate(slices: &[Slice]) -> f64 {
	let executions: u64 = slices.iter().map(|slice| slice.executions).sum();
	executions as f64 / slices.iter().map(|slice| slice.seconds).sum::<f64>()
}

/// How many times the executions per second of `other` those of `method` are.
pub fn ratio(document: &Document, method: Method, other: Method) -> Option<Ratio> {
	ratio_of_medians(&rates(document, method), &rates(document, other))
}

fn series(records: &[Record], method: Method) -> impl Iterator<Item = &Record> {
	let is = move |record: &&Record| record.method == method.as_ref() && record.text("measure") == Some(RATE);
	records.iter().filter(is)
}
