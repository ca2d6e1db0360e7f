//! The table of `bench warm`.

use serde_json::Value;

use super::EXPERIMENT;
use super::command::Way;
use super::program::Program;
use super::rounds::Measure;
use flashfork_measure::experiment::page;
use flashfork_measure::record::{Document, Record};
use flashfork_measure::stats::{quantile_of, ratio_of_medians};
use flashfork_measure::target::{self, Bound, Target, Unit};
use flashfork_terminal::table::{self, time, time_range};

/// What SPECIFICATION.md promises of a clone of CPython with numpy and pandas, in microseconds.
const PROMISE: f64 = 3000.0;

/// What it promises of clones, as multiples of a dynamic C program that does nothing.
const PROMISES: [(Program, &str, f64); 2] =
    [(Program::True, "/bin/true", 1.1), (Program::Numpy, "CPython with numpy and pandas", 2.3)];

/// Everything, for people.
pub(super) fn render_all(document: &Document) -> String {
    let of = |program: Program, way: Way, measure: Measure| {
        let wanted = [("program", Value::from(program.name())), ("measure", measure.name().into())];
        document.find(EXPERIMENT, way.name(), &wanted)
    };
    let rows: Vec<Vec<String>> = Program::ALL
        .into_iter()
        .filter(|program| of(*program, Way::Cold, Measure::Whole).is_some())
        .map(|program| row(program, |way, measure| of(program, way, measure)))
        .collect();
    let headers = [
        "program",
        "started anew",
        "clone",
        "10–90 %",
        "faster",
        "first line: anew",
        "clone",
        "clone after clone",
        "faults: anew",
        "command",
        "clone",
    ];
    let table = if rows.is_empty() { String::new() } else { table::render(&headers, &rows, 1) };
    let whole = of(Program::Numpy, Way::Clone, Measure::Whole).map(|record| {
        let what = "clone of CPython with numpy and pandas, from the command's start to its end".to_owned();
        let measured = quantile_of(&record.rounds(), 0.5);
        Target { what, bound: Bound::AtMost(PROMISE), unit: Unit::Microseconds, measured }
    });
    let nothing = of(Program::CDynamic, Way::Cold, Measure::Whole);
    let times = PROMISES.into_iter().filter_map(|(program, title, most)| {
        let (clone, nothing) = (of(program, Way::Clone, Measure::Whole)?, nothing?);
        let what = format!("clone of {title} ÷ dynamic C program that does nothing");
        let measured = ratio_of_medians(&clone.rounds(), &nothing.rounds());
        Some(Target { what, bound: Bound::AtMost(most), unit: Unit::Times, measured })
    });
    let promised: Vec<_> = whole.into_iter().chain(times).collect();
    let promised = if promised.is_empty() { String::new() } else { target::render(&promised) };
    let head = "From starting the command until its end is seen, all on one CPU, and until its first line is there; medians. \
                Before each sample 30 ms for others,\nbut for \"clone after clone\": ten in a row, each. Page faults of a clone: \
                those before it had a caller included.";
    page(document, [format!("{head}\n{table}"), promised])
}

fn row<'a>(program: Program, of: impl Fn(Way, Measure) -> Option<&'a Record>) -> Vec<String> {
    let cell = |way, measure| of(way, measure).map_or(String::new(), |record: &Record| time(record.p50));
    let count = |way, measure| of(way, measure).map_or(String::new(), |record: &Record| format!("{:.0}", record.p50));
    let (cold, clone) = (of(Way::Cold, Measure::Whole), of(Way::Clone, Measure::Whole));
    let spread = clone.and_then(|record| {
        let ends = [0.1, 0.9].map(|q| quantile_of(&record.rounds(), q).map(|found| found.value));
        Some(time_range(ends[0]?, ends[1]?))
    });
    let faster = cold.zip(clone).and_then(|(cold, clone)| ratio_of_medians(&cold.rounds(), &clone.rounds()));
    vec![
        program.title().to_owned(),
        cell(Way::Cold, Measure::Whole),
        cell(Way::Clone, Measure::Whole),
        spread.unwrap_or_default(),
        faster.as_ref().map_or(String::new(), ToString::to_string),
        cell(Way::Cold, Measure::Line),
        cell(Way::Clone, Measure::Line),
        cell(Way::Busy, Measure::Whole),
        count(Way::Cold, Measure::Faults),
        count(Way::Clone, Measure::Faults),
        count(Way::Clone, Measure::CloneFaults),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashfork_measure::host::HostCard;

    fn record(program: Program, way: Way, measure: Measure, samples: Vec<f64>) -> Record {
        let chosen = [("program", Value::from(program.name())), ("measure", measure.name().into())];
        Record::new(EXPERIMENT, way.name(), chosen, "us", samples).unwrap()
    }

    #[test]
    fn a_program_has_its_row_and_the_promise_its_verdict() {
        let samples = |middle: f64| (0..9).map(|i| middle + f64::from(i - 4)).collect::<Vec<f64>>();
        let numpy = |way, middle| record(Program::Numpy, way, Measure::Whole, samples(middle));
        let records = vec![
            numpy(Way::Cold, 430_000.0),
            numpy(Way::Clone, 2_500.0),
            record(Program::True, Way::Cold, Measure::Whole, samples(600.0)),
            record(Program::True, Way::Cold, Measure::Faults, samples(50.0)),
            record(Program::True, Way::Clone, Measure::Whole, samples(620.0)),
            record(Program::CDynamic, Way::Cold, Measure::Whole, samples(590.0)),
        ];
        let text = render_all(&Document::new(HostCard::read().unwrap(), records));
        for part in [
            "430 ms",
            "2.50 ms",
            "172 × ",
            "/bin/true",
            "600 µs",
            " 50 ",
            "≤ 3.00 ms",
            "yes",
            "C, does nothing: dynamic",
            "≤ 1.10 ×",
            "1.05 ×",
            "≤ 2.30 ×",
            "4.24 ×",
        ] {
            assert!(text.contains(part), "'{part}' is missing in\n{text}");
        }
        assert!(!text.contains("Ruby"), "{text}");
    }

    #[test]
    fn nothing_measured_is_no_table() {
        assert!(!render_all(&Document::new(HostCard::read().unwrap(), Vec::new())).contains("program"));
    }
}
