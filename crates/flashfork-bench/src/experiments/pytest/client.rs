//! A program that imports numpy, cloned from Python by the package's client library.

use std::collections::BTreeMap;

use super::{PytestOptions, suite::Suite};
use crate::prelude::*;

const SCRIPT: &str = include_str!("client.py");

fn rounds(options: &PytestOptions) -> usize {
	if options.quick { 3 } else { 40 }
}

/// Measures it: samples in microseconds of "plain", started anew, "template", a clone, and "install", from pip's start
/// to the end of the first clone.
pub fn measure(options: &PytestOptions, place: &Path, run: &mut Run) -> Result {
	run.begin("a program by the client library", 1);
	let mut command = Command::new(&options.python);
	command.args(["-c", SCRIPT, &rounds(options).to_string()]).arg(place).args(&options.wheel);
	let output = command.stdin(Stdio::null()).output().or_cant("run Python")?;
	if !output.status.success() {
		let said = String::from_utf8_lossy(&output.stderr);
		let last = said.lines().last().unwrap_or("no word");
		let what = "timing a clone by the client library".to_owned();
		return Err(BenchError::Clone { what, status: format!("{}: {last}", output.status) });
	}
	let told: BTreeMap<String, Vec<f64>> = serde_json::from_slice(&output.stdout)
		.map_err(|error| unable!("what Python tells of its clones is not understood: {error}"))?;
	for (way, seconds) in told {
		let chosen = json!({ "measure": "whole", "suite": Suite::Program.as_ref() });
		run.keep(Row::of(way, "us", chosen), seconds.iter().map(|seconds| seconds * 1e6).collect())?;
	}
	run.step();
	Ok(())
}
