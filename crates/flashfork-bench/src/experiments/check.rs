//! `bench check`: our figures beside those of programs everybody knows, in the same minute.
//!
//! A tool measures what its own parent and children do, so the same word means different things: each of ours imitates
//! the other's as far as that goes, runs in turn with it, and the table says what the rest is made of. What isn't
//! installed is left out with its reason.

mod report;
mod rounds;
mod tool;

use crate::prelude::*;

pub const EXPERIMENT: &str = "check";

#[derive(Clone, Default, clap::Args)]
#[command(after_help = "Example: flashfork bench check")]
pub struct CheckOptions {
	/// Two runs of each tool instead of five
	#[arg(long)]
	pub quick: bool,
}

impl Experiment for CheckOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str =
		"Our figures beside those of stress-ng, hyperfine, perf and lmbench, in the same minute";
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		rounds::measure(self, run)
	}

	fn in_all(quick: bool) -> Option<(Self, u64)> {
		let options = Self { quick };
		Some((options, if quick { 20 } else { 50 }))
	}
}
