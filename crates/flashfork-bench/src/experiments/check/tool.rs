//! The other programs: how each is asked, how its answer is read, why it differs.

use std::{
	fs,
	io::{Read, Seek},
	os::unix::process::CommandExt,
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::prelude::*;
use flashfork_measure::error::is_missing;

/// Nobody takes so long for what takes a second or two.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

/// A figure of another program.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
pub enum Tool {
	/// `stress-ng --fork 1`.
	#[strum(serialize = "stress-ng --fork")]
	StressFork,
	/// `stress-ng --vfork 1`.
	#[strum(serialize = "stress-ng --vfork")]
	StressVfork,
	/// `hyperfine -N /bin/true`.
	#[strum(serialize = "hyperfine -N /bin/true")]
	Hyperfine,
	/// `perf bench mem memcpy`.
	#[strum(serialize = "perf bench mem memcpy")]
	PerfMemcpy,
	/// lmbench's `lat_proc fork`.
	#[strum(serialize = "lmbench lat_proc fork")]
	LmbenchFork,
}

/// What both measure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Checked {
	/// Fork, exit, reap, in microseconds.
	Fork,
	/// The same with vfork.
	Vfork,
	/// Start of a program, its end, reaping it, in microseconds.
	Spawn,
	/// Copying 64 MB, in MB (10⁶) per second.
	Copy,
}

impl Tool {
	/// What it measures.
	pub fn checked(self) -> Checked {
		match self {
			Self::StressFork | Self::LmbenchFork => Checked::Fork,
			Self::StressVfork => Checked::Vfork,
			Self::Hyperfine => Checked::Spawn,
			Self::PerfMemcpy => Checked::Copy,
		}
	}

	/// Why its figure is not ours.
	pub fn why(self) -> &'static str {
		match self {
			Self::StressFork => {
				"its parent holds more mappings and its children do more before they exit; mean, not median"
			}
			Self::StressVfork => "as for fork; the time of its own loop is part of it",
			Self::Hyperfine => {
				"it forks to set up files and waits through them, and takes the time of the processor too"
			}
			Self::PerfMemcpy => "the C library's copy over fresh buffers, of which the first touch may be part",
			Self::LmbenchFork => "its parent differs, and it takes the median of eleven means",
		}
	}

	/// Asks it once, for about a second. `Ok(Err(reason))`: it is not there, can't be used here, or was ended because
	/// time was up or the user wants to stop.
	pub fn ask(self, progress: &dyn Progress) -> Result<Result<f64, String>> {
		match self {
			Self::StressFork => stress("--fork", progress),
			Self::StressVfork => stress("--vfork", progress),
			Self::Hyperfine => hyperfine(progress),
			Self::PerfMemcpy => {
				let args = ["bench", "-f", "simple", "mem", "memcpy", "-s", "64MB", "-l", "5", "-f", "default"];
				output(Command::new("perf").args(args), progress).map(|text| text.and_then(|text| memcpy_rate(&text)))
			}
			Self::LmbenchFork => match lat_proc() {
				None => Ok(Err("lmbench is not installed".to_owned())),
				Some(path) => output(Command::new(path).args(["-N", "3", "fork"]), progress)
					.map(|text| text.and_then(|text| number_after(&text, "Process fork+exit:"))),
			},
		}
	}
}

fn stress(which: &str, progress: &dyn Progress) -> Result<Result<f64, String>> {
	let dir = WorkDir::new(None)?;
	let yaml = dir.path().join("metrics.yaml");
	let mut command = Command::new("stress-ng");
	command.args([which, "1", "-t", "1", "--metrics", "--yaml"]).arg(&yaml).current_dir(dir.path());
	let said = output(&mut command, progress)?;
	Ok(said.and_then(|_| {
		let text = fs::read_to_string(&yaml).map_err(|error| format!("it wrote no metrics: {error}"))?;
		let (operations, seconds) = (number_after(&text, "bogo-ops:")?, number_after(&text, "wall-clock-time:")?);
		if operations > 0.0 { Ok(seconds * 1e6 / operations) } else { Err("it made no process".to_owned()) }
	}))
}

fn hyperfine(progress: &dyn Progress) -> Result<Result<f64, String>> {
	let dir = WorkDir::new(None)?;
	let json = dir.path().join("times.json");
	let mut command = Command::new("hyperfine");
	command
		.args(["-N", "--style", "none", "--warmup", "20", "--runs", "300", "--export-json"])
		.arg(&json)
		.arg("/bin/true");
	let said = output(&mut command, progress)?;
	Ok(said.and_then(|_| {
		let text = fs::read(&json).map_err(|error| format!("it wrote no times: {error}"))?;
		let value: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
		let median = value["results"][0]["median"].as_f64().ok_or("its times have no median")?;
		Ok(median * 1e6)
	}))
}

