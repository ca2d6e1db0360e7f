//! The project's promises about forking, checked against what was measured: shown, never asserted.

use super::{
	found::{empty_beside, find},
	probe::Measure,
	sealing::{self, CPU, EXTRA_REPORTED, EXTRA_SEEN, TIME, Way},
	touch::ParentState,
};
use crate::prelude::*;
use flashfork_measure::stats::median_interval;

const GB: u64 = 1 << 30;
/// The share of pages in the promise about parents that write: 0.01 %.
const FEW: ParentState = ParentState::Wrote(100);

/// Every promise, with what the records say about it.
pub fn check(document: &Document) -> Vec<Target> {
	let to_empty = |what: String, size, state, times| {
		Target::at_most(what, times, Unit::Times, sealed_to_empty(document, size, state))
	};
	let times_faster = |what: &str, measure, plain, times| {
		let found = faster(document, plain, Method::Seal, GB, measure);
		Target::at_least(format!("1G, {what}: {plain} ÷ seal"), times, found)
	};
	let idle = |size| {
		to_empty(format!("fork call, sealed {}, idle ÷ empty process", Size(size)), size, ParentState::Idle, 1.3)
	};
	let mixed = "cycle with 25 reads, 25 writes";
	let of = |way, figure| sealing::find(document, figure, GB, way).map(|record| record.samples.as_slice());
	let small = |figure| of(Way::Small, figure);
	let per_gb = |what: &str, most, samples: Option<&[f64]>| {
		Target::at_most(format!("sealing 1G {what}"), most, Unit::SecondsPerGb, samples.and_then(of_samples))
	};
	let extra = small(EXTRA_REPORTED).zip(small(EXTRA_SEEN));
	let extra = extra.and_then(|(own, seen)| of_samples(&larger(own, seen)));
	vec![
		idle(GB),
		idle(4 * GB),
		idle(8 * GB),
		times_faster("fork call", Measure::Call, Method::Fork4k, 100.0),
		times_faster("fork call", Measure::Call, Method::ForkThp, 5.0),
		to_empty("fork call, sealed 1G, read all, wrote 0.01 % ÷ empty process".to_owned(), GB, FEW, 5.0),
		times_faster(mixed, Measure::MixedCycle, Method::Fork4k, 40.0),
		times_faster(mixed, Measure::MixedCycle, Method::ForkThp, 3.0),
		per_gb("on 4 KB pages", 0.4, small(TIME)),
		per_gb("from 4 KB pages, CPU", 0.22, of(Way::Default, CPU)),
		per_gb("from THP, CPU", 0.15, of(Way::DefaultFromThp, CPU)),
		Target::at_most("sealing 1G on 4 KB pages, extra memory at the peak", f64::from(128 << 20), Unit::Bytes, extra),
	]
}

/// How many times longer than in the empty process beside it the fork call of a sealed parent took.
fn sealed_to_empty(document: &Document, size: u64, state: ParentState) -> Option<Ratio> {
	to_empty(document, find(document, Method::Seal, size, state, Measure::Call)?)
}

/// A record's median divided by that of the empty process measured beside it.
pub fn to_empty(document: &Document, record: &Record) -> Option<Ratio> {
	ratio_of(Some(record), empty_beside(document, record))
}

/// How many times faster than `plain` an idle parent of the same size with `engine` was.
pub fn faster(document: &Document, plain: Method, engine: Method, size: u64, measure: Measure) -> Option<Ratio> {
	let record = |method| find(document, method, size, ParentState::Idle, measure);
	ratio_of(record(plain), record(engine))
}

/// Of each seal, what it said itself or what was seen from outside.
fn larger(own: &[f64], seen: &[f64]) -> Vec<f64> {
	own.iter().zip(seen).map(|(own, seen)| own.max(*seen)).collect()
}

fn of_samples(samples: &[f64]) -> Option<Ratio> {
	let interval = median_interval(&Rounds::independent(samples))?;
	Some(Ratio { value: median(&mut samples.to_vec()), interval })
}
