//! The tables of `bench cluster`.

use super::{
	EXPERIMENT,
	faults::Fault,
	rounds::{Cell, Function, Measure, Way},
	tally::{Fate, Kept, Kind},
};
use crate::prelude::*;
use flashfork_measure::stats::Interval;

/// What SPECIFICATION.md promises of a call at another node, without HTTP, in microseconds.
const MEDIAN: f64 = 700.0;
/// The same of the longest request when a node is killed.
const LONGEST: f64 = 2e6;

pub fn render_all(document: &Document) -> String {
	let one = "One client, from asking until the answer is there. Functions are warm at the first node alone; who\n\
	           asks is on the machine of the second, or of the first where that is asked. Back to back, and 20 ms\n\
	           after the last answer.";
	let headers = "what answers | how it is asked || back to back | 10–90 % | after 20 ms | 10–90 %";
	let rows = Cell::all().filter(|cell| !cell.many && !cell.paused).filter_map(|cell| row_of_one(document, cell));
	let clients = numbers(document.of(EXPERIMENT), "clients").into_iter().max().unwrap_or_default();
	let many =
		format!("{clients} clients of four nodes, a small function; 99 % of a round's calls, median of the rounds.");
	let headers_of_many = "where it is warm || calls/s | median | 10–90 % | 99 % | calls | failed";
	let rows_of_many = Cell::all().filter(|cell| cell.many).filter_map(|cell| row_of_many(document, cell));
	let kept: Vec<_> = Fault::all().map(|fault| Kept::new(document, fault)).collect();
	let requests = "Under load of calls and events at all nodes, of a function that is warm at two, of which one fails.\n\
	                What was not served, by status or as clients saw it; who can't reach a node asks the next one.";
	let headers_of_requests =
		"what fails | calls not served | events not accepted || calls | longest | events accepted | longest";
	let events = "Events that were accepted.";
	let headers_of_events = "what fails || accepted | with a result | that is failure | lost | two results | ran again";
	page(
		document,
		[
			titled(one, headers, rows),
			titled(&many, headers_of_many, rows_of_many),
			titled(requests, headers_of_requests, kept.iter().filter_map(row_of_requests)),
			titled(events, headers_of_events, kept.iter().filter_map(row_of_events)),
			promises(&targets(document, &kept)),
		],
	)
}

fn row_of_one(document: &Document, cell: Cell) -> Option<Vec<String>> {
	let [whole, paused] = [false, true].map(|paused| Cell { paused, ..cell }.find(document, Measure::Whole));
	let held = [whole, paused].into_iter().flatten().find_map(|record| record.number("size"));
	let what = match (cell.function, held) {
		(Some(Function::Program), Some(held)) => format!("a program in C that holds {}", show(held)),
		(Some(_), Some(held)) => format!("a function that holds {}", show(held)),
		(Some(_), None) => "a small function".to_owned(),
		(None, _) if cell.way == Way::Reply => "NATS alone".to_owned(),
		(None, _) => "Ray".to_owned(),
	};
	let how = match cell.way {
		Way::Here => "HTTP, its node",
		Way::Elsewhere => "HTTP, another node",
		Way::Message => "no HTTP, from another machine",
		Way::Reply => "request, reply of a program",
		Way::Task => "a task, one machine",
		Way::Actor => "an actor's call, one machine",
	};
	whole.or(paused)?;
	let figures = [median_time(whole), spread_of_rounds(whole), median_time(paused), spread_of_rounds(paused)];
	Some([what, how.to_owned()].into_iter().chain(figures).collect())
}

fn row_of_many(document: &Document, cell: Cell) -> Option<Vec<String>> {
	let of = |measure| cell.find(document, measure);
	let (whole, rate) = (of(Measure::Whole)?, of(Measure::Rate));
	let taken = whole.observed.get("samples_taken").and_then(Value::as_u64).unwrap_or(whole.n as u64);
	let where_ = if cell.way == Way::Here { "at all nodes" } else { "at one node at first" };
	let figures = [
		shown(rate.map(|rate| three_figures(rate.p50))),
		time(whole.p50),
		spread_of_rounds(Some(whole)),
		median_time(of(Measure::Tail)),
		taken.to_string(),
		shown(of(Measure::Failed).map(|failed| failed.samples.iter().sum::<f64>())),
	];
	Some([where_.to_owned()].into_iter().chain(figures).collect())
}

fn row_of_requests(kept: &Kept) -> Option<Vec<String>> {
	let longest = |kind| shown(kept.longest(kind).map(time));
	let [calls, events] = [Kind::Call, Kind::Event].map(|kind| kept.served(kind));
	calls.or(events)?;
	Some(vec![
		kept.fault.title().to_owned(),
		kept.others(Kind::Call),
		kept.others(Kind::Event),
		shown(calls),
		longest(Kind::Call),
		shown(events),
		longest(Kind::Event),
	])
}

fn row_of_events(kept: &Kept) -> Option<Vec<String>> {
	let accepted = kept.served(Kind::Event)?;
	let fates = Fate::all().map(|fate| shown(kept.fate(fate)));
	Some([kept.fault.title().to_owned(), accepted.to_string()].into_iter().chain(fates).collect())
}

fn targets(document: &Document, kept: &[Kept]) -> [Target; 4] {
	let call = Cell { way: Way::Message, function: Some(Function::Large), paused: true, many: false };
	let call = call.find(document, Measure::Whole);
	let large = call.and_then(|record| record.number("size")).map_or("a large function".to_owned(), show);
	let killed = kept.iter().find(|kept| kept.fault == Fault::NodeKilled);
	let longest = killed.and_then(|kept| Kind::all().filter_map(|kind| kept.longest(kind)).reduce(f64::max));
	let longest = longest.map(|value| Ratio { value, interval: Interval { low: value, high: value } });
	let all = |fate| kept.iter().filter_map(|kept| kept.fate(fate)).reduce(|a, b| a + b);
	[
		Target::at_most(
			format!("{large}, another node, no HTTP, after 20 ms"),
			MEDIAN,
			Unit::Microseconds,
			call.and_then(|record| quantile_of(&record.rounds(), 0.5)),
		),
		Target::at_most("a node is killed: the longest request", LONGEST, Unit::Microseconds, longest),
		Target::none("events that were accepted and are lost", all(Fate::Lost)),
		Target::none("events with two results", all(Fate::Doubled)),
	]
}
