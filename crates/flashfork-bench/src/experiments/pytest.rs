//! `bench pytest`: suites of tests in Python, run by pytest alone, by workers of xdist, by pytest-forked, and in clones
//! (`--clones` and `--clone-each` of the Python package's plugin); and a program cloned from Python.
//!
//! Three suites: many small tests, for which starting is what costs; a real package's own; and one whose session
//! fixture holds a lot of memory, each test of which reads and writes in it. Each run is a command as a person types
//! it. Every way must come to the same outcomes as pytest alone, or nothing of it is believed.

mod client;
mod report;
mod rounds;
mod run;
mod suite;
mod way;

pub use suite::Suite;

use crate::prelude::*;
use std::num::NonZeroU32;

pub const EXPERIMENT: &str = "pytest";

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench pytest --python venv/bin/python --suites small\n\
				  scripts/python-bench, in the source, makes environments for --python and --forked-python and brings a --real suite.")]
pub struct PytestOptions {
	/// The Python to run tests with: it has pytest, pytest-xdist, numpy, pandas and flashfork
	#[arg(long, value_name = "PYTHON", default_value = "python3")]
	pub python: PathBuf,

	/// Another Python, with pytest-forked and a pytest that it works with
	#[arg(long, value_name = "PYTHON")]
	pub forked_python: Option<PathBuf>,

	/// The directory of a real suite of tests, in which pytest is run without further arguments
	#[arg(long, value_name = "DIR")]
	pub real: Option<PathBuf>,

	/// A wheel of the package, to time its installation until the first clone
	#[arg(long, value_name = "FILE")]
	pub wheel: Option<PathBuf>,

	/// The suites [default: all that can be run]
	#[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
	pub suites: Option<Vec<Suite>>,

	/// Workers of xdist, and of --clones
	#[arg(long, value_name = "N", default_value = "2")]
	pub workers: NonZeroU32,

	/// What the session fixture holds
	#[arg(long, value_name = "SIZE", default_value = "1G")]
	pub size: Size,

	/// Fewer runs and smaller suites
	#[arg(long)]
	pub quick: bool,
}

impl PytestOptions {
	pub fn suites(&self) -> Vec<Suite> {
		asked_of(self.suites.as_deref())
	}

	fn effort(&self) -> Effort {
		if self.quick { Effort { warm_up: 1, ..Effort::rounds(1) } } else { Effort::precise(0.03, 6..=12, 900) }
	}
}

impl Experiment for PytestOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "Tests in Python: pytest alone, xdist, pytest-forked, and tests in clones";
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		rounds::measure(self, run)
	}
}
