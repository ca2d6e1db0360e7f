//! `bench write-fraction`: how much of a real program's memory changes between two moments.
//!
//! Section 4 of J. M. Smith and G. Q. Maguire, "Effects of copy-on-write memory management on the response time of UNIX
//! fork operations", 1988, for the programs of today: they compared core dumps byte by byte and page by page, and found
//! that less than half of the pages of two Lisp systems changed. What doesn't change is what copy-on-write saves.
//!
//! How it is looked at: [`flashfork_advise::look`].

mod program;
mod report;
mod runs;

use crate::prelude::*;
use std::ffi::OsString;

pub const EXPERIMENT: &str = "write-fraction";

#[derive(Clone, Default, clap::Args)]
#[command(override_usage = "flashfork bench write-fraction [OPTIONS] [-- <COMMAND>...]")]
#[command(after_help = "Example: flashfork bench write-fraction --after 2 --for 5 -- python3 server.py\n\n\
				  Without a command or a process the ready runs are measured: CPython, Emacs Lisp's Towers of Hanoi, SQLite \
				  and redis-server, as far as they are installed.")]
pub struct WriteFractionOptions {
	/// A running process to look at instead of a command; it is stopped (SIGSTOP) for each of the two looks
	#[arg(long, value_name = "PID", conflicts_with = "command", value_parser = clap::value_parser!(i32).range(1..))]
	pub pid: Option<i32>,

	/// Only these ready runs
	#[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...", conflicts_with_all = ["pid", "command"])]
	pub ready: Option<Vec<Ready>>,

	/// Seconds from the start until the first look
	#[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
	pub after: f64,

	/// Seconds from the first look until the second
	#[arg(long = "for", value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
	pub during: f64,

	/// How many times a command or ready run is run
	#[arg(long, value_name = "N", default_value_t = 1, value_parser = count(1..=1000))]
	pub runs: u32,

	/// The command and its arguments. A command that stops itself (SIGSTOP) sets the two moments itself, and --after
	/// and --for are the longest it is waited for
	#[arg(last = true, value_name = "COMMAND")]
	pub command: Vec<OsString>,
}

/// A ready run.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum, strum::VariantArray)]
pub enum Ready {
	/// CPython keeps the names of one in ten of the records it made before.
	Cpython,
	/// Emacs Lisp's Towers of Hanoi, ten rings, as in the paper.
	Emacs,
	/// SQLite updates one row in a hundred of a table in memory.
	Sqlite,
	/// redis-server takes writes to one key in a hundred.
	Redis,
}

fn seconds(text: &str) -> Result<f64, String> {
	match text.parse::<f64>() {
		Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
		_ => Err("write a number of seconds, at most a day".to_owned()),
	}
}

impl Experiment for WriteFractionOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "How much of a program's memory changes between two moments: bytes, pages, huge pages";
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		runs::measure(self, run)
	}

	fn in_all(quick: bool) -> Option<(Self, u64)> {
		let options = Self { runs: if quick { 1 } else { 5 }, ..Self::default() };
		Some((options, if quick { 15 } else { 60 }))
	}
}
