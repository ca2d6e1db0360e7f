//! The model fitted to the records of a run, and the paper's figures to set beside it.

use super::{EXPERIMENT, subject::Measure};
use crate::prelude::*;
use flashfork_measure::stats::{Fit, Observation, fit};

/// A line of the paper's figures 1 and 2: seconds for 1000 forks by bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaperLine {
	/// The machine.
	pub machine: &'static str,
	/// The share of the memory written.
	pub share: f64,
	/// Seconds per byte and 1000 forks, which is milliseconds per byte and fork.
	pub slope: f64,
	/// Seconds per 1000 forks of nothing: milliseconds per fork.
	pub intercept: f64,
}

const fn line(machine: &'static str, share: f64, slope: f64, intercept: f64) -> PaperLine {
	PaperLine { machine, share, slope, intercept }
}

/// The paper's regression lines.
pub const PAPER: [PaperLine; 6] = [
	line("AT&T 3B2/310", 0.1, 1.709e-4, 31.4),
	line("AT&T 3B2/310", 0.5, 7.670e-4, 30.5),
	line("AT&T 3B2/310", 0.9, 1.349e-3, 30.7),
	line("HP 9000/350", 0.1, 2.952e-5, 12.7),
	line("HP 9000/350", 0.5, 1.264e-4, 12.4),
	line("HP 9000/350", 0.9, 2.124e-4, 12.2),
];
/// The paper's merit: bytes of page faults served per second, by bytes copied per second, at best.
pub const PAPER_MERIT: [(&str, f64); 2] = [("AT&T 3B2/310", 0.823), ("HP 9000/350", 0.804)];

/// t = a + b · pages + c · pages written, in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
	/// `fork-4k` or `fork-thp`.
	pub method: Method,
	/// The fitted prices with intervals.
	pub fit: Fit<3>,
	/// The cells it was fitted to, in the order of the residuals.
	pub cells: Vec<Cell>,
}

/// One cell of the grid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
	/// Bytes of memory.
	pub size: u64,
	/// Pages of 4 KB.
	pub pages: f64,
	/// The share written.
	pub share: f64,
	/// Pages written.
	pub written: f64,
	/// The median, in microseconds.
	pub median: f64,
}

/// Our line for one share, in the paper's units.
#[derive(Clone, Copy, PartialEq)]
pub struct Line {
	/// Milliseconds per byte and fork.
	pub slope: f64,
	/// Milliseconds per fork.
	pub intercept: f64,
}

impl PaperLine {
	/// Bytes of page faults served per second.
	pub fn fault_rate(&self) -> f64 {
		1000.0 * self.share / self.slope
	}
}

impl Model {
	/// Fits the cells of `method` in `document`; `None` when there are too few.
	pub fn of(document: &Document, method: Method) -> Option<Self> {
		let is_cell = |record: &&Record| {
			record.method == method.as_ref() && record.text("measure") == Some(Measure::Cycle.as_ref())
		};
		let (mut cells, mut observations) = (Vec::new(), Vec::new());
		for record in document.of(EXPERIMENT).filter(is_cell) {
			let number = |name: &str| record.float(name);
			let (pages, written) = (number("pages")?, number("pages_written")?);
			cells.push(Cell {
				size: number("size")? as u64,
				pages,
				share: number("share")?,
				written,
				median: record.p50,
			});
			observations.push(Observation { amounts: [1.0, pages, written], cost: record.rounds() });
		}
		Some(Self { method, fit: fit(&observations)?, cells })
	}

	/// The line for one share of pages written.
	pub fn line(&self, share: f64) -> Line {
		let [process, entry, copied] = self.fit.coefficients;
		Line { slope: (entry + copied * share) / PAGE as f64 / 1e3, intercept: process / 1e3 }
	}

	/// Bytes of page faults served per second at one share, as the paper computes it: from the slope of the line.
	pub fn fault_rate(&self, share: f64) -> f64 {
		share / self.line(share).slope * 1e3
	}
}

/// Bytes copied per second in copies of `size` bytes.
pub fn copy_rate(document: &Document, size: u64) -> Option<f64> {
	let found = document.find(EXPERIMENT, "memcpy", json!({ "size": size }))?;
	Some(found.p50 * 1e6)
}

/// Medians of real, user and system time by number of forks, in microseconds, ascending.
pub fn times_by_forks(document: &Document) -> Vec<(u64, [f64; 3])> {
	let of = |forks: u64, measure: Measure| {
		let mut own = document.of(EXPERIMENT);
		let found = own.find(|r| r.number("forks") == Some(forks) && r.text("measure") == Some(measure.as_ref()))?;
		Some(median(&mut found.samples.clone()))
	};
	let row = |forks| {
		let [real, user, system] = [Measure::Real, Measure::User, Measure::System].map(|measure| of(forks, measure));
		Some((forks, [real?, user?, system?]))
	};
	numbers(document.of(EXPERIMENT), "forks").into_iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
	use super::*;

	/// A document whose cells follow the model exactly.
	fn document(prices: [f64; 3]) -> Document {
		let mut records = Vec::new();
		for size in [1_u64 << 20, 4 << 20, 64 << 20] {
			for share in [0.0, 0.1, 0.5, 0.9] {
				let pages = (size / 4096) as f64;
				let written = (pages * share).ceil();
				let cost = prices[0] + prices[1] * pages + prices[2] * written;
				let chosen = [
					("measure", json!("cycle")),
					("size", json!(size)),
					("pages", json!(pages)),
					("share", json!(share)),
					("pages_written", json!(written)),
				];
				records.push(Record::new(EXPERIMENT, "fork-4k", chosen, "us", vec![cost; 5]).unwrap());
			}
		}
		Document::here(records).unwrap()
	}

	#[test]
	fn the_prices_of_a_host_are_found_from_its_records() {
		let model = Model::of(&document([60.2, 0.0557, 2.22]), Method::Fork4k).unwrap();
		for (found, expected) in model.fit.coefficients.iter().zip([60.2, 0.0557, 2.22]) {
			// As exactly as the samples are kept.
			assert!((found / expected - 1.0).abs() < 1e-3, "{model:?}");
		}
		assert_eq!((model.cells.len(), model.fit.residuals.len()), (12, 12));
		assert!(Model::of(&document([60.2, 0.0557, 2.22]), Method::ForkThp).is_none());
		// 4096 bytes in 2.22 µs and a ninth of a page-table entry: a little below 1.85 GB/s.
		let rate = model.fault_rate(0.9);
		assert!((rate / 1.793e9 - 1.0).abs() < 0.01, "{rate}");
	}

	#[test]
	fn the_papers_rates_follow_from_its_lines() {
		// Its section 3.1: 585,138, 651,890, 667,161 and 3,387,534, 3,955,696, 4,237,288 bytes per second.
		let printed = [585_138.0, 651_890.0, 667_161.0, 3_387_534.0, 3_955_696.0, 4_237_288.0];
		for (line, printed) in PAPER.iter().zip(printed) {
			assert!((line.fault_rate() / printed - 1.0_f64).abs() < 1e-3, "{line:?} {}", line.fault_rate());
		}
		for ((_, merit), (rate, copy)) in PAPER_MERIT.iter().zip([(667_161.0, 810_841.0), (4_237_288.0, 5_270_466.0)]) {
			assert!((merit - rate / copy).abs() < 1e-3_f64);
		}
	}
}
