//! `flashfork run`: a program with the shim, and what it gained.

mod child;
mod report;
mod shared;

use crate::error::CliError;
use crate::places;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a program whose forks cost the same whatever its memory
///
/// The program is started with the shim preloaded; nothing in it changes but the cost of its forks. At the end a line on the
/// terminal says what that was. Statically linked and setuid programs can't be preloaded: they run as they are.
#[derive(Args)]
#[command(after_help = "Example: flashfork run --report forks.json -- redis-server --save 60 1000")]
pub struct RunArgs {
    /// How clones are made
    #[arg(long, value_enum, default_value_t)]
    engine: Engine,
    /// Write what happened as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Seal once the time lost in forks would have paid for it
    #[default]
    Auto,
    /// Plain forks, counted
    Fork,
    /// Seal before the first fork
    Seal,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Engine::Auto => "auto",
            Engine::Fork => "fork",
            Engine::Seal => "seal",
        }
    }
}

pub fn main(args: &RunArgs) -> Result<ExitCode, CliError> {
    let stats = shared::SharedStats::create()?;
    let mut preload = OsString::from(places::shim()?);
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|p| !p.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    let mut command = std::process::Command::new(&args.command[0]);
    command
        .args(&args.command[1..])
        .env("LD_PRELOAD", preload)
        .env("FLASHFORK_ENGINE", args.engine.name())
        .env("FLASHFORK_STATS", stats.path());
    let ended = child::run(&mut command, &args.command[0])?;
    let report = report::Report::new(args.engine, &args.command, ended.code(), stats.get());
    if let Some(path) = &args.report {
        let json = serde_json::to_string_pretty(&report).map_err(|e| CliError::Unable(e.to_string()))?;
        std::fs::write(path, json + "\n").map_err(CliError::file("write", path))?;
    }
    if std::io::stderr().is_terminal() {
        eprintln!("flashfork: {}", report.summary(model().as_ref()));
    }
    Ok(ExitCode::from(ended.code()))
}

/// The cost model of this host, if `flashfork doctor --calibrate` has made one.
fn model() -> Option<flashfork::CostModel> {
    flashfork::CostModel::load(&places::cost_model().ok()?).ok()
}
