//! The tables of `bench pytest`.

use serde_json::Value;

use super::EXPERIMENT;
use super::rounds::Measure;
use super::suite::Suite;
use super::way::Way;
use flashfork_measure::experiment::page;
use flashfork_measure::record::{Document, Record};
use flashfork_measure::stats::{quantile_of, ratio_of_medians};
use flashfork_measure::target::{self, Bound, Target, Unit};
use flashfork_terminal::size;
use flashfork_terminal::table::{self, three_figures, time, time_range};

/// Everything, for people.
pub(super) fn render_all(document: &Document) -> String {
    let parts: Vec<String> = Suite::ALL.into_iter().filter_map(|suite| render(document, suite)).collect();
    let promised = promises(document);
    let promised = if promised.is_empty() { String::new() } else { target::render(&promised) };
    page(document, parts.into_iter().chain([promised]))
}

fn find(document: &Document, suite: Suite, way: Way, measure: Measure) -> Option<&Record> {
    let wanted = [("suite", Value::from(suite.name())), ("measure", measure.name().into())];
    document.find(EXPERIMENT, way.name(), &wanted)
}

/// The lines of the program that is cloned from Python.
fn render_program(document: &Document) -> Option<String> {
    let line = |way: &str, title: &str| {
        let record = program(document, way)?;
        let ends = [0.1, 0.9].map(|q| quantile_of(&record.rounds(), q).map(|found| found.value));
        let spread = ends[0].zip(ends[1]).map_or(String::new(), |(low, high)| time_range(low, high));
        Some(vec![title.to_owned(), time(record.p50), spread])
    };
    let rows: Vec<Vec<String>> = [
        line("plain", "subprocess.run"),
        line("template", "Template.run"),
        line("install", "from pip install to the first clone's end"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let head = "A program that imports numpy, run from Python; medians";
    (!rows.is_empty()).then(|| format!("{head}\n{}", table::render(&["way", "whole", "10–90 %"], &rows, 1)))
}

fn program<'a>(document: &'a Document, way: &str) -> Option<&'a Record> {
    document.find(EXPERIMENT, way, &[("suite", Suite::Program.name().into())])
}

/// The table of a suite.
fn render(document: &Document, suite: Suite) -> Option<String> {
    if suite == Suite::Program {
        return render_program(document);
    }
    let plain = find(document, suite, Way::Plain, Measure::Whole)?;
    let number = |name: &str| plain.observed.get(name).and_then(Value::as_u64).unwrap_or_default();
    let rows: Vec<Vec<String>> = suite
        .ways()
        .iter()
        .filter_map(|way| {
            let whole = find(document, suite, *way, Measure::Whole)?;
            let ends = [0.1, 0.9].map(|q| quantile_of(&whole.rounds(), q).map(|found| found.value));
            let rate = find(document, suite, *way, Measure::Rate);
            let times = ratio_of_medians(&whole.rounds(), &plain.rounds());
            Some(vec![
                way.title().to_owned(),
                time(whole.p50),
                ends[0].zip(ends[1]).map_or(String::new(), |(low, high)| time_range(low, high)),
                times.filter(|_| *way != Way::Plain).map_or(String::new(), |ratio| ratio.to_string()),
                rate.map_or(String::new(), |rate| three_figures(rate.p50)),
            ])
        })
        .collect();
    let what = match suite {
        Suite::Small => "small tests in files that import numpy and pandas".to_owned(),
        Suite::Real => "tests of a package's own".to_owned(),
        Suite::Program => return None,
        Suite::Fixture => format!("tests with a session fixture of {}", size::show(number("bytes"))),
    };
    let headers = ["way", "whole run", "10–90 %", "÷ pytest", "tests/s after the first"];
    let head = format!("{} {what}; {} workers where there are workers; medians", number("tests"), number("workers"));
    Some(format!("{head}\n{}", table::render(&headers, &rows, 1)))
}

/// What SPECIFICATION.md promises.
fn promises(document: &Document) -> Vec<Target> {
    let small = |way| find(document, Suite::Small, way, Measure::Whole);
    let fixture = |way| find(document, Suite::Fixture, way, Measure::Rate);
    let of = |what: &str, bound, pair: Option<(&Record, &Record)>| {
        let (above, below) = pair?;
        let measured = ratio_of_medians(&above.rounds(), &below.rounds());
        Some(Target { what: what.to_owned(), bound, unit: Unit::Times, measured })
    };
    let targets = [
        of("small tests: --clones ÷ pytest", Bound::AtMost(1.1), small(Way::Clones).zip(small(Way::Plain))),
        of("small tests: xdist ÷ --clones", Bound::AtLeast(1.5), small(Way::Xdist).zip(small(Way::Clones))),
        of(
            "large fixture, tests/s: --clone-each, sealed ÷ plain forks",
            Bound::AtLeast(3.0),
            fixture(Way::Each).zip(fixture(Way::EachByFork)),
        ),
    ];
    let alone = |what: &str, most, way| {
        let measured = quantile_of(&program(document, way)?.rounds(), 0.5);
        Some(Target { what: what.to_owned(), bound: Bound::AtMost(most), unit: Unit::Microseconds, measured })
    };
    let program = [
        alone("Template.run of a program that imports numpy", 3e3, "template"),
        alone("from pip install to the first clone's end", 30e6, "install"),
    ];
    targets.into_iter().chain(program).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashfork_measure::host::HostCard;

    fn record(suite: Suite, way: Way, measure: Measure, middle: f64) -> Record {
        let chosen = [("measure", measure.name().into()), ("suite", Value::from(suite.name()))];
        let samples = (0..9).map(|i| middle * (1.0 + f64::from(i - 4) / 100.0)).collect();
        let record = Record::new(EXPERIMENT, way.name(), chosen, "us", samples).unwrap();
        record.beside([("tests", 2000.into()), ("workers", 2.into()), ("bytes", (1_u64 << 30).into())])
    }

    #[test]
    fn each_suite_has_its_table_and_each_promise_its_verdict() {
        let records = vec![
            record(Suite::Small, Way::Plain, Measure::Whole, 4e6),
            record(Suite::Small, Way::Clones, Measure::Whole, 4e6),
            record(Suite::Small, Way::Xdist, Measure::Whole, 8e6),
            record(Suite::Fixture, Way::Plain, Measure::Whole, 1e6),
            record(Suite::Fixture, Way::Each, Measure::Rate, 400.0),
            record(Suite::Fixture, Way::EachByFork, Measure::Rate, 40.0),
        ];
        let text = render_all(&Document::new(HostCard::read().unwrap(), records));
        let parts =
            ["2000 small tests", "2 workers", "8.00 s", "2.00 ×", "fixture of 1 GB", "≥ 3.00 ×", "10.0 ×", "yes"];
        for part in parts {
            assert!(text.contains(part), "'{part}' is missing in\n{text}");
        }
        assert!(!text.contains("package's own"), "{text}");
    }
}
