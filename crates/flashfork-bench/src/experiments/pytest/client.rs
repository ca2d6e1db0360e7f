//! A program that imports numpy, cloned from Python by the package's client library.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::suite::Suite;
use super::{EXPERIMENT, PytestOptions};
use flashfork_measure::experiment::Results;
use flashfork_measure::record::Record;
use flashfork_measure::{BenchError, Progress};

const SCRIPT: &str = include_str!("client.py");

/// How often each way is timed.
fn rounds(options: &PytestOptions) -> usize {
    if options.quick { 3 } else { 40 }
}

/// Measures it: samples in microseconds of "plain", started anew, "template", a clone, and "install", from pip's start
/// to the end of the first clone.
pub(super) fn measure(
    options: &PytestOptions,
    place: &Path,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    progress.begin("a program by the client library", 1);
    let mut command = Command::new(&options.python);
    command.args(["-c", SCRIPT, &rounds(options).to_string()]).arg(place).args(&options.wheel);
    let output = command.stdin(Stdio::null()).output().map_err(|error| BenchError::system("run Python", error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("no word");
        let what = "timing a clone by the client library".to_owned();
        return Err(BenchError::Clone { what, status: format!("{}: {last}", output.status) });
    }
    let told: BTreeMap<String, Vec<f64>> = serde_json::from_slice(&output.stdout)
        .map_err(|error| BenchError::Unable(format!("what Python tells of its clones is not understood: {error}")))?;
    for (way, seconds) in told {
        let chosen = [("measure", json!("whole")), ("suite", json!(Suite::Program.name()))];
        let samples = seconds.iter().map(|seconds| seconds * 1e6).collect();
        results.records.push(Record::new(EXPERIMENT, &way, chosen, "us", samples)?);
    }
    progress.step();
    Ok(())
}
