//! The tables of `bench unit-test`.

use super::{
	EXPERIMENT,
	case::Case,
	cycle::Phase,
	found::{HUGE_HEAP, INITIALISE, SEAL, SEALED, SEALED_HUGE, find, methods, once, pooled, ratio as of},
	plan::harnesses,
};
use crate::prelude::*;

/// The size the project's promises are about.
const PROMISED: u64 = 1 << 30;
/// By how much of it an image may be larger or smaller.
const ABOUT: u64 = PROMISED / 10;

pub fn render_all(document: &Document) -> String {
	let mut parts = vec![heading(document), preparation(document), tests(document), speedups(document)];
	if chosen(document, "database_bytes").is_some_and(|bytes| bytes.abs_diff(PROMISED) < ABOUT) {
		parts.push(promises(&targets(document)));
	}
	page(document, parts)
}

fn chosen(document: &Document, name: &str) -> Option<u64> {
	document.of(EXPERIMENT).next()?.number(name)
}

fn heading(document: &Document) -> String {
	let jobs = chosen(document, "jobs").unwrap_or(1) as usize;
	format!(
		"SQLite {}, database of {} in memory, {} per method{}, each pinned to one CPU. Medians of interleaved rounds.\n\
		 Every clone found what its parent had counted; every database was unchanged afterwards (checksum over all tables).",
		rusqlite::version(),
		show(chosen(document, "database_bytes").unwrap_or(0)),
		harnesses(jobs),
		if jobs > 1 { " at the same time" } else { "" },
	)
}

fn preparation(document: &Document) -> String {
	let row = |method: Method| {
		let figure =
			|phase, show: fn(f64) -> String| shown(once(document, method, phase).map(|record| show(record.p50)));
		let seconds = |phase| figure(phase, |seconds| time(seconds * 1e6));
		let huge = if method == Method::Seal { SEALED_HUGE } else { HUGE_HEAP };
		vec![
			method.as_ref().to_owned(),
			seconds(INITIALISE),
			seconds(SEAL),
			figure(SEALED, |bytes| show(bytes as u64)),
			figure(huge, |share| format!("{:.0} %", share * 100.0)),
		]
	};
	let headers = "method || initialise (load) | seal | sealed | on 2 MB pages";
	titled("Once per harness", headers, methods(document).into_iter().map(row))
}

fn tests(document: &Document) -> String {
	let mut rows = Vec::new();
	for case in Case::all() {
		for method in methods(document) {
			let record = |phase| find(document, method, case, phase);
			let mut row = vec![case.as_ref().to_owned(), method.as_ref().to_owned()];
			row.extend(Phase::all().map(|phase| median_time(record(phase))));
			row.push(spread(record(Phase::Whole)));
			rows.push(row);
		}
	}
	titled("Each test, in a clone", "test | method || clone | test | reap | whole | p10–p90", rows)
}

/// "seal against fork-4k: clone phase 270 × (251–291) faster, whole test 60 × (55–62)"; the same for odf.
fn speedups(document: &Document) -> String {
	let line = |engine: Method, plain: Method| {
		let times = |phase| of(document, plain, engine, Case::VARIANTS, phase).map(|found| found.to_string());
		Some(format!(
			"{engine} against {plain}: clone phase {} as fast, whole test {} as fast",
			times(Phase::Clone)?,
			times(Phase::Whole)?
		))
	};
	let pairs = [Method::Seal, Method::Odf]
		.into_iter()
		.flat_map(|engine| [Method::Fork4k, Method::ForkThp].into_iter().filter_map(move |plain| line(engine, plain)));
	let lines = pairs.chain(without_clones(document));
	lines.collect::<Vec<_>>().join("\n")
}

/// What cloning saves at all, as the paper's table 2 asks.
fn without_clones(document: &Document) -> Option<String> {
	let load = once(document, Method::Fork4k, INITIALISE)?;
	let whole = Summary::of(&pooled(document, Method::Seal, Case::VARIANTS, Phase::Whole).flat())?;
	Some(format!(
		"a test in a clone: {}; loading the database for it instead: {}",
		time(whole.p50),
		time(load.p50 * 1e6)
	))
}

fn targets(document: &Document) -> Vec<Target> {
	let faster = |what: &str, phase, times| {
		let found = of(document, Method::Fork4k, Method::Seal, Case::VARIANTS, phase);
		Target::at_least(format!("{what}: fork-4k ÷ seal"), times, found)
	};
	let mut targets = vec![faster("clone phase", Phase::Clone, 100.0), faster("whole test", Phase::Whole, 25.0)];
	targets.extend(Case::all().map(|case| {
		let found = of(document, Method::Seal, Method::Fork4k, &[case], Phase::Test);
		Target::at_most(format!("test phase, {}: seal ÷ fork-4k", case.as_ref()), 2.0, Unit::Times, found)
	}));
	targets
}