/// Runs a tool; its standard output and error together. The inner error: it is not there, says it can't, or was ended.
fn output(command: &mut Command, progress: &dyn Progress) -> Result<Result<String, String>> {
	let name = command.get_program().to_string_lossy().into_owned();
	let failed = |error| BenchError::system(format!("run {name}"), error);
	// A file takes any amount without being read meanwhile.
	let mut said = tempfile::tempfile().map_err(failed)?;
	let ours = || said.try_clone().map(Stdio::from).map_err(failed);
	// Its own group, so that what it starts can be ended with it.
	command.stdin(Stdio::null()).stdout(ours()?).stderr(ours()?).process_group(0);
	let mut child = match command.spawn() {
		Err(error) if is_missing(&error) => {
			return Ok(Err(format!("{name} is not installed")));
		}
		other => other.map_err(failed)?,
	};
	let (begin, limit) = (Instant::now(), PATIENCE.min(progress.deadline().left()));
	let (status, over) = loop {
		if let Some(status) = child.try_wait().map_err(failed)? {
			break (status, None);
		}
		let over = match begin.elapsed() > limit {
			_ if progress.interrupted() => Some("interrupted".to_owned()),
			true => Some(format!("{name} was ended: it took longer than {:.0} s", limit.as_secs_f64())),
			false => None,
		};
		if over.is_some() {
			// It may have ended just now; then waiting says so.
			let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
			break (child.wait().map_err(failed)?, over);
		}
		std::thread::sleep(LOOK);
	};
	if let Some(over) = over {
		return Ok(Err(over));
	}
	let mut text = Vec::new();
	said.rewind().and_then(|()| said.read_to_end(&mut text)).map_err(failed)?;
	let text = String::from_utf8_lossy(&text).into_owned();
	let last = text.trim().lines().last().unwrap_or_default().to_owned();
	Ok(if status.success() { Ok(text) } else { Err(format!("{name} failed ({status}): {last}")) })
}

/// Where Debian's lmbench has it.
fn lat_proc() -> Option<PathBuf> {
	let dirs = fs::read_dir("/usr/lib/lmbench/bin").ok()?.flatten();
	dirs.map(|dir| dir.path().join("lat_proc")).find(|path| path.is_file())
}

fn number_after(text: &str, label: &str) -> Result<f64, String> {
	let rest = text.find(label).map(|at| &text[at + label.len()..]);
	let word = rest.and_then(|rest| rest.split_whitespace().next());
	word.and_then(|word| word.parse().ok()).ok_or_else(|| format!("its answer has no '{label}'"))
}

/// MB (10⁶) per second, from perf's simple form: bytes (in powers of two) a second, with or without a unit.
fn memcpy_rate(text: &str) -> Result<f64, String> {
	let mut words = text.split_whitespace();
	while let Some(word) = words.next() {
		let Ok(number) = word.parse::<f64>() else { continue };
		return Ok(match words.next() {
			Some("GB/sec") => number * f64::from(1 << 30) / 1e6,
			Some("MB/sec") => number * f64::from(1 << 20) / 1e6,
			_ => number / 1e6,
		});
	}
	Err("its answer has no number".to_owned())
}

#[cfg(test)]
mod tests {
	use super::*;
	use flashfork_measure::Silent;

	struct Until(Deadline);

	impl Progress for Until {
		fn deadline(&self) -> Deadline {
			self.0
		}
	}

	#[test]
	fn a_tool_that_may_not_be_run_is_left_out() {
		let dir = tempfile::tempdir().unwrap();
		let tool = dir.path().join("tool");
		fs::write(&tool, "").unwrap();
		let said = output(&mut Command::new(&tool), &Silent).unwrap().unwrap_err();
		assert!(said.ends_with("tool is not installed"), "{said}");
	}

	#[test]
	fn a_tool_that_takes_too_long_is_ended_with_all_it_started() {
		let dir = tempfile::tempdir().unwrap();
		let file = dir.path().join("pid");
		let script = "sleep 1000 & echo $! > \"$0\"; wait";
		// On a busy machine it may have started nothing in the time it had.
		let started = [2, 8, 32].into_iter().find_map(|seconds| {
			let soon = Until(Deadline::after(Duration::from_secs(seconds)));
			let said = output(Command::new("sh").args(["-c", script]).arg(&file), &soon).unwrap();
			assert_eq!(said, Err(format!("sh was ended: it took longer than {seconds} s")));
			fs::read_to_string(&file).ok()?.trim().parse().ok()
		});
		let pid: i32 = started.unwrap();
		let gone = || match procfs::process::Process::new(pid).and_then(|process| process.stat()) {
			Ok(stat) => stat.state == 'Z',
			Err(_) => true,
		};
		let begin = Instant::now();
		while !gone() && begin.elapsed() < PATIENCE {
			std::thread::sleep(LOOK);
		}
		assert!(gone(), "what it started lives on");
	}

	#[test]
	fn answers_are_read_as_the_tools_give_them() {
		let yaml = "metrics:\n    - stressor: fork\n      bogo-ops: 4161\n      wall-clock-time: 1.000209\n";
		assert_eq!(number_after(yaml, "bogo-ops:"), Ok(4161.0));
		assert_eq!(number_after(yaml, "wall-clock-time:"), Ok(1.000209));
		assert_eq!(number_after("Process fork+exit: 97.1234 microseconds\n", "Process fork+exit:"), Ok(97.1234));
		assert!(number_after("nothing", "bogo-ops:").is_err());
		assert_eq!(memcpy_rate("3906250000.000000\n"), Ok(3906.25));
		assert_eq!(memcpy_rate("# function 'default'\n 2.000000 GB/sec\n"), Ok(2147.483648));
		assert!(memcpy_rate("").is_err());
	}

	#[test]
	fn what_is_not_installed_is_no_failure() {
		let said = output(&mut Command::new("no-such-benchmark"), &Silent).unwrap();
		assert_eq!(said, Err("no-such-benchmark is not installed".to_owned()));
		let failed = output(Command::new("sh").args(["-c", "echo can not >&2; exit 4"]), &Silent).unwrap().unwrap_err();
		assert!(failed.contains("exit status: 4") && failed.contains("can not"), "{failed}");
	}
}
