//! `bench creation`: every way to make a process (and a thread, as the floor) beside the others, by the parent's
//! memory.
//!
//! What chapter 28.3 of "The Linux Programming Interface" (M. Kerrisk, 2010) tabulates, with the parent's memory
//! touched, the phases apart, and the engines of this project in the same run. All ways of one size are visited in
//! random order; ways that prepare the parent differently (huge pages, sealed, on demand, with threads) live in workers
//! of their own. Every child's status is checked; rates are computed from the times.

mod cycle;
mod extras;
mod make;
mod report;
mod rounds;
mod subject;
mod way;

pub use subject::{Ask, CreationSubject, Spec};
pub use way::{Phase, Then, Way};

use crate::prelude::*;

pub const EXPERIMENT: &str = "creation";

/// Sizes of the parent's memory unless others are asked for: those of the book's table, then those of today.
const SIZES: &str = "1.7M,2.7M,11.7M,64M,256M,1G";
const QUICK: &str = "1.7M,64M,256M";

#[derive(Clone, Default, clap::Args)]
#[command(after_help = "Example: flashfork bench creation --sizes 1.7M,64M,1G --fds 100")]
pub struct CreationOptions {
	/// Sizes of the parent's memory [default: 1.7M,2.7M,11.7M,64M,256M,1G; with --quick 1.7M,64M,256M]
	#[arg(long, value_delimiter = ',', value_name = "SIZE,...")]
	pub sizes: Option<Vec<Size>>,

	/// Whether the memory is written before; memory that never was costs a fork nothing, however much there is
	#[arg(long, value_enum, default_value_t = Touch::All)]
	pub touch: Touch,

	/// Open this many more files in the parent
	#[arg(long, value_name = "N", default_value_t = 0)]
	pub fds: u32,

	/// Add this many mappings of one page each to the parent
	#[arg(long, value_name = "N", default_value_t = 0)]
	pub vmas: u32,

	/// Fewer sizes and samples: under a minute instead of four
	#[arg(long)]
	pub quick: bool,
}

/// What the parent does with its memory before it makes processes.
#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Touch {
	/// Writes every page.
	#[default]
	All,
	/// Nothing.
	None,
}

impl CreationOptions {
	pub fn bytes(&self) -> Vec<u64> {
		let default = if self.quick { QUICK } else { SIZES };
		match &self.sizes {
			Some(sizes) => ascending(sizes.iter().map(|size| size.0)),
			None => default.split(',').filter_map(|text| text.parse().ok()).map(|Size(bytes)| bytes).collect(),
		}
	}

	fn effort(&self) -> Effort {
		if self.quick { Effort::precise(0.05, 6..=20, 8) } else { Effort::precise(0.02, 8..=100, 35) }
	}
}

impl Experiment for CreationOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str =
		"Every way to make a process beside the others: fork, vfork, clone, posix_spawn, threads, sealed";
	const WORKERS: &'static [Registered] = &[Registered::of::<CreationSubject>()];
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		rounds::measure(self, run)
	}

	fn in_all(quick: bool) -> Option<(Self, u64)> {
		let options = Self { quick, ..Self::default() };
		Some((options, if quick { 35 } else { 240 }))
	}
}
