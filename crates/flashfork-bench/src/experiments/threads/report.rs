//! The tables of `bench threads`.

use super::{
	EXPERIMENT,
	rounds::{Measure, Way},
};
use crate::prelude::*;
use flashfork_measure::{
	stats::{Observation, fit},
	target,
};

/// What is promised: microseconds, and times.
const RUNNING_SMALL: f64 = 2000.0;
const RUNNING_LARGE: f64 = 2200.0;
const FASTER: f64 = 100.0;
const JAVA_WHOLE: f64 = 15_000.0;
const NODE_SERVED: f64 = 10_000.0;
const PYTHON_WHOLE: f64 = 12_000.0;
const THREAD: f64 = 25.0;

pub fn render_all(document: &Document) -> String {
	let shown = Shown(document);
	page(document, [shown.programs(), shown.threads(), shown.memory(), shown.promises()])
}

struct Shown<'a>(&'a Document);

impl<'a> Shown<'a> {
	fn of(&self, program: &str, way: Way, measure: Measure) -> Option<&'a Record> {
		self.0.find(EXPERIMENT, way, json!({ "program": program, "measure": measure.as_ref() }))
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
		let rows = self.names().into_iter().filter(|(name, _)| self.of(name, Way::Anew, Measure::Answer).is_some());
		let rows = rows.map(|(name, title)| {
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
			let cells = all.map(|(way, measure)| median_time(self.of(&name, way, measure)));
			[title].into_iter().chain(cells).chain([shown(self.faster(&name))]).collect()
		});
		let head = "Medians. Running: from the request to hearing that the clone's threads are let go; served: to a server's \
					first\nanswer; answer: from the start of the command, or the program, to its first line or answer; whole: to \
					its end. Best: AppCDS\nfor Java, V8's startup snapshot for Node, a template with one thread for Python. Server: nailgun, \
					whose one process runs the\nprogram again and again, with what earlier runs have loaded and left there.";
		let headers = "program || anew: answer | whole | best: answer | whole | server: answer | whole | clone: running | \
					   served | answer | whole | unsealed: running | anew / running";
		titled(head, headers, rows)
	}

	/// How many times its cold start is as long as a clone takes to run.
	fn faster(&self, name: &str) -> Option<Ratio> {
		ratio_of(self.of(name, Way::Anew, Measure::Answer), self.of(name, Way::Clone, Measure::Running))
	}

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
		table("threads that wait || running", rows)
	}

	fn memory(&self) -> String {
		let title =
			|record: &Record| record.observed.get("title").and_then(Value::as_str).unwrap_or_default().to_owned();
		let row = |record: &Record| {
			let alive = record.number("alive")?.to_string();
			Some(vec![title(record), alive, show(record.p50 as u64), show(record.max as u64)])
		};
		table("program || alive | each: median | most", self.0.of(EXPERIMENT).filter_map(row))
	}

	fn promises(&self) -> String {
		let median = |name: &str, way, measure| {
			self.of(name, way, measure).and_then(|record| quantile_of(&record.rounds(), 0.5))
		};
		let clone = |name: &str, measure| median(name, Way::Clone, measure);
		let faster =
			|found| Target::at_least("Java, 600 MB live: a cold start beside a clone that runs", FASTER, Some(found));
		let at_most = |what: &str, most, found: Option<Ratio>| {
			found.map(|found| Target::at_most(what, most, Unit::Microseconds, Some(found)))
		};
		let targets = [
			at_most("Java, 50 MB live, 16 threads: running", RUNNING_SMALL, clone("java-50m", Measure::Running)),
			at_most("Java, 600 MB live, 16 threads: running", RUNNING_LARGE, clone("java-600m", Measure::Running)),
			self.faster("java-600m").map(faster),
			at_most("Java, one line: the command's start to its end", JAVA_WHOLE, clone("java-line", Measure::Whole)),
			at_most("Java, 6,500 classes: the same", JAVA_WHOLE, clone("java-classes", Measure::Whole)),
			at_most("Node, 100 MB: running, and a request answered", NODE_SERVED, clone("node", Measure::Served)),
			at_most("CPython, numpy, threads: command to end", PYTHON_WHOLE, clone("python", Measure::Whole)),
			at_most("CPython, numpy, gRPC, pyarrow: the same", PYTHON_WHOLE, clone("python-libraries", Measure::Whole)),
			at_most("a thread's part of a clone", THREAD, self.thread()),
		];
		target::render(&targets.into_iter().flatten().collect::<Vec<_>>())
	}
}
