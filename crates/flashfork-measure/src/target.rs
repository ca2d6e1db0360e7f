//! Figures the project promises, checked against what was measured: shown, never asserted.

use crate::{
	cells,
	stats::{Interval, Ratio},
};
use flashfork_terminal::{
	size::show,
	table::{self, three_figures},
};

/// A bound promised in the specification.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
	/// Kept by figures of this or less.
	AtMost(f64),
	/// Kept by figures of this or more.
	AtLeast(f64),
}

/// What the figures are figures of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unit {
	/// Ratios.
	Times,
	/// Times in microseconds.
	Microseconds,
	/// Seconds for each GB.
	SecondsPerGb,
	/// Bytes.
	Bytes,
	/// Rates.
	PerSecond,
	/// Things that are counted.
	Count,
}

/// One promise and how it fared.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
	/// The figure, in words.
	pub what: String,
	/// What is promised of it.
	pub bound: Bound,
	/// Its unit.
	pub unit: Unit,
	/// The figure and its 95 % interval; `None` when this run didn't measure it.
	pub measured: Option<Ratio>,
}

/// [`render`] below a heading; nothing where none of them was measured.
pub fn promises(targets: &[Target]) -> String {
	let any = targets.iter().any(|target| target.measured.is_some());
	if any { format!("Promises\n{}", render(targets)) } else { String::new() }
}

/// The targets as a table, if there are any, and where to read on if some are missed.
pub fn render(targets: &[Target]) -> String {
	let table = cells::table("what || target | measured (95 %) | met?", targets.iter().map(Target::row));
	let missed = targets.iter().any(|target| target.verdict() == MISSED);
	if missed { format!("{table}\ndocs/FIGURES.md says why.") } else { table }
}

/// The verdict on a promise that was not kept.
const MISSED: &str = "no";

impl Target {
	/// A figure that is to be `most` or less.
	pub fn at_most(what: impl Into<String>, most: f64, unit: Unit, measured: Option<Ratio>) -> Self {
		Self { what: what.into(), bound: Bound::AtMost(most), unit, measured }
	}

	/// A ratio that is to be `least` or more.
	pub fn at_least(what: impl Into<String>, least: f64, measured: Option<Ratio>) -> Self {
		Self { what: what.into(), bound: Bound::AtLeast(least), unit: Unit::Times, measured }
	}

	/// What was counted, of which there is to be none.
	pub fn none(what: impl Into<String>, counted: Option<f64>) -> Self {
		let measured = counted.map(|value| Ratio { value, interval: Interval { low: value, high: value } });
		Self::at_most(what, 0.0, Unit::Count, measured)
	}

	/// The cells of its table row: what, target, measured, met?
	pub fn row(&self) -> Vec<String> {
		let bound = match self.bound {
			Bound::AtMost(limit) => format!("≤ {}", self.unit.show(limit)),
			Bound::AtLeast(limit) => format!("≥ {}", self.unit.show(limit)),
		};
		let measured = self.measured.as_ref().map_or("not measured".to_owned(), |found| {
			let value = self.unit.show(found.value);
			// A count has none.
			match self.unit {
				Unit::Count => value,
				unit => format!("{value} ({})", unit.show_interval(found.interval)),
			}
		});
		vec![self.what.clone(), bound, measured, self.verdict().to_owned()]
	}

	/// Whether the promise was kept; "too close" when the interval holds both answers.
	fn verdict(&self) -> &'static str {
		let Some(found) = self.measured else { return "" };
		let holds = |value: f64| match self.bound {
			Bound::AtMost(limit) => value <= limit,
			Bound::AtLeast(limit) => value >= limit,
		};
		match (holds(found.interval.low), holds(found.interval.high)) {
			(true, true) => "yes",
			(false, false) => MISSED,
			_ => "too close",
		}
	}
}

impl Unit {
	/// Both ends, the unit once where it is the same.
	fn show_interval(self, Interval { low, high }: Interval) -> String {
		let (low, high) = (self.show(low), self.show(high));
		let unit = high.find(' ').map_or("", |space| &high[space..]);
		let low = low.strip_suffix(unit).unwrap_or(&low).to_owned();
		match self {
			Self::Times => format!("{low}–{}", high.trim_end_matches(unit)),
			_ => format!("{low}–{high}"),
		}
	}

	fn show(self, value: f64) -> String {
		match self {
			Self::Times => format!("{} ×", three_figures(value)),
			Self::Microseconds => table::time(value),
			Self::SecondsPerGb => format!("{} s/GB", three_figures(value)),
			Self::Bytes => show(value.max(0.0) as u64),
			Self::PerSecond => format!("{} /s", three_figures(value)),
			Self::Count => value.to_string(),
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	fn target(bound: Bound, low: f64, high: f64) -> Target {
		let measured = Some(Ratio { value: (low + high) / 2.0, interval: Interval { low, high } });
		Target { what: "x".into(), bound, unit: Unit::Times, measured }
	}

	#[test]
	fn a_verdict_needs_the_whole_interval() {
		assert_eq!(target(Bound::AtMost(1.3), 1.0, 1.2).verdict(), "yes");
		assert_eq!(target(Bound::AtMost(1.3), 1.2, 1.4).verdict(), "too close");
		assert_eq!(target(Bound::AtMost(1.3), 1.4, 1.5).verdict(), "no");
		assert_eq!(target(Bound::AtLeast(100.0), 200.0, 300.0).verdict(), "yes");
		assert_eq!(target(Bound::AtLeast(100.0), 20.0, 30.0).verdict(), "no");
	}

	#[test]
	fn an_interval_names_its_unit_once() {
		let show = |unit: Unit, low, high| unit.show_interval(Interval { low, high });
		assert_eq!(show(Unit::Times, 2.0, 3.0), "2.00–3.00");
		assert_eq!(show(Unit::Microseconds, 340.0, 1200.0), "340 µs–1.20 ms");
		assert_eq!(show(Unit::SecondsPerGb, 0.45, 0.5), "0.45–0.50 s/GB");
		assert_eq!(show(Unit::Bytes, 2e6, 1e7), "1.9–9.5 MB");
		assert_eq!(show(Unit::Bytes, 3072.0, 1e7), "3 KB–9.5 MB");
		assert_eq!(show(Unit::PerSecond, 310.0, 412.0), "310–412 /s");
	}

	#[test]
	fn a_missed_target_comes_with_a_place_to_read_on() {
		let (met, missed) = (target(Bound::AtMost(1.3), 1.0, 1.2), target(Bound::AtMost(1.3), 1.4, 1.5));
		assert!(!render(std::slice::from_ref(&met)).contains("FIGURES"));
		assert!(render(&[met, missed]).ends_with("says why."));
	}

	#[test]
	fn of_what_is_not_to_be_one_is_too_many() {
		assert_eq!(Target::none("x", Some(0.0)).row(), ["x", "≤ 0", "0", "yes"]);
		assert_eq!(Target::none("x", Some(2.0)).row(), ["x", "≤ 0", "2", "no"]);
		assert_eq!(Target::none("x", None).row()[2..], ["not measured", ""]);
	}

	#[test]
	fn a_row_names_target_and_figure() {
		let row = target(Bound::AtLeast(100.0), 200.0, 300.0).row();
		assert_eq!(row, ["x", "≥ 100 ×", "250 × (200–300)", "yes"]);
		let missing = Target { measured: None, ..target(Bound::AtMost(1.0), 0.0, 0.0) };
		assert_eq!(missing.row()[2..], ["not measured", ""]);
	}
}
