//! The table of `bench warm`.

use super::{EXPERIMENT, command::Way, program::Program, rounds::Measure};
use crate::prelude::*;
use flashfork_measure::target;

/// What SPECIFICATION.md promises of a clone of CPython with numpy and pandas, in microseconds.
const PROMISE: f64 = 3000.0;

/// What it promises of clones, as multiples of a dynamic C program that does nothing.
const PROMISES: [(Program, &str, f64); 2] =
	[(Program::True, "/bin/true", 1.1), (Program::Numpy, "CPython with numpy and pandas", 2.3)];

pub fn render_all(document: &Document) -> String {
	let of = |program: Program, way: Way, measure: Measure| {
		document.find(EXPERIMENT, way, json!({ "program": program.as_ref(), "measure": measure.as_ref() }))
	};
	let rows = Program::all()
		.filter(|program| of(*program, Way::Cold, Measure::Whole).is_some())
		.map(|program| row(program, |way, measure| of(program, way, measure)));
	let headers = "program || started anew | clone | 10–90 % | faster | first line: anew | clone | clone after clone | \
				   faults: anew | command | clone";
	let whole = of(Program::Numpy, Way::Clone, Measure::Whole).map(|record| {
		let what = "clone of CPython with numpy and pandas, from the command's start to its end".to_owned();
		Target::at_most(what, PROMISE, Unit::Microseconds, quantile_of(&record.rounds(), 0.5))
	});
	let nothing = of(Program::CDynamic, Way::Cold, Measure::Whole);
	let times = PROMISES.into_iter().filter_map(|(program, title, most)| {
		let (clone, nothing) = (of(program, Way::Clone, Measure::Whole)?, nothing?);
		let what = format!("clone of {title} ÷ dynamic C program that does nothing");
		Some(Target::at_most(what, most, Unit::Times, ratio_of(Some(clone), Some(nothing))))
	});
	let promised: Vec<_> = whole.into_iter().chain(times).collect();
	let head = "From starting the command until its end is seen, all on one CPU, and until its first line is there; medians. \
				Before each sample 30 ms for others,\nbut for \"clone after clone\": ten in a row, each. Page faults of a clone: \
				those before it had a caller included.";
	page(document, [titled(head, headers, rows), target::render(&promised)])
}

fn row<'a>(program: Program, of: impl Fn(Way, Measure) -> Option<&'a Record>) -> Vec<String> {
	let cell = |way, measure| median_time(of(way, measure));
	let count = |way, measure| shown(of(way, measure).map(|record| format!("{:.0}", record.p50)));
	let (cold, clone) = (of(Way::Cold, Measure::Whole), of(Way::Clone, Measure::Whole));
	vec![
		program.title().to_owned(),
		cell(Way::Cold, Measure::Whole),
		cell(Way::Clone, Measure::Whole),
		spread_of_rounds(clone),
		shown(ratio_of(cold, clone)),
		cell(Way::Cold, Measure::Line),
		cell(Way::Clone, Measure::Line),
		cell(Way::Busy, Measure::Whole),
		count(Way::Cold, Measure::Faults),
		count(Way::Clone, Measure::Faults),
		count(Way::Clone, Measure::CloneFaults),
	]
}
