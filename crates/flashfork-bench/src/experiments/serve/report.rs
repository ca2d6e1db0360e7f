//! The tables of `bench serve`.

use super::{
	EXPERIMENT,
	client::Way,
	function::Function,
	rounds::{Cell, Measure},
};
use crate::prelude::*;

/// What SPECIFICATION.md promises of a call in a clone: microseconds, and as a share of one in a new process.
const MEDIAN: f64 = 5e3;
const FASTER: f64 = 10.0;
/// The same of many clients: calls a second, and how long 99 % of the calls take, in medians.
const RATE: f64 = 300.0;
const TAIL: f64 = 10.0;

pub fn render_all(document: &Document) -> String {
	let one = "Calls by one client, which asks again when it is answered, on all CPUs; from asking until the answer is there.\n\
	           The handler's beginning and end are by its own clock. Each answer was that to its own call, each clone's its first.";
	let headers = "function | answered by || median | 10–90 % | 99 % | handler begins after | answer after its end | ÷ fresh clone";
	let rows = Cell::all().filter(|cell| !cell.many).filter_map(|cell| row_of_one(document, cell));
	let clients = numbers(document.of(EXPERIMENT), "clients").into_iter().max().unwrap_or_default();
	let many =
		format!("{clients} clients at a time; 99 % of a round's calls, median of the rounds. No call has failed.");
	let headers_of_many = "function | answered by || calls/s | median | 10–90 % | 99 % | 99 % ÷ median | calls";
	let rows_of_many = Cell::all().filter(|cell| cell.many).filter_map(|cell| row_of_many(document, cell));
	page(
		document,
		[titled(one, headers, rows), titled(&many, headers_of_many, rows_of_many), promises(&targets(document))],
	)
}

fn names(cell: Cell) -> [String; 2] {
	let way = match cell.way {
		Way::Clone => "fresh clone",
		Way::Process => "new process",
		Way::Worker => "process used again",
		Way::Describe => "server: GetFunction",
	};
	[if cell.way == Way::Describe { "no call" } else { cell.function.title() }, way].map(str::to_owned)
}

fn row_of_one(document: &Document, cell: Cell) -> Option<Vec<String>> {
	let of = |measure| cell.find(document, measure);
	let whole = of(Measure::Whole)?;
	let clone = Cell { way: Way::Clone, ..cell }.find(document, Measure::Whole);
	let times = ratio_of(Some(whole), clone).filter(|_| cell.way == Way::Process);
	let figures = [
		time(whole.p50),
		spread_of_rounds(Some(whole)),
		median_time(of(Measure::Tail)),
		median_time(of(Measure::Begin)),
		median_time(of(Measure::Return)),
		shown(times),
	];
	Some(names(cell).into_iter().chain(figures).collect())
}

fn row_of_many(document: &Document, cell: Cell) -> Option<Vec<String>> {
	let of = |measure| cell.find(document, measure);
	let (whole, rate) = (of(Measure::Whole)?, of(Measure::Rate));
	let taken = whole.observed.get("samples_taken").and_then(Value::as_u64).unwrap_or(whole.n as u64);
	let figures = [
		shown(rate.map(|rate| three_figures(rate.p50))),
		time(whole.p50),
		spread_of_rounds(Some(whole)),
		median_time(of(Measure::Tail)),
		shown(ratio_of(of(Measure::Tail), Some(whole))),
		taken.to_string(),
	];
	Some(names(cell).into_iter().chain(figures).collect())
}

fn targets(document: &Document) -> [Target; 4] {
	let of = |function, way, many, measure| Cell { function, way, many }.find(document, measure);
	let numpy = |way| of(Function::Numpy, way, false, Measure::Whole);
	let small = |measure| of(Function::Small, Way::Clone, true, measure);
	let median = |record: Option<&Record>| record.and_then(|record| quantile_of(&record.rounds(), 0.5));
	let faster = ratio_of(numpy(Way::Process), numpy(Way::Clone));
	let tail = ratio_of(small(Measure::Tail), small(Measure::Whole));
	let rate = Target::at_least("small, many clients: calls a second", RATE, median(small(Measure::Rate)));
	[
		Target::at_least("numpy imported: new process ÷ fresh clone", FASTER, faster),
		Target::at_most(
			"numpy imported: a call in a fresh clone",
			MEDIAN,
			Unit::Microseconds,
			median(numpy(Way::Clone)),
		),
		Target { unit: Unit::PerSecond, ..rate },
		Target::at_most("small, many clients: 99 % ÷ median", TAIL, Unit::Times, tail),
	]
}
