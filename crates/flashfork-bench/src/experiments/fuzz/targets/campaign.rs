//! One campaign of `afl-fuzz` in one way, and the times of single inputs without it.

use std::os::unix::process::CommandExt;

use super::{
	super::{
		afl_stats::AflStats,
		process::{self, Fuzzer},
	},
	Fuzzing,
	build::Built,
	found::Times,
	way::Way,
};
use crate::{prelude::*, subjects::command::on_one_cpu};

/// How long AFL may take beyond its time: to start, to run its seeds the first time, and to end.
const PATIENCE: Duration = Duration::from_secs(300);
/// Inputs whose times are taken, and how often.
const INPUTS: usize = 64;
const ROUNDS: &str = "25";

/// Runs one campaign in the new directory `dir`; `None` when it was interrupted.
pub fn run(
	fuzzing: &Fuzzing,
	way: Way,
	seed: u64,
	time: Duration,
	dir: &Path,
	progress: &dyn Progress,
) -> Result<Option<AflStats>> {
	std::fs::create_dir(dir).or_cant(format_args!("make {}", dir.display()))?;
	let output = dir.join("out");
	let mut command = Command::new("afl-fuzz");
	command.arg("-i").arg(fuzzing.seeds).arg("-o").arg(&output);
	command.args(["-t", "1000", "-m", "none", "-s", &seed.to_string(), "-V", &time.as_secs().to_string()]);
	command.arg("--").arg(fuzzing.built.program(way));
	process::quiet(&mut command);
	if way == Way::Shim {
		process::with_shim(&mut command, fuzzing.shim, Method::Seal);
	}
	let cpu = fuzzing.cpu;
	let mut fuzzer = Fuzzer::spawn(command, &output, move || on_one_cpu(cpu))?;
	let begin = Instant::now();
	loop {
		match fuzzer.ended()? {
			Some(status) if status.success() => break,
			Some(status) => return Err(fuzzer.died(status)),
			None if progress.interrupted() => return Ok(None),
			None if begin.elapsed() > time + PATIENCE => {
				return Err(unable!("afl-fuzz did not end within {} s", PATIENCE.as_secs()));
			}
			None => std::thread::sleep(Duration::from_millis(20)),
		}
	}
	AflStats::read(&output.join("default/fuzzer_stats")).map(Some)
}

/// What inputs of AFL's corpus take in the program with the loop that goes back.
pub fn single_inputs(built: &Built, corpus: &Path, cpu: usize) -> Result<Times> {
	let doing = format!("read {}", corpus.display());
	let mut inputs: Vec<PathBuf> = Vec::new();
	for entry in std::fs::read_dir(corpus).or_cant(&doing)? {
		let path = entry.or_cant(&doing)?.path();
		if path.is_file() {
			inputs.push(path);
		}
	}
	inputs.sort();
	let step = inputs.len().div_ceil(INPUTS).max(1);
	let mut command = Command::new(built.program(Way::Rollback));
	command.arg(ROUNDS).args(inputs.iter().step_by(step)).env("__AFL_PERSISTENT", "1");
	command.env("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=1").stdin(Stdio::null());
	// SAFETY: between fork and exec only system calls are made.
	unsafe { command.pre_exec(move || on_one_cpu(cpu)) };
	let output = command.output().or_cant(format_args!("run {command:?}"))?;
	let text = String::from_utf8_lossy(&output.stdout);
	let times: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
	match times[..] {
		[bare, forked, looped] if output.status.success() => Ok(Times { bare, forked, looped }),
		_ => {
			let words = String::from_utf8_lossy(&output.stderr);
			Err(unable!("single inputs could not be run ({}): {words}", output.status))
		}
	}
}
