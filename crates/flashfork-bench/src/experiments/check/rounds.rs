//! Each tool and ourselves in turn.

use serde_json::json;

use super::tool::{Checked, Tool};
use super::{CheckOptions, EXPERIMENT};
use crate::experiments::cow_model::{self, CowSubject};
use crate::experiments::creation::{self, CreationSubject, Phase, Then, Way};
use crate::subjects::Method;
use crate::subjects::parent;
use flashfork_measure::experiment::Results;
use flashfork_measure::record::Record;
use flashfork_measure::stats::Rounds;
use flashfork_measure::worker::Worker;
use flashfork_measure::{BenchError, Progress};

/// Our samples for one answer of a tool.
const SAMPLES: usize = 60;
const BUDGET: u64 = 500_000;

/// Ourselves, with a parent as small as theirs.
struct Ours {
    creation: Worker<CreationSubject>,
    copying: Worker<CowSubject>,
}

impl Ours {
    fn start() -> Result<Self, BenchError> {
        let parent = parent::Spec::here(Method::Fork4k, 0)?;
        let creation = Worker::start("a small parent", &creation::Spec { parent, touch: true, fds: 0, vmas: 0 })?;
        let copying = Worker::start("a copier", &parent)?;
        Ok(Self { creation, copying })
    }

    fn measure(&mut self, checked: Checked) -> Result<Vec<f64>, BenchError> {
        let (way, then) = match checked {
            Checked::Fork => (Way::Fork, Then::Exit),
            Checked::Vfork => (Way::Vfork, Then::Exit),
            Checked::Spawn => (Way::PosixSpawn, Then::Exec),
            Checked::Copy => {
                let copies = self.copying.ask(&cow_model::Ask::Copy { bytes: 64 << 20, samples: 5 })?;
                return Ok(copies.into_iter().flat_map(|(_, rates)| rates).collect());
            }
        };
        let phases = self.creation.ask(&creation::Ask::Batch { way, then, samples: SAMPLES, budget: BUDGET })?;
        Ok(phases.into_iter().filter(|(phase, _)| *phase == Phase::Cycle).flat_map(|(_, times)| times).collect())
    }
}

/// Asks everybody.
pub(super) fn measure(
    options: &CheckOptions,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let rounds = if options.quick { 2 } else { 5 };
    progress.begin("other programs and this one in turn", (Tool::ALL.len() * rounds) as u64);
    let mut ours = Ours::start()?;
    for tool in Tool::ALL {
        if progress.interrupted() {
            break;
        }
        if progress.deadline().passed() {
            results.no_time_for(tool.name(), progress);
            continue;
        }
        ask(tool, rounds, &mut ours, results, progress)?;
    }
    Ok(())
}

/// Asks one tool, and ourselves after each of its answers.
fn ask(
    tool: Tool,
    rounds: usize,
    ours: &mut Ours,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let (mut theirs, mut own, mut failure) = (Rounds::default(), Rounds::default(), Ok(()));
    for round in 0..rounds {
        if progress.interrupted() || (round > 0 && progress.deadline().passed()) {
            break;
        }
        let answer = match tool.ask(progress) {
            Ok(Ok(answer)) => answer,
            Ok(Err(reason)) => {
                results.leave_out(tool.name(), reason, progress);
                break;
            }
            Err(error) => {
                failure = Err(error);
                break;
            }
        };
        match ours.measure(tool.checked()) {
            Ok(samples) => own.push(samples),
            Err(error) => {
                failure = Err(error);
                break;
            }
        }
        // Only beside ours: each round has both.
        theirs.push(vec![answer]);
        progress.step();
    }
    if theirs.0.is_empty() {
        return failure;
    }
    let unit = if tool.checked() == Checked::Copy { "MB/s" } else { "us" };
    for (method, who, rounds) in [(tool.name(), "theirs", theirs), ("flashfork", "ours", own)] {
        let chosen = [("beside", json!(tool.name())), ("who", json!(who))];
        results.records.push(Record::of_rounds(EXPERIMENT, method, chosen, unit, &rounds)?);
    }
    failure
}
