//! Several processes of a size that clone themselves at the same time, each on its own CPU as far as there are enough.

use super::{
	AtSize,
	found::{Group, row},
	probe::{Batch, Probe},
	rounds::{Member, by_measure},
	subject::Ask,
	touch::ParentState,
};
use crate::prelude::*;

/// How long the workers clone side by side in one batch, in microseconds. Time ends a batch, not a count: the fast ones
/// must not leave the slow ones alone.
const BUDGET: u64 = 20_000;
/// Between the request and the common start: time for every worker to read it and make its uncounted clone.
const NOTICE: Duration = Duration::from_millis(2);

/// Measures the fork call and the cycle for this size with the planned number of workers at once, parents idle.
pub fn measure(at: &mut AtSize) -> Result {
	let methods = at.methods(at.plan.concurrent)?;
	at.plan.groups(&methods, at.size, at.plan.concurrent)?.into_iter().try_for_each(|methods| at.teams(methods))
}

impl AtSize<'_, '_> {
	fn teams(&mut self, methods: Vec<Method>) -> Result {
		let (plan, size) = (self.plan, self.size);
		self.run.begin(&format!("{} × {}: filling memory", plan.concurrent, Size(size)), methods.len() as u64);
		let mut teams = Vec::new();
		for &method in &methods {
			teams.extend(self.team(method, size)?);
			self.run.step();
		}
		if size > 0 {
			teams.extend(self.team(Method::Fork4k, 0)?);
		}
		let cpus: Vec<String> = plan.cpus.iter().map(usize::to_string).collect();
		let affinity = format!("round robin over cpus {}", cpus.join(","));
		let group = Group { size, methods, copies: plan.concurrent, affinity };

		let effort = Effort::rounds(plan.rounds).until(self.deadline);
		let stage = format!("{} × {} at once", plan.concurrent, Size(size));
		let taken = self.run.sample(&stage, effort, teams.len(), size, |team, round| {
			let start = Some(monotonic() + NOTICE.as_nanos() as u64);
			let batch = Batch { probe: Probe::Exit, samples: usize::MAX, budget: BUDGET, start, seed: round as u64 };
			// All at once; their samples together are one round.
			for member in &mut teams[team] {
				member.worker.send(&Ask::Batch(batch.clone()))?;
			}
			let samples: Vec<_> = teams[team].iter_mut().map(Member::samples).collect::<Result<_>>()?;
			Ok(by_measure(Probe::Exit, &samples))
		});
		taken.keep(self.run, |team, measure| row(&group, &teams[team][0], ParentState::Idle, measure))?;
		teams.iter_mut().flatten().try_for_each(Member::verify)
	}

	/// The workers of one method; `None` when the method can't be prepared as it is meant.
	fn team(&mut self, method: Method, size: u64) -> Result<Option<Vec<Member>>> {
		let cpus = self.plan.cpus.iter().cycle().take(self.plan.concurrent);
		let members: Vec<Member> = cpus.map(|&cpu| Member::start(method, size, cpu)).collect::<Result<_>>()?;
		let flaw = members.iter().find_map(Member::flaw);
		let Some(flaw) = flaw else { return Ok(Some(members)) };
		let cell = format!("{} × {}", self.plan.concurrent, members[0].spec.name());
		self.run.leave_out(cell, flaw);
		Ok(None)
	}
}
