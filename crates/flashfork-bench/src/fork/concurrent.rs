//! Several processes of a size that clone themselves at the same time, each on a CPU of its own as far as there are enough.

use std::time::Duration;

use super::Method;
use super::measured::{Group, Results};
use super::plan::Plan;
use super::probe::{Batch, Measure, Probe};
use super::rounds::{Member, keep};
use super::subject::{Ask, monotonic};
use super::touch::ParentState;
use crate::order::shuffled_rounds;
use crate::size::Size;
use crate::stats::Rounds;
use crate::{BenchError, Progress};

/// How long the workers clone side by side in one batch, in microseconds. Time ends a batch, not a count: the fast ones must
/// not leave the slow ones alone.
const BUDGET: u64 = 20_000;
/// Between the request and the common start: time for every worker to read it and make its uncounted clone.
const NOTICE: Duration = Duration::from_millis(2);

/// Measures the fork call and the cycle for `size` with the planned number of workers at once, parents idle.
pub(super) fn measure(
    plan: &Plan,
    size: u64,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    for methods in plan.groups(size, plan.concurrent)? {
        measure_group(plan, size, methods, results, progress)?;
    }
    Ok(())
}

fn measure_group(
    plan: &Plan,
    size: u64,
    methods: Vec<Method>,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    progress.begin(&format!("{} × {}: filling memory", plan.concurrent, Size(size)), methods.len() as u64);
    let mut teams = Vec::new();
    for &method in &methods {
        teams.extend(team(plan, method, size, results, progress)?);
        progress.step();
    }
    if size > 0 {
        teams.extend(team(plan, Method::Fork4k, 0, results, progress)?);
    }
    let cpus: Vec<String> = plan.cpus.iter().map(usize::to_string).collect();
    let affinity = format!("round robin over cpus {}", cpus.join(","));
    let group = Group { size, methods, copies: plan.concurrent, affinity };

    progress.begin(&format!("{} × {} at once", plan.concurrent, Size(size)), plan.rounds as u64);
    let mut taken: Vec<Vec<(Measure, Rounds)>> = teams.iter().map(|_| Vec::new()).collect();
    for (round, order) in shuffled_rounds(plan.rounds, teams.len(), size).into_iter().enumerate() {
        if progress.interrupted() {
            break;
        }
        for index in order {
            batch(&mut teams[index], round as u64, &mut taken[index])?;
        }
        progress.step();
    }
    for (team, taken) in teams.iter_mut().zip(taken) {
        let cells = taken.into_iter().map(|(measure, rounds)| team[0].cell(&group, ParentState::Idle, measure, rounds));
        results.cells.extend(cells);
        team.iter_mut().try_for_each(Member::verify)?;
    }
    Ok(())
}

/// The workers of one method; `None` when the method can't be prepared as it is meant.
fn team(
    plan: &Plan,
    method: Method,
    size: u64,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<Option<Vec<Member>>, BenchError> {
    let cpus = plan.cpus.iter().cycle().take(plan.concurrent);
    let members: Vec<Member> = cpus.map(|&cpu| Member::start(method, size, cpu)).collect::<Result<_, _>>()?;
    match members.iter().find_map(Member::flaw) {
        None => Ok(Some(members)),
        Some(flaw) => {
            progress.note(&flaw);
            results.notes.push(flaw);
            Ok(None)
        }
    }
}

/// One batch of all workers of a team at once; their samples together are one round.
fn batch(team: &mut [Member], seed: u64, taken: &mut Vec<(Measure, Rounds)>) -> Result<(), BenchError> {
    let start = Some(monotonic() + NOTICE.as_nanos() as u64);
    let batch = Batch { probe: Probe::Exit, samples: usize::MAX, budget: BUDGET, start, seed };
    for member in &mut *team {
        member.worker.send(&Ask::Batch(batch.clone()))?;
    }
    let samples: Vec<_> = team.iter_mut().map(Member::samples).collect::<Result<_, _>>()?;
    for &measure in Probe::Exit.measures() {
        keep(taken, measure, &samples.iter().flat_map(|samples| samples.of(measure)).copied().collect::<Vec<_>>());
    }
    Ok(())
}
