//! `flashfork run`: a program with the shim, and what it gained.

mod child;
mod report;
mod shared;

use crate::warm::caller;
use clap::{Args, ValueEnum};
use flashfork_core::environment;
use flashfork_terminal::{CliError, place::Place, places};
use std::{ffi::OsString, io::IsTerminal, path::PathBuf, process::ExitCode};

/// Run a program whose forks cost the same whatever its memory
///
/// The program is started with the shim preloaded; nothing in it changes but the cost of its forks. At the end a line
/// on the terminal says what that was (docs/RUN.md). Statically linked and setuid programs can't be preloaded: they run
/// as they are.
#[derive(Args)]
#[command(override_usage = "flashfork run [OPTIONS] [--] <COMMAND>...")]
#[command(after_help = "Example: flashfork run --report forks.json -- python3 server.py

Exit code: the program's own; a signal that ends the program ends the command. 127 when it was not found, 126 when it could not be run, 1 when flashfork itself failed, 2 for wrong usage.")]
pub struct RunArgs {
    /// How clones are made
    #[arg(long, value_enum, default_value_t, env = environment::ENGINE.name(), hide_env_values = true)]
    engine: Engine,
    /// Seal processes with threads too: they are stopped for each step of 2 MB, as if by SIGSTOP (docs/THREADS.md)
    #[arg(long)]
    threads: bool,
    /// Answer for a file whose code makes system calls of its own (docs/SYSTEM_CALLS.md); once for each
    #[arg(long, value_name = "FILE")]
    trust: Vec<PathBuf>,
    /// Write what happened as JSON (docs/RUN.md)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Say what forks cost even where standard error is no terminal
    #[arg(long)]
    summary: bool,
    /// Say nothing of it, on a terminal either
    #[arg(long, short, conflicts_with = "summary")]
    quiet: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// On demand where the kernel can; else seal what the time lost in forks would have paid for, within 1.5 times the
    /// memory
    // An empty FLASHFORK_ENGINE means nothing, as it does to the shim.
    #[value(alias = "")]
    #[default]
    Auto,
    /// Plain forks, counted
    Fork,
    /// Seal before the first fork, whatever memory that takes
    Seal,
    /// The kernel shares page tables (a patched kernel with vm.on_demand_fork=1); nothing is sealed
    Odf,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Engine::Auto => "auto",
            Engine::Fork => "fork",
            Engine::Seal => "seal",
            Engine::Odf => "odf",
        }
    }
}

pub fn main(args: &RunArgs) -> Result<ExitCode, CliError> {
    let trust = trusted(&args.trust)?;
    // Before the program runs: a place that can't be written to is found out now.
    let place = args.report.as_deref().map(Place::open).transpose()?;
    // They are never worth a program.
    let stats = shared::SharedStats::create()
        .inspect_err(|e| eprintln!("flashfork: the statistics are missing, and the report, if one was asked for: {e}"))
        .ok();
    // Said once here, not by every program of a tree.
    let engine = match args.engine {
        Engine::Odf => available_or_fork(),
        engine => engine,
    };
    let mut preload = OsString::from(places::shim()?);
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|p| !p.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    let mut command = std::process::Command::new(&args.command[0]);
    command
        .args(&args.command[1..])
        .env("LD_PRELOAD", preload)
        .env(environment::ENGINE.name(), engine.name())
        .env("ASAN_OPTIONS", asan_options(std::env::var_os("ASAN_OPTIONS")));
    // What the caller's environment says is the default.
    if args.threads {
        command.env(environment::THREADS.name(), "stop");
    }
    match &stats {
        Some(stats) => command.env(environment::STATS.name(), stats.path()),
        None => command.env_remove(environment::STATS.name()),
    };
    if !trust.is_empty() {
        command.env(environment::TRUST.name(), trust);
    }
    let ended = match child::run(&mut command, &args.command[0])? {
        child::Outcome::Ended(ended) => ended,
        child::Outcome::NotStarted { code, why } => {
            eprintln!("flashfork: {why}");
            return Ok(ExitCode::from(code));
        }
    };
    let Some(stats) = stats else { return Ok(ExitCode::from(caller::end_as(ended))) };
    let report = report::Report::new(engine, &args.command, caller::exit_code(ended), stats.get());
    if let Some(place) = place {
        let written = place.write(|file| {
            serde_json::to_writer_pretty(&mut *file, &report)?;
            writeln!(file)
        });
        if let Err(e) = written {
            eprintln!("flashfork: {e}; the exit code is the program's");
        }
    }
    if args.summary || (std::io::stderr().is_terminal() && !args.quiet) {
        eprintln!("flashfork: {}", report.summary(model().as_ref()));
    }
    Ok(ExitCode::from(caller::end_as(ended)))
}

/// The caller's, behind the one without which a program that gcc has built with AddressSanitizer refuses to start: its
/// runtime wants to be the first library, and the shim is.
fn asan_options(own: Option<OsString>) -> OsString {
    let mut options = OsString::from("verify_asan_link_order=0");
    if let Some(own) = own.filter(|own| !own.is_empty()) {
        options.push(":");
        options.push(own);
    }
    options
}

/// Whole paths, one a line, as `FLASHFORK_TRUST` has them.
fn trusted(files: &[PathBuf]) -> Result<OsString, CliError> {
    let mut all = OsString::new();
    for file in files {
        let whole = file.canonicalize().map_err(CliError::file("find", file))?;
        if whole.as_os_str().as_encoded_bytes().contains(&b'\n') {
            return Err(CliError::Unable(format!("can't trust {}: its path has a line break", whole.display())));
        }
        all.push(whole);
        all.push("\n");
    }
    Ok(all)
}

/// [`Engine::Odf`], or plain forks and a line that says why: they are correct, and the program runs.
fn available_or_fork() -> Engine {
    let host = flashfork::Host::probe();
    match host.capability("on_demand_fork") {
        Some(c) if !c.available => {
            eprintln!("flashfork: engine odf is not to be had here: {}; forks stay plain. {}", c.detail, c.cure);
            Engine::Fork
        }
        _ => Engine::Odf,
    }
}

/// The cost model of this host, if `flashfork doctor --calibrate` has made one.
fn model() -> Option<flashfork::CostModel> {
    flashfork::CostModel::load(&places::cost_model().ok()?).ok()
}
