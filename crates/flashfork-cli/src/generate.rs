//! Shell completions and man pages, from the same source as `--help`.

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::error::CliError;
use crate::output::say;
use clap::CommandFactory;
use std::process::ExitCode;

/// Prints the completion script of a shell.
pub fn completions(args: &CompletionsArgs) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "flashfork", &mut script);
    say(String::from_utf8_lossy(&script).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for the command and one for each subcommand.
pub fn man_pages(args: &ManArgs) -> Result<ExitCode, CliError> {
    std::fs::create_dir_all(&args.dir).map_err(CliError::file("create", &args.dir))?;
    clap_mangen::generate_to(Args::command(), &args.dir).map_err(CliError::file("write man pages to", &args.dir))?;
    Ok(ExitCode::SUCCESS)
}
