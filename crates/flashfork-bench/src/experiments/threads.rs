//! `bench threads`: clones of programs with all their threads (`flashfork warm --threads`), beside the same programs
//! started anew, and beside the best that their runtimes offer against long starts.
//!
//! Four times are taken. *Running*: from the request until the caller hears that the clone runs, which it says when its
//! threads are made. *Served*: from the same request until a server has answered one of HTTP. *First answer*: from the
//! start of the command until its first line, or a server's answer, is there. *Whole*: until the command has ended. No
//! program sleeps while it is warmed, so that starting it anew is not made longer.

mod memory;
mod program;
mod report;
mod rounds;
mod runs;
mod server;

pub use program::Family;

use crate::prelude::*;

pub const EXPERIMENT: &str = "threads";

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench threads --programs java --heaps 600M")]
pub struct ThreadsOptions {
	/// The programs [default: all that are installed]
	#[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
	pub programs: Option<Vec<Family>>,

	/// Live heaps of the Java program with sixteen threads
	#[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "50M,600M,2G")]
	pub heaps: Vec<Size>,

	/// A Python with numpy, grpcio and pyarrow, whose program with these is measured, too
	#[arg(long, value_name = "PATH")]
	pub python: Option<PathBuf>,

	/// Numbers of threads of a Python program, for the price of a thread
	#[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,16,64,256",
		  value_parser = count(1..=2000))]
	pub threads: Vec<u32>,

	/// Clones that are alive at a time, for the memory of each
	#[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,8,64",
		  value_parser = count(1..=1000))]
	pub alive: Vec<u32>,

	/// Fewer samples
	#[arg(long)]
	pub quick: bool,
}

impl ThreadsOptions {
	fn wants(&self, family: Family) -> bool {
		self.programs.as_ref().is_none_or(|asked| asked.contains(&family))
	}

	fn effort(&self) -> Effort {
		if self.quick {
			Effort { warm_up: 0, ..Effort::precise(0.1, 3..=6, 60) }
		} else {
			Effort::precise(0.03, 10..=40, 900)
		}
	}
}

impl Experiment for ThreadsOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "Programs with threads, started anew and cloned: Java, Node, Python with numpy";
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		rounds::measure(self, run)
	}
}
