//! `flashfork run`: a program with the shim, and what it gained.

mod child;
mod report;
mod shared;

use crate::warm::caller;
use clap::{Args, ValueEnum};
use flashfork_core::environment;
use flashfork_templates::preloading;
use flashfork_terminal::{CliError, place::Place, places};
use std::{
	env::{remove_var, set_var},
	ffi::OsString,
	io::IsTerminal,
	path::PathBuf,
	process::ExitCode,
};

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
	let shim = places::shim()?;
	// Into the environment itself: a Command with variables of its own sorts it, and leaves out what is none.
	// SAFETY: this process has one thread.
	unsafe {
		for (name, value) in preloading(shim.as_os_str(), |name| std::env::var_os(name)) {
			set_var(name, value);
		}
		set_var(environment::ENGINE.name(), engine.name());
		// What the caller's environment says is the default.
		if args.threads {
			set_var(environment::THREADS.name(), "stop");
		}
		match &stats {
			Some(stats) => set_var(environment::STATS.name(), stats.path()),
			None => remove_var(environment::STATS.name()),
		}
		if !trust.is_empty() {
			set_var(environment::TRUST.name(), trust);
		}
	}
	let mut command = std::process::Command::new(&args.command[0]);
	command.args(&args.command[1..]);
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
