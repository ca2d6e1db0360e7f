//! The records of `bench fuzz --targets`.

use super::{
	super::{EXPERIMENT, afl_stats::AflStats},
	target::Target,
	way::Way,
};
use crate::prelude::*;

const RATE: &str = "executions of a target";
const SINGLE: &str = "one input of a target";

/// A target, with or without AddressSanitizer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Build {
	pub target: Target,
	pub sanitized: bool,
}

/// One way's campaign in one slice of time.
pub struct Slice {
	pub way: Way,
	pub afl: AflStats,
}

/// What one input takes, in microseconds, the mean over many.
#[derive(Clone, Copy, PartialEq)]
pub struct Times {
	/// In one process.
	pub bare: f64,
	/// In its own fork.
	pub forked: f64,
	/// In a round that is taken back.
	pub looped: f64,
}

impl Times {
	const NAMES: [&str; 3] = ["in one process", "in a fork", "in a round on rollback"];
}

impl Build {
	/// Every build, in table order.
	pub fn all() -> impl Iterator<Item = Build> {
		let targets = [Target::Libpng, Target::Libxml2, Target::Sqlite, Target::Cjson];
		targets.into_iter().flat_map(|target| [false, true].map(|sanitized| Build { target, sanitized }))
	}

	/// What people and directories call it.
	pub fn name(self) -> String {
		format!("{}{}", self.target.as_ref(), if self.sanitized { "-asan" } else { "" })
	}

	fn row(self, method: &str, unit: &'static str, measure: &str) -> Row {
		Row::of(method, unit, self.chosen(measure))
	}

	fn chosen(self, measure: &str) -> Value {
		let sanitizer = if self.sanitized { "address" } else { "none" };
		json!({ "measure": measure, "target": self.target.as_ref(), "sanitizer": sanitizer })
	}

	/// Keeps a way's executions per second, slice by slice.
	pub fn keep_rates(self, way: Way, cpu: usize, slices: &[Slice], run: &mut Run) -> Result {
		let afl: Vec<&AflStats> = slices.iter().filter(|slice| slice.way == way).map(|slice| &slice.afl).collect();
		let row = self.row(way.as_ref(), "1/s", RATE).beside(json!({ "cpu": cpu, "afl": afl }));
		run.keep(row, afl.iter().map(|afl| afl.per_second).collect())
	}

	/// Keeps what one input takes.
	pub fn keep_times(self, times: Times, run: &mut Run) -> Result {
		let all = [times.bare, times.forked, times.looped];
		let mut named = Times::NAMES.into_iter().zip(all);
		named.try_for_each(|(name, time)| run.keep(self.row(name, "us", SINGLE), vec![time]))
	}

	fn find<'a>(self, document: &'a Document, method: &str, measure: &str) -> Option<&'a Record> {
		document.find(EXPERIMENT, method, self.chosen(measure))
	}

	/// The median rate of a way, and AFL's accounts.
	pub fn found(self, document: &Document, way: Way) -> Option<(f64, Vec<AflStats>)> {
		let record = self.find(document, way.as_ref(), RATE)?;
		Some((record.p50, serde_json::from_value(record.observed.get("afl")?.clone()).ok()?))
	}

	/// What one input takes.
	pub fn found_times(self, document: &Document) -> Option<Times> {
		let time = |name| Some(self.find(document, name, SINGLE)?.p50);
		let [bare, forked, looped] = Times::NAMES.map(time);
		Some(Times { bare: bare?, forked: forked?, looped: looped? })
	}
}

pub fn is_of_targets(document: &Document) -> bool {
	document.of(EXPERIMENT).any(|record| record.chosen.contains_key("target"))
}
