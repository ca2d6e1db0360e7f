//! Each tool and ourselves in turn.

use super::{
	CheckOptions,
	tool::{Checked, Tool},
};
use crate::{
	experiments::{
		cow_model::{self, CowSubject},
		creation::{self, CreationSubject, Phase, Then, Way},
	},
	prelude::*,
	subjects::parent,
};

/// Our samples for one answer of a tool.
const SAMPLES: usize = 60;
const BUDGET: u64 = 500_000;

/// Ourselves, with a parent as small as theirs.
struct Ours {
	creation: Worker<CreationSubject>,
	copying: Worker<CowSubject>,
}

impl Ours {
	fn start() -> Result<Self> {
		let parent = parent::Spec::here(Method::Fork4k, 0)?;
		let creation = Worker::start("a small parent", &creation::Spec { parent, touch: true, fds: 0, vmas: 0 })?;
		let copying = Worker::start("a copier", &parent)?;
		Ok(Self { creation, copying })
	}

	fn measure(&mut self, checked: Checked) -> Result<Vec<f64>> {
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
pub fn measure(options: &CheckOptions, run: &mut Run) -> Result {
	let rounds = if options.quick { 2 } else { 5 };
	run.begin("other programs and this one in turn", Tool::VARIANTS.len() as u64 * u64::from(rounds));
	let mut ours = Ours::start()?;
	for tool in Tool::all() {
		run.go_on()?;
		if !run.no_time_for(tool.as_ref()) {
			ask(tool, rounds, &mut ours, run)?;
		}
	}
	Ok(())
}

/// Asks one tool, and ourselves after each of its answers.
fn ask(tool: Tool, rounds: u32, ours: &mut Ours, run: &mut Run) -> Result {
	let (mut theirs, mut own, mut refused) = (Rounds::default(), Rounds::default(), None);
	let done = run.rounds(rounds, |run, _| {
		if refused.is_none() {
			match tool.ask(run.progress)? {
				Ok(answer) => {
					// Only beside ours: each round has both.
					own.push(ours.measure(tool.checked())?);
					theirs.push(vec![answer]);
				}
				Err(reason) => refused = Some(reason),
			}
		}
		Ok(())
	});
	if let Some(reason) = refused {
		run.leave_out(tool.as_ref(), reason);
	}
	let unit = if tool.checked() == Checked::Copy { "MB/s" } else { "us" };
	for (method, who, rounds) in [(tool.as_ref(), "theirs", theirs), ("flashfork", "ours", own)] {
		run.keep_rounds(Row::of(method, unit, json!({ "beside": tool.as_ref(), "who": who })), &rounds)?;
	}
	done
}
