//! `flashfork bench` is a program of its own, `flashfork-bench`: the experiments bring real software with them, and
//! nothing else here needs that.

use flashfork_terminal::{CliError, help, places};
use std::ffi::{OsStr, OsString};
use std::process::{Command, ExitCode};
use std::{os::unix::process::CommandExt, path::Path};

/// Run an experiment and keep every sample in a record file, or draw such a file
#[derive(clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct BenchArgs {
    /// What that program reads
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

/// Whether a command line, without the command's own name, is that program's: `bench …` and `help bench …`.
pub fn is_meant(line: &[OsString]) -> bool {
    let word = |at: usize| line.get(at).map(OsString::as_os_str);
    let bench = Some(OsStr::new("bench"));
    word(0) == bench || word(0) == Some(OsStr::new("help")) && word(1) == bench
}

/// Becomes that program, which reads the whole command line.
pub fn main() -> Result<ExitCode, CliError> {
    let program = places::bench()?;
    let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
    Err(CliError::file("run", program)(error))
}

/// Lets that program answer a completion script that asks about its command line.
pub fn complete() {
    let Some(line) = help::asked() else { return };
    // While the word itself is being typed, the command knows what else it could be.
    if line.len() > 2 && is_meant(&line[1..]) {
        // Nothing may be printed at a prompt: where it can't be asked, there is nothing to complete.
        let _ = main();
    }
}

/// Has that program write its man pages.
pub fn man_pages(dir: &Path) -> Result<(), CliError> {
    let program = places::bench()?;
    let done = Command::new(&program).arg("man").arg(dir).status().map_err(CliError::file("run", &program))?;
    if done.success() { Ok(()) } else { Err(CliError::Unable(format!("{} man failed ({done})", program.display()))) }
}
