//! Each tool and ourselves in turn.

use serde_json::json;

use super::tool::{Checked, Tool};
use super::{CheckOptions, EXPERIMENT};
use crate::cow_model::{self, CowSubject};
use crate::creation::{self, CreationSubject, Phase, Then, Way};
use crate::fork::Method;
use crate::record::{Missing, Params, Record};
use crate::worker::Worker;
use crate::{BenchError, Progress, pin};

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
        let (method, size, cpu) = (Method::Fork4k, 0, pin::chosen_cpu()?);
        let spec = creation::Spec { method, size, touch: true, fds: 0, vmas: 0, cpu };
        let creation = Worker::start("a small parent", &spec)?;
        let copying = Worker::start("a copier", &cow_model::Spec { method, size, cpu })?;
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
    progress: &mut dyn Progress,
) -> Result<(Vec<Record>, Vec<Missing>), BenchError> {
    let rounds = if options.quick { 2 } else { 5 };
    progress.begin("other programs and this one in turn", (Tool::ALL.len() * rounds) as u64);
    let mut ours = Ours::start()?;
    let (mut records, mut missing) = (Vec::new(), Vec::new());
    for tool in Tool::ALL {
        let (mut theirs, mut own) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            progress.step();
            if progress.interrupted() {
                break;
            }
            match tool.ask()? {
                Ok(answer) => theirs.push(answer),
                Err(reason) => {
                    progress.note(&format!("left out: {}: {reason}", tool.name()));
                    missing.push(Missing { experiment: EXPERIMENT.to_owned(), cell: tool.name().to_owned(), reason });
                    break;
                }
            }
            own.push(ours.measure(tool.checked())?);
        }
        if theirs.is_empty() {
            continue;
        }
        let unit = if tool.checked() == Checked::Copy { "MB/s" } else { "us" };
        let per_round: Vec<usize> = own.iter().map(Vec::len).collect();
        let params = |who: &str, per_round: Vec<usize>| -> Params {
            let params = [("beside", json!(tool.name())), ("who", json!(who)), ("samples_per_round", json!(per_round))];
            params.map(|(name, value)| (name.to_owned(), value)).into()
        };
        let answers = vec![1; theirs.len()];
        records.push(Record::new(EXPERIMENT, tool.name(), params("theirs", answers), unit, theirs)?);
        records.push(Record::new(EXPERIMENT, "flashfork", params("ours", per_round), unit, own.concat())?);
    }
    Ok((records, missing))
}
