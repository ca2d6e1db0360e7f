//! Shell completions and man pages, from the same source as `--help`.

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::error::CliError;
use crate::output::say;
use clap::{Command, CommandFactory};
use clap_complete::CompleteEnv;
use clap_complete::env::Shells;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use flashfork_core::environment::{self, Variable};
use std::path::Path;
use std::process::ExitCode;

/// By which a completion script asks this program, and in which shell's words.
const COMPLETE: &str = "FLASHFORK_COMPLETE";

/// Answers a completion script, if one asks; the program has nothing else to do then.
pub fn complete() {
    CompleteEnv::with_factory(Args::command).var(COMPLETE).complete();
}

/// Prints the completion script of a shell, which asks this program for what could come next.
pub fn completions(args: &CompletionsArgs) -> Result<ExitCode, CliError> {
    let shell = args.shell.to_string();
    let (mut script, shells) = (Vec::new(), Shells::builtins());
    let unable = |e: &dyn std::fmt::Display| CliError::Unable(format!("no completion script for {shell}: {e}"));
    let completer = shells.completer(&shell).ok_or_else(|| unable(&"the shell is not known"))?;
    completer
        .write_registration(COMPLETE, "flashfork", "flashfork", "flashfork", &mut script)
        .map_err(|e| unable(&e))?;
    say(String::from_utf8_lossy(&script).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for the command and one for each subcommand.
pub fn man_pages(args: &ManArgs) -> Result<ExitCode, CliError> {
    std::fs::create_dir_all(&args.dir).map_err(CliError::file("create", &args.dir))?;
    let mut all = Args::command().disable_help_subcommand(true);
    all.build();
    pages(&all, None, &args.dir)?;
    Ok(ExitCode::SUCCESS)
}

/// The page of a command, and those of its subcommands.
fn pages(command: &Command, parent: Option<&str>, dir: &Path) -> Result<(), CliError> {
    let (name, mut page) = (name(command), Vec::new());
    let below: Vec<_> = command.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    let related: Vec<_> =
        parent.map(str::to_owned).into_iter().chain(below.iter().map(|command| self::name(command))).collect();
    let written = Man::new(command.clone()).render(&mut page).and_then(|()| tail(&name, &related).to_writer(&mut page));
    let path = dir.join(format!("{name}.1"));
    written.and_then(|()| std::fs::write(&path, page)).map_err(CliError::file("write", &path))?;
    below.into_iter().try_for_each(|command| pages(command, Some(&name), dir))
}

/// "flashfork-lab-run".
fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

/// The sections that follow from no option.
fn tail(name: &str, related: &[String]) -> Roff {
    let mut roff = Roff::new();
    let variables = match name {
        "flashfork" => &environment::TABLE[..],
        "flashfork-run" => &[environment::ENGINE, environment::THREADS, environment::TRUST],
        "flashfork-warm" => &[environment::THREADS, environment::TRUST],
        _ => &[],
    };
    if !variables.is_empty() {
        roff.control("SH", ["ENVIRONMENT"]);
        variables.iter().for_each(|variable| entry(&mut roff, variable));
    }
    roff.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for other in related {
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(other.as_str()), roman("(1)")]);
    }
    roff.text(line);
    roff.control("PP", []);
    roff.text([roman("Documents that are named as docs/… lie in share/doc/flashfork beside share/man.")]);
    roff
}

/// A variable, its values and their meaning.
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
