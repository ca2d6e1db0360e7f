//! `bench cow-model`: the experiment of 1988, run again.
//!
//! J. M. Smith and G. Q. Maguire, "Effects of copy-on-write memory management on the response time of UNIX fork
//! operations", Computing Systems 1(3), 1988: a parent with so much memory forks, the child writes one byte in a share
//! of its pages and exits. From the times follow the prices of a process, a page-table entry and a copied page. Unlike
//! in their program `do-fork`, each child is waited for, and the program times itself (they used the shell's `time` and
//! regretted it).

mod grid;
mod model;
mod report;
mod rounds;
mod subject;

pub use grid::Grid;
pub use model::{Model, PAPER_MERIT, copy_rate};
pub use subject::{Ask, CowSubject};

use crate::prelude::*;

pub const EXPERIMENT: &str = "cow-model";

#[derive(Clone, Default, clap::Args)]
#[command(after_help = "Example: flashfork bench cow-model --grid paper")]
pub struct CowModelOptions {
	/// Which sizes of memory: those of the paper, 0 to 316,228 bytes, or today's, 1 MB to 256 MB
	#[arg(long, value_enum, default_value_t = Grid::Modern)]
	pub grid: Grid,

	/// Fewer cells and samples: half a minute instead of three
	#[arg(long)]
	pub quick: bool,
}

impl CowModelOptions {
	/// How much is measured of the grid, all sizes and shares together.
	fn effort(&self) -> Effort {
		if self.quick { Effort::precise(0.05, 6..=12, 20) } else { Effort::precise(0.02, 8..=60, 120) }
	}

	/// How much is measured of other things: the copy rate, real against system time.
	fn side_effort(&self) -> Effort {
		Effort::precise(0.02, 6..=30, if self.quick { 5 } else { 30 })
	}
}

impl Experiment for CowModelOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str =
		"The copy-on-write experiment of 1988 with today's figures: what a process, a page and a written page cost";
	const WORKERS: &'static [Registered] = &[Registered::of::<CowSubject>()];
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		rounds::measure(self, run)
	}

	fn in_all(quick: bool) -> Option<(Self, u64)> {
		let options = Self { grid: Grid::Modern, quick };
		Some((options, if quick { 40 } else { 200 }))
	}
}
