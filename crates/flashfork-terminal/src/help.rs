//! Completions and man pages, from the same source as `--help`.

use crate::{error::CliError, output::say};
use clap::Command;
use clap_complete::env::{CompleteEnv, Shells};
use clap_mangen::{
	Man,
	roff::{Roff, bold, roman},
};
use std::{ffi::OsString, path::Path};

/// The command, whichever of its programs is running.
pub const COMMAND: &str = "flashfork";

/// By which a completion script asks the command, and in which shell's words.
const COMPLETE: &str = "FLASHFORK_COMPLETE";

/// The command line that a completion script asks about, its last word unfinished; none where no script asks.
pub fn asked() -> Option<Vec<OsString>> {
	std::env::var_os(COMPLETE)?;
	Some(std::env::args_os().skip_while(|argument| argument != "--").skip(1).collect())
}

/// Answers a completion script, if one asks; the program has nothing else to do then.
pub fn complete(parser: fn() -> Command) {
	CompleteEnv::with_factory(parser).var(COMPLETE).complete();
}

/// Prints the completion script of a shell, which asks the command for what could come next.
pub fn completions(shell: &str) -> Result<(), CliError> {
	let (mut script, shells) = (Vec::new(), Shells::builtins());
	let unable = |e: &dyn std::fmt::Display| CliError::Unable(format!("no completion script for {shell}: {e}"));
	let completer = shells.completer(shell).ok_or_else(|| unable(&"the shell is not known"))?;
	completer.write_registration(COMPLETE, COMMAND, COMMAND, COMMAND, &mut script).map_err(|e| unable(&e))?;
	say(String::from_utf8_lossy(&script).trim_end())
}

/// Writes the man page of a command that is built, and those of its subcommands but `others`, into the directory `dir`.
/// `parent` is the page above; `more` has the sections of a page that follow from no option.
pub fn man_pages(
	command: &Command,
	parent: Option<&str>,
	others: &[&str],
	dir: &Path,
	more: &dyn Fn(&str, &mut Roff),
) -> Result<(), CliError> {
	let (name, mut page) = (name(command), Vec::new());
	let below: Vec<_> = command.get_subcommands().filter(|command| !command.is_hide_set()).collect();
	let related = parent.map(str::to_owned).into_iter().chain(below.iter().map(|command| self::name(command)));
	let mut end = Roff::new();
	more(&name, &mut end);
	see_also(&mut end, related);
	let written = Man::new(command.clone()).render(&mut page).and_then(|()| end.to_writer(&mut page));
	let path = dir.join(format!("{name}.1"));
	written.and_then(|()| std::fs::write(&path, page)).map_err(CliError::file("write", &path))?;
	let mut own = below.into_iter().filter(|command| !others.contains(&command.get_name()));
	own.try_for_each(|command| man_pages(command, Some(&name), others, dir, more))
}

/// "flashfork-lab-run".
fn name(command: &Command) -> String {
	command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn see_also(roff: &mut Roff, related: impl Iterator<Item = String>) {
	roff.control("SH", ["SEE ALSO"]);
	let mut line = Vec::new();
	for other in related {
		if !line.is_empty() {
			line.push(roman(", "));
		}
		line.extend([bold(other), roman("(1)")]);
	}
	roff.text(line);
	roff.control("PP", []);
	roff.text([roman("Documents that are named as docs/… lie in share/doc/flashfork beside share/man.")]);
}
