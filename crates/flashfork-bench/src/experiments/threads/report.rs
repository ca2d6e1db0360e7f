//! The tables of `bench threads`.

use serde_json::Value;

use super::EXPERIMENT;
use super::rounds::{Measure, Way};
use flashfork_measure::experiment::page;
use flashfork_measure::record::{Document, Record};
use flashfork_measure::stats::{Observation, Ratio, fit, quantile_of, ratio_of_medians};
use flashfork_measure::target::{self, Bound, Target, Unit};
use flashfork_terminal::size::show;
use flashfork_terminal::table::{self, time};

/// What is promised: microseconds, and times.
const RUNNING_SMALL: f64 = 2000.0;
const RUNNING_LARGE: f64 = 2200.0;
const FASTER: f64 = 100.0;
const JAVA_WHOLE: f64 = 15_000.0;
const NODE_SERVED: f64 = 10_000.0;
const PYTHON_WHOLE: f64 = 12_000.0;
const THREAD: f64 = 25.0;

/// Everything, for people.
pub(super) fn render_all(document: &Document) -> String {
    let shown = Shown(document);
    let head = "Medians. Running: from the request to hearing that the clone's threads are let go; served: to a server's \
                first\nanswer; answer: from the start of the command, or the program, to its first line or answer; whole: to \
                its end. Best: AppCDS\nfor Java, V8's startup snapshot for Node, a template with one thread for Python. Server: nailgun, \
                whose one process runs the\nprogram again and again, with what earlier runs have loaded and left there.";
    let programs = shown.programs();
    let parts = [
        if programs.is_empty() { String::new() } else { format!("{head}\n{programs}") },
        shown.threads(),
        shown.memory(),
        shown.promises(),
    ];
    page(document, parts)
}

struct Shown<'a>(&'a Document);

