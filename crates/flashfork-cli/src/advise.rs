//! `flashfork advise`: what a process's forks cost and what to do about it.

use clap::Args;
use flashfork::CostModel;
use flashfork_advise as advise;
use flashfork_terminal::{CliError, interrupt, output::say, places};
use std::{ffi::OsString, process::ExitCode, time::Duration};

/// Say what a running program's forks cost, with huge pages, sealed and on demand, and what to do; nothing in it is
/// changed
#[derive(Args)]
#[command(
	arg_required_else_help = true,
	override_usage = "flashfork advise [OPTIONS] <PID>\n       flashfork advise [OPTIONS] -- <COMMAND>..."
)]
#[command(after_help = "Example: flashfork advise 4711\n         flashfork advise --after 5 -- python3 server.py")]
pub struct AdviseArgs {
	/// The running process
	#[arg(required_unless_present = "command", conflicts_with = "command", value_parser = process)]
	pid: Option<i32>,
	/// Count what is written during so many seconds instead of assuming it; the process is stopped (SIGSTOP) for two
	/// looks
	#[arg(long, value_name = "SECONDS", value_parser = seconds)]
	watch: Option<Duration>,
	/// How long the command runs before it is looked at, in seconds; it is ended afterwards
	#[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
	after: Duration,
	/// Print JSON
	#[arg(long)]
	json: bool,
	/// A command to start and look at, instead of a process
	#[arg(last = true, value_name = "COMMAND")]
	command: Vec<OsString>,
}

pub fn main(args: &AdviseArgs) -> Result<ExitCode, CliError> {
	interrupt::catch()?;
	// A process that isn't there is found out before this host is measured.
	args.pid.map(advise::Survey::of).transpose()?;
	let model = model()?;
	let advice = match args.pid {
		Some(pid) => advise::process(pid, &model, args.watch, &interrupt::caught)?,
		None => advise::command(&args.command, &model, args.after, args.watch, &interrupt::caught)?,
	};
	if args.json {
		let value = serde_json::json!({ "schema": "flashfork.advise/1", "advice": advice, "cost_model": model });
		say(&format!("{value:#}"))?;
	} else {
		say(&advice.text())?;
	}
	Ok(ExitCode::SUCCESS)
}

/// The model `doctor --calibrate` has kept for this host, or one measured now and kept where that can be.
fn model() -> Result<CostModel, CliError> {
	let path = places::cost_model()?;
	if let Ok(model) = CostModel::load(&path) {
		return Ok(model);
	}
	let model = CostModel::calibrate().map_err(|e| CliError::Unable(e.to_string()))?;
	let kept = path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(|e| e.to_string());
	if let Err(why) = kept.and_then(|()| model.save(&path).map_err(|e| e.to_string())) {
		eprintln!("flashfork: the cost model can't be kept for next time: {why}");
	}
	Ok(model)
}

fn process(text: &str) -> Result<i32, String> {
	let number = text.parse().ok().filter(|number| *number > 0);
	number.ok_or_else(|| "give the number of a process, or put `--` before a command".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
	match text.parse::<f64>() {
		Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
		_ => Err("write a number of seconds, at most a day".to_owned()),
	}
}
