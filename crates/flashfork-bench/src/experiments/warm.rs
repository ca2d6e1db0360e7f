//! `bench warm`: programs from the shell, started anew and as clones of a warmed template (`flashfork warm`, `flashfork
//! clone`).
//!
//! What is timed is what a shell sees: from starting the command until it has ended and been waited for, and until the
//! first line of its output is there. Before each sample is a pause, in which a template makes its next clone ahead; a
//! row of clones without pauses says what they cost when there is no time for that. `/bin/true` started anew, by
//! posix_spawn, is the floor.

mod command;
mod program;
mod report;
mod rounds;
mod templates;

pub use program::Program;

use crate::prelude::*;

pub const EXPERIMENT: &str = "warm";

#[derive(Clone, Default, clap::Args)]
#[command(after_help = "Example: flashfork bench warm --programs true,numpy")]
pub struct WarmOptions {
	/// The programs [default: all that are installed]
	#[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
	pub programs: Option<Vec<Program>>,

	/// Fewer samples
	#[arg(long)]
	pub quick: bool,
}

impl WarmOptions {
	pub fn programs(&self) -> Vec<Program> {
		asked_of(self.programs.as_deref())
	}

	fn effort(&self) -> Effort {
		if self.quick {
			Effort::precise(0.05, 6..=12, 20)
		} else {
			Effort { warm_up: 2, ..Effort::precise(0.02, 20..=60, 150) }
		}
	}
}

impl Experiment for WarmOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str =
		"Programs from the shell, started anew and cloned from a warmed template: Python with numpy, Perl, Ruby";
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		rounds::measure(self, &run.here.command()?, run)
	}
}
