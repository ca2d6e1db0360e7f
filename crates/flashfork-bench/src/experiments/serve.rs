//! `bench serve`: calls of functions that `flashfork serve` runs, each in a fresh clone, beside a process for each call
//! and one that is used again, which isolates nothing and is the floor.
//!
//! Two functions in Python, a small one and one that has imported numpy, are called through HTTP on connections that
//! stay open: by one client, and by many, who each ask again as soon as they have their answer. A new process imports
//! the same, reads its event from standard input and writes the answer; the one that is used again does so line by
//! line. Each answer must be that to its own call, and a clone's must be its first.

mod client;
mod function;
mod report;
mod rounds;
mod server;

use crate::prelude::*;
pub use client::{Called, Client, Way};
pub use function::{Function, MODULE, program as function_program};
pub use rounds::lambda_python;
pub use server::Server;

pub const EXPERIMENT: &str = "serve";

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench serve --python venv/bin/python --quick\n\
				  scripts/python-libraries lambda, in the source, makes an environment for --python.")]
pub struct ServeOptions {
	/// Python that functions run in: it has awslambdaric, and numpy
	#[arg(long, value_name = "PYTHON", default_value = "python3")]
	pub python: PathBuf,

	/// The functions [default: all]
	#[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
	pub functions: Option<Vec<Function>>,

	/// Clients at a time, where there is more than one
	#[arg(long, value_name = "N", default_value_t = 16, value_parser = count(2..=256))]
	pub clients: u32,

	/// Fewer calls
	#[arg(long)]
	pub quick: bool,
}

impl ServeOptions {
	pub fn functions(&self) -> Vec<Function> {
		asked_of(self.functions.as_deref())
	}

	fn effort(&self) -> Effort {
		if self.quick { Effort::precise(0.05, 6..=8, 60) } else { Effort::precise(0.02, 20..=60, 420) }
	}
}

impl Experiment for ServeOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str =
		"Functions as a service: calls in fresh clones, in new processes, and in one that is used again";
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		rounds::measure(self, run)
	}
}
