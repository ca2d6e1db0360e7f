//! `flashfork bench`: experiments, and figures of what they found.
//!
//! The command hands its whole command line to this program (ARCHITECTURE.md). Exit codes are the command's.

mod args;
mod bars;
mod installed;
mod run;

use clap::{CommandFactory, Parser};
use flashfork_terminal::{help, output};
use std::process::ExitCode;

fn main() -> ExitCode {
	// A worker of an experiment is this program started again: it must come first, before any thread is started.
	let mut argv = std::env::args_os().skip(1);
	if argv.next().is_some_and(|first| first == flashfork_measure::worker::ARGUMENT) {
		return flashfork_measure::worker_main(flashfork_bench::experiments::workers(), argv);
	}
	output::end_with_the_pipe();
	help::complete(args::Args::command);
	output::end(run::main(&args::Args::parse().command))
}
