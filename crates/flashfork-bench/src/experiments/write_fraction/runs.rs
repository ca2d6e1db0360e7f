//! The runs: two looks each, what changed between them.

use std::time::Duration;

use flashfork_advise::look::{Change, GRANULES, look, second_look, visit};
use serde_json::json;

use super::EXPERIMENT;
use super::options::{Ready, WriteFractionOptions};
use super::program::{Program, name};
use crate::advised::failed;
use crate::once::each_once;
use flashfork_measure::experiment::Results;
use flashfork_measure::record::Record;
use flashfork_measure::{BenchError, Progress};

/// Measures what was asked for.
pub(super) fn measure(
    options: &WriteFractionOptions,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    if let Some(pid) = options.pid {
        progress.begin(&format!("process {pid}: {} s", options.during), 1);
        let during = Duration::from_secs_f64(options.during);
        let change = visit(pid, during, &|| progress.interrupted()).map_err(failed)?;
        progress.step();
        return keep(&format!("pid {pid}"), &[change], results);
    }
    if !options.command.is_empty() {
        let start = || Program::command(&options.command, options.after, options.during);
        return program(options.runs, start, results, progress);
    }
    for ready in each_once(options.ready.as_deref().unwrap_or(&Ready::ALL).iter().copied()) {
        if progress.interrupted() {
            break;
        }
        if progress.deadline().passed() {
            results.no_time_for(name(ready), progress);
            continue;
        }
        match program(options.runs, || Program::ready(ready), results, progress) {
            Ok(()) => {}
            // One that isn't installed, or fails, doesn't keep the others from being measured.
            Err(BenchError::System { what, source }) if source.kind() == std::io::ErrorKind::NotFound => {
                results.leave_out(name(ready), format!("can't {what}: it is not installed"), progress);
            }
            Err(error) => results.leave_out(name(ready), error.to_string(), progress),
        }
    }
    Ok(())
}

/// Two looks in each run of a program. Of runs that fail, those before are kept.
fn program(
    runs: u32,
    start: impl Fn() -> Result<Program, BenchError>,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let (mut changes, mut name) = (Vec::new(), String::new());
    let mut one = |run: u32, progress: &mut dyn Progress| {
        let mut program = start()?;
        if run == 0 {
            name = program.name().to_owned();
            progress.begin(&name, u64::from(runs));
        }
        changes.push(two_looks(&mut program, progress)?);
        progress.step();
        Ok(())
    };
    let mut done = Ok(());
    for run in 0..runs {
        if done.is_err() || (run > 0 && (progress.interrupted() || progress.deadline().passed())) {
            break;
        }
        done = one(run, progress);
    }
    if !changes.is_empty() {
        keep(&name, &changes, results)?;
    }
    done
}

/// One record for the bytes, one for each size of block.
fn keep(name: &str, changes: &[Change], results: &mut Results) -> Result<(), BenchError> {
    let mut record = |granule: u64, all: Vec<u64>, changed: Vec<u64>, shares: Vec<f64>| {
        let chosen = [("measure", json!("changed_share")), ("granule", json!(granule))];
        let observed = [("in_use", json!(all)), ("changed", json!(changed)), ("ended", json!("rounds"))];
        let record = Record::new(EXPERIMENT, name, chosen, "ratio", shares)?;
        results.records.push(record.beside(observed));
        Ok::<(), BenchError>(())
    };
    let of = |get: fn(&Change) -> u64| changes.iter().map(get).collect::<Vec<u64>>();
    let shares = changes.iter().map(Change::byte_share).collect();
    record(1, of(|change| change.bytes), of(|change| change.changed_bytes), shares)?;
    for (index, granule) in GRANULES.into_iter().enumerate() {
        let (all, changed) = changes.iter().map(|change| change.blocks[index]).unzip();
        record(granule, all, changed, changes.iter().map(|change| change.block_shares()[index]).collect())?;
    }
    Ok(())
}

fn two_looks(program: &mut Program, progress: &dyn Progress) -> Result<Change, BenchError> {
    let pid = program.pid();
    let interrupted = || progress.interrupted();
    program.reach(false, &interrupted)?;
    let before = look(pid).map_err(failed)?;
    program.go_on()?;
    program.reach(true, &interrupted)?;
    second_look(pid, &before).map_err(failed)
}
