//! The tables of `bench fuzz`.

use super::{
	EXPERIMENT,
	afl_stats::AflStats,
	found::{Slice, equal, mean_rate, methods, rates, ratio as of, slices},
};
use crate::prelude::*;

/// The size the project's promise is about.
const PROMISED: u64 = 1 << 30;
/// By how much of it an image may be larger or smaller.
const ABOUT: u64 = PROMISED / 10;

pub fn render_all(document: &Document) -> String {
	let mut parts = vec![heading(document), throughput(document), coverage(document), speedups(document)];
	if database(document).abs_diff(PROMISED) < ABOUT {
		let found = of(document, Method::Seal, Method::Fork4k);
		let promise = Target::at_least("executions per second: seal ÷ fork-4k", 10.0, found);
		parts.push(promises(&[promise]));
	}
	page(document, parts)
}

fn first(document: &Document) -> Option<&Record> {
	document.of(EXPERIMENT).next()
}

fn database(document: &Document) -> u64 {
	first(document).and_then(|record| record.number("database_bytes")).unwrap_or(0)
}

fn heading(document: &Document) -> String {
	let measured: Vec<Slice> =
		methods(&document.records).flat_map(|method| slices(&document.records, method)).collect();
	let version = measured.first().map_or("", |slice| slice.afl.version.as_str());
	let cpu = first(document).and_then(|record| record.observed.get("cpu")?.as_u64()).unwrap_or(0);
	format!(
		"AFL {version}, deferred fork server, SQLite {} with a database of {} in memory, pinned to CPU {cpu}.\n\
		 The methods take turns in slices, each from the same seeds and the same random seed.",
		rusqlite::version(),
		show(database(document)),
	)
}

fn throughput(document: &Document) -> String {
	let row = |method: Method| {
		let slices = slices(&document.records, method);
		let summary = Summary::of(&rates(document, method).flat());
		let middle = |mut figures: Vec<f64>| (!figures.is_empty()).then(|| median(&mut figures));
		let shim = || slices.iter().filter_map(|slice| slice.shim);
		let huge = match method {
			Method::Seal => shim().map(|shim| shim.huge_bytes as f64 / shim.sealed_bytes as f64).collect(),
			Method::Fork4k | Method::ForkThp | Method::Hugetlb | Method::Odf => {
				slices.iter().map(|slice| slice.heap_huge_fraction).collect()
			}
		};
		vec![
			method.as_ref().to_owned(),
			shown(summary.map(|rates| three_figures(rates.p50))),
			shown(summary.map(|rates| format!("{}–{}", three_figures(rates.p10), three_figures(rates.p90)))),
			shown((!slices.is_empty()).then(|| three_figures(mean_rate(&slices)))),
			slices.len().to_string(),
			middle(shim().map(|shim| shim.fork_us).collect()).map_or(String::new(), time),
			middle(slices.iter().map(|slice| slice.startup_s * 1e6).collect()).map_or(String::new(), time),
			middle(shim().map(|shim| shim.seal_seconds * 1e6).collect()).map_or(String::new(), time),
			middle(huge).map_or(String::new(), |share| format!("{:.0} %", share * 100.0)),
		]
	};
	let headers = "method || executions/s | p10–p90 | mean | slices | fork call (mean) | start-up | of it sealing | \
				   on 2 MB pages";
	titled("Throughput, by the second", headers, methods(&document.records).map(row))
}

/// One row per method: what was found, in all slices and for equal work.
fn coverage(document: &Document) -> String {
	let row = |method: Method| {
		let slices = slices(&document.records, method);
		let most = |figure: fn(&AflStats) -> u64| slices.iter().map(|slice| figure(&slice.afl)).max().unwrap_or(0);
		let all = |figure: fn(&Slice) -> u64| slices.iter().map(figure).sum::<u64>();
		let equal = equal(document, method);
		let percent = slices.iter().map(|slice| slice.afl.coverage_percent).fold(0.0, f64::max);
		vec![
			method.as_ref().to_owned(),
			all(|slice| slice.executions).to_string(),
			most(|afl| afl.edges).to_string(),
			format!("{percent:.2} %"),
			most(|afl| afl.corpus).to_string(),
			all(|slice| slice.afl.crashes).to_string(),
			all(|slice| slice.afl.hangs).to_string(),
			shown(equal.as_ref().map(|afl| afl.edges)),
			shown(equal.as_ref().map(|afl| afl.executions)),
		]
	};
	let headers = "method || executions | edges | map | corpus | crashes | hangs | equal work: edges | executions";
	let title = "Coverage: the best slice, and after equally many executions";
	titled(title, headers, methods(&document.records).map(row))
}

/// "seal against fork-4k: 30 × (28–32) the executions per second"
fn speedups(document: &Document) -> String {
	let line = |(ours, plain): (Method, Method)| {
		let found = of(document, ours, plain)?;
		Some(format!("{ours} against {plain}: {found} the executions per second"))
	};
	let pairs = [Method::Seal, Method::Odf].map(|ours| [(ours, Method::Fork4k), (ours, Method::ForkThp)]);
	pairs.into_iter().flatten().filter_map(line).collect::<Vec<_>>().join("\n")
}
