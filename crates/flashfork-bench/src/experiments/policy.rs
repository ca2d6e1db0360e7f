//! `bench policy`: a parent that writes some of its memory and forks, again and again: plain, sealed, and as `auto`
//! decides.
//!
//! What counts is the whole: writes, forks, clones that end at once, and the seals in between, divided by the number of
//! forks. Each run is its own process and begins with nothing sealed, because a policy learns. `auto` is held against
//! the best of the others on the same kind of memory (4 KB pages, or THP), over all forks so far and over the latest
//! ones alone.

mod figure;
mod report;
mod rounds;
mod subject;

pub use subject::PolicySubject;

use crate::prelude::*;

pub const EXPERIMENT: &str = "policy";

const SIZES: [u64; 4] = [64 << 20, 256 << 20, 1 << 30, 4 << 30];
const DIRTY: [f64; 4] = [0.0, 0.1, 1.0, 10.0];
const FORKS: [usize; 4] = [10, 50, 200, 1000];

#[derive(Clone, Default, clap::Args)]
#[command(
	after_help = "Example: flashfork bench policy --sizes 256M --dirty 0,1 --records policy.json && flashfork bench figure policy.json policy.svg"
)]
pub struct PolicyOptions {
	/// Sizes of the parent's memory [default: 64M,256M,1G,4G; with --quick 64M,256M]
	#[arg(long, value_delimiter = ',', value_name = "SIZE,...")]
	pub sizes: Option<Vec<Size>>,

	/// Percent of its pages that the parent writes before each fork, at random [default: 0,0.1,1,10]
	#[arg(long, value_delimiter = ',', value_name = "PERCENT,...", value_parser = percent)]
	pub dirty: Option<Vec<f64>>,

	/// The pages that the parent writes lie in a row, always the same
	#[arg(long)]
	pub in_a_row: bool,

	/// After how many forks to look [default: 10,50,200,1000; with --quick 10,50,200]
	#[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = count(1..))]
	pub forks: Option<Vec<u32>>,

	/// Runs of each kind; medians are shown [default: 3; with --quick 1]
	#[arg(long, value_name = "N", value_parser = count(1..))]
	pub rounds: Option<u32>,

	/// Fewer sizes, forks and runs: about a minute instead of half an hour
	#[arg(long)]
	pub quick: bool,
}

fn percent(text: &str) -> Result<f64, String> {
	match text.parse::<f64>() {
		Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
		_ => Err("a number from 0 to 100".to_owned()),
	}
}

impl PolicyOptions {
	pub fn sizes(&self) -> Vec<u64> {
		let default = if self.quick { &SIZES[..2] } else { &SIZES[..] };
		self.sizes.as_ref().map_or_else(|| default.to_vec(), |sizes| each_once(sizes.iter().map(|size| size.0)))
	}

	pub fn dirty(&self) -> Vec<f64> {
		self.dirty.as_ref().map_or_else(|| DIRTY.to_vec(), |dirty| each_once(dirty.iter().copied()))
	}

	/// Ascending.
	pub fn forks(&self) -> Vec<usize> {
		let default = if self.quick { &FORKS[..3] } else { &FORKS[..] };
		self.forks.as_ref().map_or_else(|| default.to_vec(), |forks| ascending(forks.iter().map(|&n| n as usize)))
	}

	pub fn rounds(&self) -> usize {
		self.rounds.map_or(if self.quick { 1 } else { 3 }, |n| n as usize)
	}
}

impl Experiment for PolicyOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str =
		"What `auto` decides beside plain forks and a seal, by size, written share and number of forks";
	const WORKERS: &'static [Registered] = &[Registered::of::<PolicySubject>()];
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		rounds::measure(self, run)
	}

	fn figure(document: &Document) -> Option<Result<String>> {
		let cells = report::cells(document);
		(!cells.is_empty()).then(|| figure::draw(&cells))
	}
}
