//! Commands that are programs of their own, because what they bring with them nothing else here needs: `flashfork
//! bench` real software for its experiments, `flashfork serve` and those that ask it for something a server.

use flashfork_terminal::{CliError, help, places};
use std::{
	ffi::OsString,
	os::unix::process::CommandExt,
	path::{Path, PathBuf},
	process::{Command, ExitCode},
	result::Result,
};

/// What such a program reads
#[derive(clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct OtherArgs {
	/// What that program reads
	#[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
	arguments: Vec<OsString>,
}

/// The commands; all but the first are one program's.
pub const OTHERS: [&str; 8] = ["bench", "serve", "deploy", "invoke", "logs", "functions", "undeploy", "cluster"];

/// Which program a command line is for, without the command's own name: `bench …` and `help bench …`. None: this one.
fn program(line: &[OsString]) -> Option<fn() -> Result<PathBuf, CliError>> {
	let at = usize::from(line.first()? == "help");
	let name = line.get(at)?.to_str().filter(|name| OTHERS.contains(name))?;
	Some(if name == OTHERS[0] { places::bench } else { places::serve })
}

/// Becomes the program that a command line, without the command's own name, is for; that reads all of it.
pub fn main(line: &[OsString]) -> Option<Result<ExitCode, CliError>> {
	Some(program(line)?().and_then(|program| {
		let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
		Err(CliError::file("run", program)(error))
	}))
}

/// Lets such a program answer a completion script that asks about its command line.
pub fn complete() {
	let Some(line) = help::asked() else { return };
	// While the word itself is being typed, the command knows what else it could be.
	if line.len() > 2 {
		// Nothing may be printed at a prompt: where it can't be asked, there is nothing to complete.
		let _ = main(&line[1..]);
	}
}

/// Has these programs write their man pages.
pub fn man_pages(dir: &Path) -> Result<(), CliError> {
	for program in [places::bench()?, places::serve()?] {
		let done = Command::new(&program).arg("man").arg(dir).status().map_err(CliError::file("run", &program))?;
		if !done.success() {
			return Err(CliError::Unable(format!("{} man failed ({done})", program.display())));
		}
	}
	Ok(())
}