impl<'a> Shown<'a> {
    fn of(&self, program: &str, way: Way, measure: Measure) -> Option<&'a Record> {
        let wanted = [("program", Value::from(program)), ("measure", measure.name().into())];
        self.0.find(EXPERIMENT, way.name(), &wanted)
    }

    /// Names and titles of programs, in the order in which they were measured.
    fn names(&self) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = Vec::new();
        for record in &self.0.records {
            let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
            let name = text(record.chosen.get("program"));
            if !all.iter().any(|(known, _)| *known == name) {
                all.push((name, text(record.observed.get("title"))));
            }
        }
        all
    }

    fn programs(&self) -> String {
        let headers = [
            "program",
            "anew: answer",
            "whole",
            "best: answer",
            "whole",
            "server: answer",
            "whole",
            "clone: running",
            "served",
            "answer",
            "whole",
            "unsealed: running",
            "anew / running",
        ];
        let cell =
            |name: &str, way, measure| self.of(name, way, measure).map_or(String::new(), |record| time(record.p50));
        let rows = self.names().into_iter().filter(|(name, _)| self.of(name, Way::Anew, Measure::Answer).is_some());
        let rows: Vec<Vec<String>> = rows
            .map(|(name, title)| {
                let all = [
                    (Way::Anew, Measure::Answer),
                    (Way::Anew, Measure::Whole),
                    (Way::Best, Measure::Answer),
                    (Way::Best, Measure::Whole),
                    (Way::Server, Measure::Answer),
                    (Way::Server, Measure::Whole),
                    (Way::Clone, Measure::Running),
                    (Way::Clone, Measure::Served),
                    (Way::Clone, Measure::Answer),
                    (Way::Clone, Measure::Whole),
                    (Way::Unsealed, Measure::Running),
                ];
                let mut row = vec![title];
                row.extend(all.map(|(way, measure)| cell(&name, way, measure)));
                row.push(self.faster(&name).map_or(String::new(), |ratio| ratio.to_string()));
                row
            })
            .collect();
        if rows.is_empty() { String::new() } else { table::render(&headers, &rows, 1) }
    }

    /// How many times its cold start is as long as a clone takes to run.
    fn faster(&self, name: &str) -> Option<Ratio> {
        let anew = self.of(name, Way::Anew, Measure::Answer)?;
        let running = self.of(name, Way::Clone, Measure::Running)?;
        ratio_of_medians(&anew.rounds(), &running.rounds())
    }

    /// Numbers of threads, and the records of them.
    fn by_threads(&self) -> Vec<(f64, &'a Record)> {
        let all = self.names().into_iter().filter_map(|(name, _)| {
            let count = name.strip_prefix("threads-")?.parse().ok()?;
            Some((count, self.of(&name, Way::Clone, Measure::Running)?))
        });
        all.collect()
    }

    /// What a thread adds, in microseconds.
    fn thread(&self) -> Option<Ratio> {
        let all = self.by_threads();
        let all: Vec<_> =
            all.iter().map(|(count, record)| Observation { amounts: [1.0, *count], cost: record.rounds() }).collect();
        let fit = fit(&all)?;
        Some(Ratio { value: fit.coefficients[1], interval: fit.intervals[1] })
    }

    fn threads(&self) -> String {
        let rows = self.by_threads().into_iter().map(|(count, record)| vec![format!("{count}"), time(record.p50)]);
        let rows: Vec<Vec<String>> = rows.collect();
        if rows.is_empty() { String::new() } else { table::render(&["threads that wait", "running"], &rows, 1) }
    }

    fn memory(&self) -> String {
        let title =
            |record: &Record| record.observed.get("title").and_then(Value::as_str).unwrap_or_default().to_owned();
        let alive = |record: &Record| record.chosen.get("alive").and_then(Value::as_u64);
        let all = self.0.records.iter().filter(|record| record.experiment == EXPERIMENT);
        let rows = all.filter_map(|record| {
            Some(vec![title(record), alive(record)?.to_string(), show(record.p50 as u64), show(record.max as u64)])
        });
        let rows: Vec<Vec<String>> = rows.collect();
        let headers = ["program", "alive", "each: median", "most"];
        if rows.is_empty() { String::new() } else { table::render(&headers, &rows, 1) }
    }

    fn promises(&self) -> String {
        let median = |name: &str, way, measure| {
            self.of(name, way, measure).and_then(|record| quantile_of(&record.rounds(), 0.5))
        };
        let clone = |name: &str, measure| median(name, Way::Clone, measure);
        let at_most = |what: &str, most, measured: Option<Ratio>| {
            measured.map(|found| Target {
                what: what.to_owned(),
                bound: Bound::AtMost(most),
                unit: Unit::Microseconds,
                measured: Some(found),
            })
        };
        let faster = self.faster("java-600m").map(|found| Target {
            what: "Java, 600 MB live: a cold start beside a clone that runs".to_owned(),
            bound: Bound::AtLeast(FASTER),
            unit: Unit::Times,
            measured: Some(found),
        });
        let targets: Vec<Target> = [
            at_most("Java, 50 MB live, 16 threads: running", RUNNING_SMALL, clone("java-50m", Measure::Running)),
            at_most("Java, 600 MB live, 16 threads: running", RUNNING_LARGE, clone("java-600m", Measure::Running)),
            faster,
            at_most("Java, one line: the command's start to its end", JAVA_WHOLE, clone("java-line", Measure::Whole)),
            at_most("Java, 6,500 classes: the same", JAVA_WHOLE, clone("java-classes", Measure::Whole)),
            at_most("Node, 100 MB: running, and a request answered", NODE_SERVED, clone("node", Measure::Served)),
            at_most("CPython, numpy, threads: command to end", PYTHON_WHOLE, clone("python", Measure::Whole)),
            at_most("CPython, numpy, gRPC, pyarrow: the same", PYTHON_WHOLE, clone("python-libraries", Measure::Whole)),
            at_most("a thread's part of a clone", THREAD, self.thread()),
        ]
        .into_iter()
        .flatten()
        .collect();
        if targets.is_empty() { String::new() } else { target::render(&targets) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashfork_measure::host::HostCard;

    fn record(program: &str, way: Way, measure: Measure, middle: f64) -> Record {
        let chosen = [("program", Value::from(program)), ("measure", measure.name().into())];
        let samples = (0..9).map(|i| middle + f64::from(i - 4)).collect();
        let record = Record::new(EXPERIMENT, way.name(), chosen, "us", samples).unwrap();
        record.beside([("title", Value::from(format!("the program {program}")))])
    }

    #[test]
    fn programs_threads_and_promises_are_shown() {
        let records = vec![
            record("java-600m", Way::Anew, Measure::Answer, 900_000.0),
            record("java-600m", Way::Clone, Measure::Running, 3000.0),
            record("threads-1", Way::Clone, Measure::Running, 1000.0),
            record("threads-101", Way::Clone, Measure::Running, 3000.0),
        ];
        let text = render_all(&Document::new(HostCard::read().unwrap(), records));
        for part in ["the program java-600m", "900 ms", "300 × ", "≥ 100 ×", "≤ 2.20 ms", "no", "yes", "20.0 µs"]
        {
            assert!(text.contains(part), "'{part}' is missing in\n{text}");
        }
    }

    #[test]
    fn nothing_measured_is_no_table() {
        assert!(!render_all(&Document::new(HostCard::read().unwrap(), Vec::new())).contains("program"));
    }
}
