//! What has become of requests and events, while something failed.

use std::collections::{BTreeMap, BTreeSet};

use super::{EXPERIMENT, faults::Fault};
use crate::prelude::*;

/// Two kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::AsRefStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
	Call,
	Event,
}

/// How a request that was served has ended, in the name of what is counted. All others end by a status.
pub const SERVED: &str = "served";

/// Of events that were accepted.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Fate {
	/// Those with a result.
	Ended,
	/// Those of which the result is that they failed.
	Failed,
	/// Those without one in the end.
	Lost,
	/// Those with two that were recorded, whether they were accepted or not.
	Doubled,
	/// Those that ran more than once.
	Again,
}

/// One fault's.
#[derive(Default)]
pub struct Tally {
	requests: BTreeMap<(Kind, String), u64>,
	/// Microseconds.
	longest: BTreeMap<Kind, f64>,
	/// The numbers of events that were accepted, by their ids.
	pub accepted: BTreeMap<String, u64>,
	/// How often each number has run.
	pub runs: BTreeMap<u64, u32>,
	/// For each id that has a result, where its records are in their stream, as far as they were seen.
	pub records: BTreeMap<String, BTreeSet<u64>>,
	/// Those whose result is that they failed.
	pub failed: BTreeSet<String>,
	/// Those that have none.
	pub lost: BTreeSet<String>,
}

impl Tally {
	/// A request has come to an end.
	pub fn note(&mut self, kind: Kind, end: String, took: Duration) {
		*self.requests.entry((kind, end)).or_default() += 1;
		let longest = self.longest.entry(kind).or_default();
		*longest = longest.max(us(took));
	}

	/// Every figure, by the name that records have it under.
	pub fn figures(&self) -> BTreeMap<String, f64> {
		let fate = |fate| match fate {
			Fate::Ended => self.accepted.len() - self.lost.len(),
			Fate::Failed => self.failed.len(),
			Fate::Lost => self.lost.len(),
			Fate::Doubled => self.records.values().filter(|records| records.len() > 1).count(),
			Fate::Again => self.accepted.values().filter(|number| self.runs.get(number) > Some(&1)).count(),
		};
		let requests = self.requests.iter().map(|((kind, end), &count)| (counted(*kind, end), count as f64));
		let longest = self.longest.iter().map(|(kind, &longest)| (longest_of(*kind), longest));
		let fates = Fate::all().map(|one| (one.as_ref().to_owned(), fate(one) as f64));
		requests.chain(longest).chain(fates).collect()
	}
}

fn counted(kind: Kind, end: &str) -> String {
	format!("{} {end}", kind.as_ref())
}

fn longest_of(kind: Kind) -> String {
	format!("longest {}", kind.as_ref())
}

/// Keeps what was counted in each round.
pub fn keep(run: &mut Run, fault: Fault, rounds: &[Tally]) -> Result {
	let rounds: Vec<_> = rounds.iter().map(Tally::figures).collect();
	let names: BTreeSet<&String> = rounds.iter().flat_map(BTreeMap::keys).collect();
	names.into_iter().try_for_each(|name| {
		let unit = if name.starts_with("longest") { "us" } else { "count" };
		let samples: Vec<_> = rounds.iter().map(|figures| figures.get(name).copied().unwrap_or_default()).collect();
		// Samples are rounded in records, and these are facts.
		let sum = json!({ "sum": samples.iter().sum::<f64>() });
		run.keep(Row::of(fault.as_ref(), unit, json!({ "measure": name })).beside(sum), samples)
	})
}

/// What records say of a fault.
pub struct Kept<'a> {
	document: &'a Document,
	pub fault: Fault,
}

impl<'a> Kept<'a> {
	pub fn new(document: &'a Document, fault: Fault) -> Self {
		Self { document, fault }
	}

	fn record(&self, measure: &str) -> Option<&'a Record> {
		self.document.find(EXPERIMENT, self.fault, json!({ "measure": measure }))
	}

	fn sum(&self, measure: &str) -> Option<f64> {
		sum(self.record(measure)?)
	}

	/// How many requests were served.
	pub fn served(&self, kind: Kind) -> Option<f64> {
		self.sum(&counted(kind, SERVED))
	}

	/// How many were not, by what became of them.
	pub fn others(&self, kind: Kind) -> String {
		let prefix = counted(kind, "");
		let all = self.document.of(EXPERIMENT).filter(|record| record.method == self.fault.as_ref());
		let ends = all.filter_map(|record| {
			let end = record.text("measure")?.strip_prefix(&prefix).filter(|end| *end != SERVED)?;
			Some(format!("{end}: {}", sum(record)?))
		});
		ends.collect::<Vec<_>>().join(", ")
	}

	/// The longest that a request took, in microseconds.
	pub fn longest(&self, kind: Kind) -> Option<f64> {
		self.record(&longest_of(kind)).map(|record| record.max)
	}

	/// How many events.
	pub fn fate(&self, fate: Fate) -> Option<f64> {
		self.sum(fate.as_ref())
	}
}

fn sum(record: &Record) -> Option<f64> {
	record.observed.get("sum")?.as_f64()
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn each_request_and_each_event_counts_where_it_belongs() {
		let mut tally = Tally::default();
		for (end, seconds) in [(SERVED, 1), ("504", 2), (SERVED, 1)] {
			tally.note(Kind::Call, end.to_owned(), Duration::from_secs(seconds));
		}
		// The second has run twice and the third has no result; of the first and of one not accepted two are recorded.
		tally.accepted = [("a", 1), ("b", 2), ("c", 3)].map(|(id, number)| (id.to_owned(), number)).into();
		tally.runs = [(1, 1), (2, 2), (9, 2)].into();
		tally.records = [("a", [4, 5]), ("b", [6, 6]), ("z", [7, 8])].map(|(id, at)| (id.to_owned(), at.into())).into();
		tally.lost = ["c".to_owned()].into();
		let figures = tally.figures();
		let wanted = [
			("again", 1.0),
			("call 504", 1.0),
			("call served", 2.0),
			("doubled", 2.0),
			("ended", 2.0),
			("failed", 0.0),
			("longest call", 2e6),
			("lost", 1.0),
		];
		assert!(figures.iter().map(|(name, &figure)| (name.as_str(), figure)).eq(wanted), "{figures:?}");
	}
}
