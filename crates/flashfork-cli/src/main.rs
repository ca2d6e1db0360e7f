//! The `flashfork` command: parses, calls, prints. What is typed is its launcher (crates/flashfork-launcher), which
//! serves plain clones itself.
//!
//! Exit codes: 0 done, 1 failed (one line on standard error: what, why, what to do), 2 wrong usage. `run` and `lab run`
//! pass on the exit code of the command they ran.

mod advise;
mod args;
mod bench;
mod doctor;
mod generate;
mod lab;
mod run;
mod scan;
mod vm;
mod warm;

use args::{Args, Command};
use clap::{CommandFactory, Parser};
use flashfork_terminal::{help, output};
use std::process::ExitCode;

fn main() -> ExitCode {
    output::end_with_the_pipe();
    be_called_flashfork();
    bench::complete();
    help::complete(Args::command);
    let line: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(done) = warm::go_on(&line).or_else(|| warm::plain_clone(&line)) {
        return output::end(done);
    }
    if bench::is_meant(&line) {
        return output::end(bench::main());
    }
    output::end(match Args::parse().command {
        Command::Doctor(args) => doctor::main(&args),
        Command::Run(args) => run::main(&args),
        Command::Warm(args) => warm::warm(&args),
        Command::Clone(args) => warm::clone(&args),
        Command::Ls(args) => warm::ls(&args),
        Command::Rm(args) => warm::rm(&args),
        Command::Scan(args) => scan::main(&args),
        Command::Advise(args) => advise::main(&args),
        Command::Bench(_) => bench::main(),
        Command::Lab(args) => lab::main(&args),
        Command::Vm(args) => vm::main(&args),
        Command::Completions(args) => generate::completions(&args),
        Command::Man(args) => generate::man_pages(&args),
    })
}

/// To whoever lists processes, or ends them by their name.
fn be_called_flashfork() {
    // SAFETY: a string. What it could fail with leaves the name of the file.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"flashfork".as_ptr()) };
}
