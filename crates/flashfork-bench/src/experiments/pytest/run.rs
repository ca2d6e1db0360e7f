//! One run of a suite, timed as a shell sees it.

use std::os::unix::process::CommandExt;

use super::{PytestOptions, way::Way};
use crate::prelude::*;

/// The plugin that tells how tests ended, and when.
const TIMES: &str = include_str!("times.py");
const PLUGIN: &str = "flashfork_bench_times";

/// What the plugin tells.
#[derive(Clone, Copy, PartialEq, Deserialize)]
pub struct Told {
	passed: u32,
	failed: u32,
	skipped: u32,
	/// Tests that ended, whatever came of them.
	pub tests: u32,
	/// From the end of the first to that of the last.
	seconds: f64,
}

impl Told {
	/// How tests ended: passed, failed, skipped.
	pub fn outcomes(&self) -> [u32; 3] {
		[self.passed, self.failed, self.skipped]
	}

	/// Tests a second, without what comes before the first one's end.
	pub fn rate(&self) -> Option<f64> {
		(self.tests > 1 && self.seconds > 0.0).then(|| f64::from(self.tests - 1) / self.seconds)
	}
}

/// What runs suites.
pub struct Runner {
	python: PathBuf,
	forked_python: Option<PathBuf>,
	workers: String,
	place: PathBuf,
}

impl Runner {
	/// With the plugin in `place`.
	pub fn new(options: &PytestOptions, place: &Path) -> Result<Self> {
		std::fs::write(place.join(format!("{PLUGIN}.py")), TIMES).or_cant("write a plugin of pytest")?;
		Ok(Self {
			python: options.python.clone(),
			forked_python: options.forked_python.clone(),
			workers: options.workers.to_string(),
			place: place.to_owned(),
		})
	}

	/// Why nothing can be run in this way.
	pub fn lacks(&self, way: Way) -> Option<String> {
		let Some(python) = self.python(way) else { return Some("--forked-python says which has it".to_owned()) };
		let modules = match way {
			Way::Forked => "pytest, pytest_forked, numpy, pandas, flashfork",
			_ => "pytest, xdist, numpy, pandas, flashfork",
		};
		let mut command = Command::new(python);
		let output = command.args(["-c", &format!("import {modules}")]).stdin(Stdio::null()).output();
		let why = match output {
			Ok(output) if output.status.success() => return None,
			Ok(output) => String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("it fails").to_owned(),
			Err(error) => error.to_string(),
		};
		Some(format!("{} lacks something: {why}; scripts/python-bench makes one that has all", python.display()))
	}

	fn python(&self, way: Way) -> Option<&Path> {
		if way == Way::Forked { self.forked_python.as_deref() } else { Some(&self.python) }
	}

	/// Runs the suite in `dir`: the microseconds from the start until pytest had ended, and how the tests did.
	pub fn once(&self, way: Way, dir: &Path) -> Result<(f64, Told)> {
		let what = || format!("running the tests in {} by {}", dir.display(), way.title());
		let told = self.place.join("told");
		let _ = std::fs::remove_file(&told);
		let python =
			self.python(way).ok_or_else(|| BenchError::Unable(format!("there is no Python for {}", way.as_ref())))?;
		let mut command = Command::new(python);
		command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", PLUGIN]);
		command.args(way.arguments(&self.workers)).current_dir(dir).env_remove("PYTEST_ADDOPTS");
		command.env("PYTHONPATH", &self.place).env("FLASHFORK_BENCH_TIMES", &told);
		command.env("FLASHFORK_BENCH_FORKS", way.forks());
		// Out of reach of the terminal's Ctrl-C, which ends the experiment after the run.
		command.stdin(Stdio::null()).process_group(0);
		let begin = Instant::now();
		let output = command.output().or_cant(what())?;
		let whole = micros(begin);
		let found = std::fs::read(&told).ok().and_then(|text| serde_json::from_slice::<Told>(&text).ok());
		// 1: some have failed, which the caller compares.
		match (output.status.code(), found) {
			(Some(0 | 1), Some(found)) if found.tests > 0 => Ok((whole, found)),
			_ => {
				let said = [output.stderr, output.stdout].concat();
				let last = String::from_utf8_lossy(&said).trim().lines().last().unwrap_or("no word").to_owned();
				Err(BenchError::Clone { what: what(), status: format!("{}: {last}", output.status) })
			}
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_rate_is_that_between_first_and_last() {
		let told: Told =
			serde_json::from_str(r#"{"passed": 10, "failed": 0, "skipped": 1, "tests": 11, "seconds": 2.0}"#).unwrap();
		assert_eq!((told.rate(), told.outcomes()), (Some(5.0), [10, 0, 1]));
		assert_eq!(Told { tests: 1, ..told }.rate(), None);
	}
}
