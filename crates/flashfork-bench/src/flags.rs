//! What the tests of the experiments' flags share.

use crate::prelude::*;
use clap::{Args, Parser};

#[derive(Parser)]
struct Command<Options: Args> {
	#[command(flatten)]
	options: Options,
}

/// Parses the flags of an experiment as the command does.
pub fn parse<Options: Args>(args: &[&str]) -> Result<Options, clap::Error> {
	Command::try_parse_from(["bench"].iter().chain(args)).map(|command| command.options)
}
