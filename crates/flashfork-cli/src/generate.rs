//! Shell completions and man pages.

use crate::{
	args::{Args, CompletionsArgs, ManArgs},
	others::{self, OTHERS},
};
use clap::CommandFactory;
use clap_mangen::roff::{Roff, bold, roman};
use flashfork_core::environment::{self, Variable};
use flashfork_terminal::{CliError, help};
use std::{io::ErrorKind, process::ExitCode};

/// Prints the completion script of a shell.
pub fn completions(args: &CompletionsArgs) -> Result<ExitCode, CliError> {
	help::completions(&args.shell.to_string())?;
	Ok(ExitCode::SUCCESS)
}

/// Writes a page for the command and one for each subcommand.
pub fn man_pages(args: &ManArgs) -> Result<ExitCode, CliError> {
	match std::fs::create_dir(&args.dir) {
		Err(e) if e.kind() == ErrorKind::NotFound => {
			let dir = args.dir.display();
			return Err(CliError::Unable(format!(
				"can't create {dir}: the directory above it doesn't exist; make it first"
			)));
		}
		Err(e) if !args.dir.is_dir() => return Err(CliError::file("create", &args.dir)(e)),
		_ => {}
	}
	let mut all = Args::command().disable_help_subcommand(true);
	all.build();
	help::man_pages(&all, None, &OTHERS, &args.dir, &variables)?;
	others::man_pages(&args.dir)?;
	Ok(ExitCode::SUCCESS)
}

fn variables(name: &str, roff: &mut Roff) {
	let variables = match name {
		"flashfork" => &environment::TABLE[..],
		"flashfork-run" => &[environment::ENGINE, environment::THREADS, environment::TRUST],
		"flashfork-warm" => &[environment::THREADS, environment::TRUST],
		_ => return,
	};
	roff.control("SH", ["ENVIRONMENT"]);
	variables.iter().for_each(|variable| entry(roff, variable));
}

fn entry(roff: &mut Roff, variable: &Variable) {
	let plain = |text: &str| text.replace('`', "");
	roff.control("TP", []);
	roff.text([bold(variable.name())]);
	for value in variable.values {
		let more = value.more.map_or(String::new(), |more| format!(" (docs/{more})"));
		roff.text([bold(plain(value.value)), roman(format!(": {}{more}.", plain(value.meaning)))]);
		roff.control("br", []);
	}
	roff.text([roman(format!("Without it: {}.", plain(variable.without)))]);
}
