//! The `flashfork` command: parses, calls, prints.
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

/// Run by the loader before Rust's runtime starts and the command line is parsed: together these last longer than all
/// that `clone` does.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static EARLY: extern "C" fn() = early;

/// Runs a plain `clone` to its end; returns for all else.
#[cfg(not(test))]
extern "C" fn early() {
    let Some((name, arguments)) = warm::plain_clone(std::env::args_os().skip(1)) else { return };
    output::end_with_the_pipe();
    let code = warm::call_clone(&name, &arguments, &[]).unwrap_or_else(|e| {
        eprintln!("flashfork: {e}");
        1
    });
    // SAFETY: ends the process; nothing is left to be written or taken apart.
    unsafe { libc::_exit(code.into()) }
}

fn main() -> ExitCode {
    output::end_with_the_pipe();
    bench::complete();
    help::complete(Args::command);
    let line: Vec<_> = std::env::args_os().skip(1).collect();
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
