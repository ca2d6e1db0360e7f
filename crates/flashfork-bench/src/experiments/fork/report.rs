//! The tables of `bench fork`.

use super::{
	found::{concurrent as at_once, find, groups, sizes, states},
	probe::Measure,
	sealing::{self, CPU, EXTRA_REPORTED, EXTRA_SEEN, HUGE_FRACTION, TIME, Way},
	targets::{self, faster, to_empty},
	touch::ParentState,
};
use crate::prelude::*;
use flashfork_measure::target;

pub fn render_all(document: &Document) -> String {
	let apart = sizes(document).into_iter().filter(|&size| groups(document, size) > 1).map(|size| {
		format!(
			"{}: the methods did not fit into memory together; measured one group after the other, each beside an empty process.",
			Size(size)
		)
	});
	let parts = [
		"Medians of interleaved rounds, parent and clones pinned to one CPU.".to_owned(),
		idle(document),
		speedups(document),
		touched(document),
		concurrent(document),
		sealing(document),
		promises(document),
	];
	page(document, parts.into_iter().chain(apart))
}

/// One row per size and method: the call and what the clone costs afterwards.
fn idle(document: &Document) -> String {
	let mut rows = Vec::new();
	for (size, method) in configurations(document) {
		let record = |measure| find(document, method, size, ParentState::Idle, measure);
		let Some(call) = record(Measure::Call) else { continue };
		let median = |measure| median_time(record(measure));
		rows.push(vec![
			Size(size).to_string(),
			method.as_ref().to_owned(),
			median(Measure::Call),
			spread(Some(call)),
			against_empty(document, call),
			median(Measure::Cycle),
			median(Measure::FirstWrite),
			median(Measure::Reads),
			median(Measure::MixedCycle),
		]);
	}
	let headers = "size | method || fork call | p10–p90 | ÷ empty process | fork+exit+reap | first write | 100 reads | \
				   25r+25w cycle";
	titled("Idle parent", headers, rows)
}

/// "1G: the fork call of seal is 270 × (251–291) as fast as fork-4k, ..."; the same for odf.
fn speedups(document: &Document) -> String {
	let line = |size: u64, engine: Method| {
		let parts: Vec<String> = [Method::Fork4k, Method::ForkThp]
			.into_iter()
			.filter_map(|plain| Some((plain, faster(document, plain, engine, size, Measure::Call)?)))
			.map(|(plain, found)| format!("{} as fast as {plain}", found))
			.collect();
		(size > 0 && !parts.is_empty())
			.then(|| format!("{}: the fork call of {engine} is {}", Size(size), parts.join(", ")))
	};
	let lines = sizes(document).into_iter().flat_map(|size| [line(size, Method::Seal), line(size, Method::Odf)]);
	lines.flatten().collect::<Vec<_>>().join("\n")
}

/// One row per size and method, one column per state of the parent.
fn touched(document: &Document) -> String {
	let mut states = states(document);
	states.retain(|state| *state != ParentState::Idle);
	let mut rows = Vec::new();
	for (size, method) in configurations(document) {
		let records: Vec<Option<&Record>> =
			states.iter().map(|&state| find(document, method, size, state, Measure::Call)).collect();
		if records.iter().all(Option::is_none) {
			continue;
		}
		let figure = |record: &Option<&Record>| {
			let Some(record) = record else { return String::new() };
			let median = time(record.p50);
			match to_empty(document, record) {
				Some(empty) => format!("{median} ({} ×)", three_figures(empty.value)),
				None => median,
			}
		};
		let name = [Size(size).to_string(), method.as_ref().to_owned()];
		rows.push(name.into_iter().chain(records.iter().map(figure)).collect());
	}
	let states: Vec<String> = states.iter().map(ParentState::to_string).collect();
	let headers = format!("size | method || {}", states.join(" | "));
	titled("Fork call, parent read everything and then (times the empty process)", &headers, rows)
}

fn concurrent(document: &Document) -> String {
	let rows = at_once(document, Measure::Call).zip(at_once(document, Measure::Cycle)).map(|(call, cycle)| {
		vec![
			Size(call.number("size").unwrap_or(0)).to_string(),
			call.number("concurrent").unwrap_or(0).to_string(),
			call.method.clone(),
			time(call.p50),
			spread(Some(call)),
			against_empty(document, call),
			time(cycle.p50),
		]
	});
	let title = "Several processes at once, idle, on all CPUs";
	titled(title, "size | at once | method || fork call | p10–p90 | ÷ empty processes | fork+exit+reap", rows)
}

fn sealing(document: &Document) -> String {
	let mut rows = Vec::new();
	for (size, way) in sizes(document).into_iter().flat_map(|size| Way::all().map(move |way| (size, way))) {
		let figure = |name| sealing::find(document, name, size, way);
		let Some(seconds) = figure(TIME) else { continue };
		let most = |name| figure(name).map_or(String::new(), |record| show(record.max as u64));
		let per_gb = |record: &Record| {
			let [median, least, most] = [record.p50, record.min, record.max].map(three_figures);
			format!("{median} ({least}–{most})")
		};
		let [from, to] = way.title();
		rows.push(vec![
			Size(size).to_string(),
			from.to_owned(),
			to.to_owned(),
			per_gb(seconds),
			figure(CPU).map_or(String::new(), per_gb),
			figure(HUGE_FRACTION).map_or(String::new(), |huge| format!("{:.0} %", huge.p50 * 100.0)),
			most(EXTRA_REPORTED),
			most(EXTRA_SEEN),
		]);
	}
	let title = "Sealing: seconds for each GB, medians and extremes; extra memory at the peak";
	titled(title, "size | from | to || time | CPU | 2 MB pages | extra | seen from outside", rows)
}

fn promises(document: &Document) -> String {
	format!("Promises\n{}", target::render(&targets::check(document)))
}

/// Every size and method, in table order.
fn configurations(document: &Document) -> impl Iterator<Item = (u64, Method)> {
	sizes(document).into_iter().flat_map(|size| Method::all().map(move |method| (size, method)))
}

fn against_empty(document: &Document, record: &Record) -> String {
	shown(to_empty(document, record))
}
