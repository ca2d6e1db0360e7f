//! One clone at a time: the methods of a size side by side, the parent in one state after another.

use super::Method;
use super::facts::Facts;
use super::measured::{Cell, Group, Results};
use super::plan::Plan;
use super::probe::{Batch, Measure, Probe, Samples};
use super::subject::{Ask, ForkSubject, Ready, Reply, Spec};
use super::touch::ParentState;
use crate::engine::Sealed;
use crate::order::shuffled_rounds;
use crate::size::Size;
use crate::stats::Rounds;
use crate::worker::Worker;
use crate::{BenchError, Progress};

/// A batch ends after so many samples ...
const BATCH: usize = 20;
/// ... or after so long (microseconds), whichever comes first: long enough to be warm, short enough to interleave.
const BUDGET: u64 = 20_000;
/// Below this share of huge pages, what was measured would not be huge pages.
const MOSTLY_HUGE: f64 = 0.9;

/// A worker and what is known of its parent process.
#[derive(Debug)]
pub(super) struct Member {
    pub method: Method,
    pub size: u64,
    pub worker: Worker<ForkSubject>,
    pub facts: Facts,
    pub sealed: Option<Sealed>,
    pub written_pages: usize,
}

impl Member {
    /// Starts the worker and waits until its memory is filled, and sealed where the method says so.
    pub(super) fn start(method: Method, size: u64, cpu: usize) -> Result<Self, BenchError> {
        let worker = Worker::<ForkSubject>::start(format!("{method} {}", Size(size)), &Spec { method, size, cpu })?;
        let Ready { facts, sealed } = *worker.ready();
        Ok(Self { method, size, worker, facts, sealed, written_pages: 0 })
    }

    /// Whether the method could be prepared as it is meant; if not, why it must be left out.
    pub(super) fn flaw(&self) -> Option<String> {
        let huge = self.facts.huge_fraction;
        (self.method == Method::ForkThp && self.size > 0 && huge < MOSTLY_HUGE).then(|| {
            format!(
                "left out: {}, method {}: the kernel gave huge pages for only {:.0} % of the memory",
                Size(self.size),
                self.method,
                huge * 100.0
            )
        })
    }

    /// The next answer, which must be samples.
    pub(super) fn samples(&mut self) -> Result<Samples, BenchError> {
        match self.worker.receive()? {
            Reply::Batch(samples) => Ok(samples),
            other => Err(unexpected(&other)),
        }
    }

    fn become_state(&mut self, state: ParentState) -> Result<(), BenchError> {
        match self.worker.ask(&Ask::Become(state))? {
            Reply::Become { facts, written_pages } => {
                (self.facts, self.written_pages) = (facts, written_pages);
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Checks that clones left the parent's memory alone; must be the last request, because it reads everything.
    pub(super) fn verify(&mut self) -> Result<(), BenchError> {
        match self.worker.ask(&Ask::Verify)? {
            Reply::Verified => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// A cell for this member's `rounds`.
    pub(super) fn cell(&self, group: &Group, state: ParentState, measure: Measure, rounds: Rounds) -> Cell {
        Cell {
            group: group.clone(),
            method: self.method,
            size: self.size,
            state,
            written_pages: self.written_pages,
            facts: self.facts,
            sealed: self.sealed,
            measure,
            rounds,
        }
    }
}

fn unexpected(reply: &Reply) -> BenchError {
    BenchError::Unable(format!("a worker answered another question than was asked: {reply:?}"))
}

/// Measures everything for `size`.
pub(super) fn measure(
    plan: &Plan,
    size: u64,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let groups = plan.groups(size, 1)?;
    if groups.len() > 1 {
        let note = format!(
            "{}: the methods don't fit into memory together; measured one group after the other, each beside an empty process",
            Size(size)
        );
        progress.note(&note);
        results.notes.push(note);
    }
    for methods in groups {
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
    progress.begin(&format!("{}: filling memory", Size(size)), methods.len() as u64);
    let mut members = Vec::new();
    for &method in &methods {
        let member = Member::start(method, size, plan.cpu)?;
        match member.flaw() {
            None => members.push(member),
            Some(flaw) => {
                progress.note(&flaw);
                results.notes.push(flaw);
            }
        }
        progress.step();
    }
    if size > 0 {
        members.push(Member::start(Method::Fork4k, 0, plan.cpu)?);
    }
    let group = Group { size, methods, copies: 1, affinity: format!("all on cpu {}", plan.cpu) };
    // Without memory there are no states to tell apart.
    let states = if size > 0 { plan.states } else { &plan.states[..1] };
    for &state in states {
        progress.begin(&format!("{}, parent {state}", Size(size)), plan.rounds as u64);
        measure_state(plan, &group, &mut members, state, results, progress)?;
    }
    members.iter_mut().try_for_each(Member::verify)
}

fn measure_state(
    plan: &Plan,
    group: &Group,
    members: &mut [Member],
    state: ParentState,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    members.iter_mut().try_for_each(|member| member.become_state(state))?;
    let seed = group.size ^ u64::from(state.millionths());
    let mut taken: Vec<Vec<(Measure, Rounds)>> = members.iter().map(|_| Vec::new()).collect();
    for (round, order) in shuffled_rounds(plan.rounds, members.len(), seed).into_iter().enumerate() {
        if progress.interrupted() {
            break;
        }
        for probe in Probe::ALL {
            // The same pages for every method.
            let seed = seed.wrapping_add((round * Probe::ALL.len()) as u64 + probe as u64);
            let batch = Batch { probe, samples: BATCH, budget: BUDGET, start: None, seed };
            for &index in &order {
                let member = &mut members[index];
                if member.size == 0 && probe != Probe::Exit {
                    continue;
                }
                member.worker.send(&Ask::Batch(batch.clone()))?;
                let samples = member.samples()?;
                for &measure in probe.measures() {
                    keep(&mut taken[index], measure, samples.of(measure));
                }
            }
        }
        progress.step();
    }
    for (member, taken) in members.iter().zip(taken) {
        let cells = taken.into_iter().map(|(measure, rounds)| member.cell(group, state, measure, rounds));
        results.cells.extend(cells);
    }
    Ok(())
}

/// Adds one round's samples to those of their measure.
pub(super) fn keep(taken: &mut Vec<(Measure, Rounds)>, measure: Measure, samples: &[f64]) {
    let found = taken.iter().position(|(known, _)| *known == measure);
    let index = found.unwrap_or_else(|| {
        taken.push((measure, Rounds::default()));
        taken.len() - 1
    });
    taken[index].1.push(samples.to_vec());
}
