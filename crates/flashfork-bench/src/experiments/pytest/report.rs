//! The tables of `bench pytest`.

use super::{EXPERIMENT, rounds::Measure, suite::Suite, way::Way};
use crate::prelude::*;
use flashfork_measure::target;

pub fn render_all(document: &Document) -> String {
	let parts = Suite::all().filter_map(|suite| render(document, suite));
	page(document, parts.chain([target::render(&promises(document))]))
}

fn find(document: &Document, suite: Suite, way: Way, measure: Measure) -> Option<&Record> {
	document.find(EXPERIMENT, way, json!({ "suite": suite.as_ref(), "measure": measure.as_ref() }))
}

/// The lines of the program cloned from Python.
fn render_program(document: &Document) -> String {
	let line = |way: &str, title: &str| {
		let record = program(document, way)?;
		Some(vec![title.to_owned(), time(record.p50), spread_of_rounds(Some(record))])
	};
	let rows = [
		line("plain", "subprocess.run"),
		line("template", "Template.run"),
		line("install", "from pip install to the first clone's end"),
	];
	let head = "A program that imports numpy, run from Python; medians";
	titled(head, "way || whole | 10–90 %", rows.into_iter().flatten())
}

fn program<'a>(document: &'a Document, way: &str) -> Option<&'a Record> {
	document.find(EXPERIMENT, way, json!({ "suite": Suite::Program.as_ref() }))
}

fn render(document: &Document, suite: Suite) -> Option<String> {
	if suite == Suite::Program {
		return Some(render_program(document));
	}
	let plain = find(document, suite, Way::Plain, Measure::Whole)?;
	let number = |name: &str| plain.observed.get(name).and_then(Value::as_u64).unwrap_or_default();
	let row = |way: &Way| {
		let whole = find(document, suite, *way, Measure::Whole)?;
		let rate = find(document, suite, *way, Measure::Rate);
		let times = ratio_of(Some(whole), Some(plain));
		Some(vec![
			way.title().to_owned(),
			time(whole.p50),
			spread_of_rounds(Some(whole)),
			shown(times.filter(|_| *way != Way::Plain)),
			shown(rate.map(|rate| three_figures(rate.p50))),
		])
	};
	let what = match suite {
		Suite::Small => "small tests in files that import numpy and pandas".to_owned(),
		Suite::Real => "tests of a package's own".to_owned(),
		Suite::Program => return None,
		Suite::Fixture => format!("tests with a session fixture of {}", show(number("bytes"))),
	};
	let head = format!("{} {what}; {} workers where there are workers; medians", number("tests"), number("workers"));
	let headers = "way || whole run | 10–90 % | ÷ pytest | tests/s after the first";
	Some(titled(&head, headers, suite.ways().iter().filter_map(row)))
}

fn promises(document: &Document) -> Vec<Target> {
	let small = |way| find(document, Suite::Small, way, Measure::Whole);
	let fixture = |way| find(document, Suite::Fixture, way, Measure::Rate);
	let ratio = |pair: Option<(_, _)>| pair.map(|(a, b)| ratio_of(Some(a), Some(b)));
	let at_most = |what, most, unit, found: Option<_>| found.map(|found| Target::at_most(what, most, unit, found));
	let at_least = |what, least, found: Option<_>| found.map(|found| Target::at_least(what, least, found));
	let alone = |way| program(document, way).map(|record| quantile_of(&record.rounds(), 0.5));
	let targets = [
		at_most("small tests: --clones ÷ pytest", 1.1, Unit::Times, ratio(small(Way::Clones).zip(small(Way::Plain)))),
		at_least("small tests: xdist ÷ --clones", 1.5, ratio(small(Way::Xdist).zip(small(Way::Clones)))),
		at_least(
			"large fixture, tests/s: --clone-each, sealed ÷ plain forks",
			3.0,
			ratio(fixture(Way::Each).zip(fixture(Way::EachByFork))),
		),
		at_most("Template.run of a program that imports numpy", 3e3, Unit::Microseconds, alone("template")),
		at_most("from pip install to the first clone's end", 30e6, Unit::Microseconds, alone("install")),
	];
	targets.into_iter().flatten().collect()
}
