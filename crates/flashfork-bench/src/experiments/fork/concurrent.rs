//! Several processes of a size that clone themselves at the same time, each on a CPU of its own as far as there are
//! enough.

use std::time::Duration;

use super::Run;
use super::found::{Group, keep};
use super::probe::{Batch, Probe};
use super::rounds::{Member, by_measure};
use super::subject::{Ask, monotonic};
use super::touch::ParentState;
use crate::subjects::Method;
use flashfork_measure::BenchError;
use flashfork_measure::sampling::{Effort, sample};
use flashfork_terminal::size::Size;

/// How long the workers clone side by side in one batch, in microseconds. Time ends a batch, not a count: the fast ones
/// must not leave the slow ones alone.
const BUDGET: u64 = 20_000;
/// Between the request and the common start: time for every worker to read it and make its uncounted clone.
const NOTICE: Duration = Duration::from_millis(2);

/// Measures the fork call and the cycle for the run's size with the planned number of workers at once, parents idle.
pub(super) fn measure(run: &mut Run) -> Result<(), BenchError> {
    let methods = run.methods(run.plan.concurrent)?;
    run.plan.groups(&methods, run.size, run.plan.concurrent)?.into_iter().try_for_each(|methods| run.teams(methods))
}

impl Run<'_> {
    fn teams(&mut self, methods: Vec<Method>) -> Result<(), BenchError> {
        let (plan, size) = (self.plan, self.size);
        self.progress.begin(&format!("{} × {}: filling memory", plan.concurrent, Size(size)), methods.len() as u64);
        let mut teams = Vec::new();
        for &method in &methods {
            teams.extend(self.team(method, size)?);
            self.progress.step();
        }
        if size > 0 {
            teams.extend(self.team(Method::Fork4k, 0)?);
        }
        let cpus: Vec<String> = plan.cpus.iter().map(usize::to_string).collect();
        let affinity = format!("round robin over cpus {}", cpus.join(","));
        let group = Group { size, methods, copies: plan.concurrent, affinity };

        let effort = Effort::rounds(plan.rounds).until(self.deadline);
        self.progress.begin(&format!("{} × {} at once", plan.concurrent, Size(size)), effort.steps());
        let (sampled, done) = sample(teams.len(), &effort, size, self.progress, |team, round| {
            let start = Some(monotonic() + NOTICE.as_nanos() as u64);
            let batch = Batch { probe: Probe::Exit, samples: usize::MAX, budget: BUDGET, start, seed: round as u64 };
            // All at once; their samples together are one round.
            for member in &mut teams[team] {
                member.worker.send(&Ask::Batch(batch.clone()))?;
            }
            let samples: Vec<_> = teams[team].iter_mut().map(Member::samples).collect::<Result<_, _>>()?;
            Ok(by_measure(Probe::Exit, &samples))
        });
        for (team, series) in teams.iter().zip(&sampled.cells) {
            for series in series {
                keep(self.results, &group, &team[0], ParentState::Idle, series, sampled.ended)?;
            }
        }
        done.and_then(|()| teams.iter_mut().flatten().try_for_each(Member::verify))
    }

    /// The workers of one method; `None` when the method can't be prepared as it is meant.
    fn team(&mut self, method: Method, size: u64) -> Result<Option<Vec<Member>>, BenchError> {
        let cpus = self.plan.cpus.iter().cycle().take(self.plan.concurrent);
        let members: Vec<Member> = cpus.map(|&cpu| Member::start(method, size, cpu)).collect::<Result<_, _>>()?;
        let flaw = members.iter().find_map(Member::flaw);
        let Some(flaw) = flaw else { return Ok(Some(members)) };
        let cell = format!("{} × {}", self.plan.concurrent, members[0].spec.name());
        self.results.leave_out(cell, flaw, self.progress);
        Ok(None)
    }
}
