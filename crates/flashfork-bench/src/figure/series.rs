//! What is drawn: the fork calls of idle parents, or clones and boots of virtual machines, picked from records.

use crate::prelude::*;
use plotters::style::RGBColor;

/// Everything the figure shows, in microseconds.
pub struct Series {
	/// What it says around the lines.
	pub words: Words,
	/// The methods measured with memory, baseline first; none is without points.
	pub lines: Vec<Line>,
	/// The median of the empty processes beside them all.
	pub empty: Option<f64>,
}

/// Texts of a figure.
pub struct Words {
	pub title: &'static str,
	/// What the points are medians of.
	pub subject: &'static str,
	/// What there are many of behind each point.
	pub counted: &'static str,
	pub sizes: &'static str,
	pub times: &'static str,
}

pub struct Line {
	/// As records name it.
	pub name: String,
	/// For who doesn't know the name.
	pub what: &'static str,
	pub ink: RGBColor,
	/// By size, ascending.
	pub points: Vec<Point>,
}

/// One method at one size.
pub struct Point {
	/// Bytes of memory.
	pub size: u64,
	/// The samples' summary, all above zero.
	pub call: Summary,
}

const FORKS: Words = Words {
	title: "What a fork costs by the parent's memory",
	subject: "Idle parent",
	counted: "clones",
	sizes: "memory of the parent",
	times: "time of the fork call",
};

const MACHINES: Words = Words {
	title: "What a clone of a virtual machine costs by its memory",
	subject: "Tiny guests, to the first exit that the client knows of",
	counted: "samples",
	sizes: "memory of the guest",
	times: "time to the first exit",
};

/// Clones and boots of virtual machines, slowest first.
const MACHINE_LINES: [(&str, &str, RGBColor); 6] = [
	("cold-boot-4k", "a machine from nothing", RGBColor(0xb9, 0x4a, 0x00)),
	("cold-boot-hugetlb", "the same, 2 MB pages", RGBColor(0x8a, 0x3f, 0x9e)),
	("clone-4k", "a claim, 4 KB pages", RGBColor(0x00, 0x7a, 0x5a)),
	("clone-thp", "a claim, huge pages", RGBColor(0x00, 0x72, 0xb2)),
	("clone-hugetlb", "a claim, hugetlb pages", RGBColor(0x55, 0x55, 0x55)),
	("primed-4k", "a claim of a primed shell", RGBColor(0xb0, 0x5a, 0x88)),
];

/// The colour of a method. Okabe and Ito's vermilion, blue and green, which colour-blind people tell apart, the first
/// and the last darkened so that text in them can be read on white.
pub fn colour(method: Method) -> RGBColor {
	match method {
		Method::Fork4k => RGBColor(0xb9, 0x4a, 0x00),
		Method::ForkThp => RGBColor(0x00, 0x72, 0xb2),
		Method::Hugetlb => RGBColor(0x2a, 0x9c, 0xc4),
		Method::Seal => RGBColor(0x00, 0x7a, 0x5a),
		Method::Odf => RGBColor(0x8a, 0x3f, 0x9e),
	}
}

/// What a method is, for who doesn't know its name.
fn explanation(method: Method) -> &'static str {
	match method {
		Method::Fork4k => "plain fork, 4 KB pages",
		Method::ForkThp => "plain fork, huge pages",
		Method::Hugetlb => "plain fork, hugetlb",
		Method::Seal => "sealed memory",
		Method::Odf => "on-demand fork",
	}
}

impl Series {
	/// Picks what is to be drawn from records of virtual machines.
	pub fn of_machines(records: &[&Record]) -> Result<Self> {
		let exits: Vec<&Record> = records.iter().copied().filter(|record| is_first_exit(record)).collect();
		let line = |(name, what, ink): (&str, _, _)| Line::of(name, what, ink, &exits);
		let lines = MACHINE_LINES.into_iter().map(line).collect::<Result<Vec<_>, _>>()?;
		Self::with_points(MACHINES, lines, None)
	}

	/// Picks what is to be drawn from records of forks.
	pub fn of_forks(records: &[&Record]) -> Result<Self> {
		let calls: Vec<&Record> = records.iter().copied().filter(|record| is_idle_call(record)).collect();
		let line = |method: Method| Line::of(method.as_ref(), explanation(method), colour(method), &calls);
		let lines = Method::all().map(line).collect::<Result<Vec<_>, _>>()?;
		let empty: Vec<f64> = calls
			.iter()
			.filter(|record| size(record) == Some(0) && record.method == Method::Fork4k.as_ref())
			.flat_map(|record| record.samples.iter().copied())
			.collect();
		let empty = if empty.is_empty() { None } else { Some(positive(&empty, "the empty process")?.p50) };
		Self::with_points(FORKS, lines, empty)
	}

	fn with_points(words: Words, mut lines: Vec<Line>, empty: Option<f64>) -> Result<Self> {
		lines.retain(|line| !line.points.is_empty());
		if lines.is_empty() {
			let why = "there are no fork calls of a parent with memory in these records, nor tiny guests; make some with \
					   `flashfork bench fork` or `flashfork bench vm-clone`";
			return Err(BenchError::Unable(why.to_owned()));
		}
		Ok(Self { words, lines, empty })
	}

	pub fn points(&self) -> impl Iterator<Item = &Point> {
		self.lines.iter().flat_map(|line| &line.points)
	}
}

impl Line {
	fn of(name: &str, what: &'static str, ink: RGBColor, records: &[&Record]) -> Result<Self> {
		let mut points = Vec::new();
		for record in records.iter().filter(|record| record.method == name) {
			if let Some(size @ 1..) = size(record) {
				let call = positive(&record.samples, &format!("{name}, {}", Size(size)))?;
				points.push(Point { size, call });
			}
		}
		points.sort_by_key(|point| point.size);
		Ok(Self { name: name.to_owned(), what, ink, points })
	}
}

fn is_idle_call(record: &Record) -> bool {
	let param = |key| record.chosen.get(key);
	param("measure").and_then(Value::as_str) == Some("call")
		&& param("parent").and_then(Value::as_str) == Some("idle")
		&& param("concurrent").and_then(Value::as_u64) == Some(1)
}

fn is_first_exit(record: &Record) -> bool {
	let param = |key| record.chosen.get(key).and_then(Value::as_str);
	param("measure") == Some("first exit") && param("guest") == Some("tiny")
}

fn size(record: &Record) -> Option<u64> {
	record.chosen.get("size").and_then(Value::as_u64)
}

fn positive(samples: &[f64], whose: &str) -> Result<Summary> {
	Summary::of(samples)
		.filter(|summary| summary.min > 0.0)
		.ok_or_else(|| unable!("the samples of {whose} are not all above zero: no place on a logarithmic axis"))
}
