//! One clone at a time: the methods of a size side by side, the parent in one state after another.

use super::Run;
use super::found::{Group, keep};
use super::probe::{Batch, Measure, Probe, Samples};
use super::subject::{Ask, ForkSubject, Ready, Reply};
use super::touch::ParentState;
use crate::subjects::engine::Sealed;
use crate::subjects::parent::Spec;
use crate::subjects::{Facts, Method};
use flashfork_measure::sampling::{Effort, Visit, sample};
use flashfork_measure::worker::Worker;
use flashfork_measure::{BenchError, Deadline};
use flashfork_terminal::size::Size;

/// A batch ends after so many samples ...
const BATCH: usize = 20;
/// ... or after so long (microseconds), whichever comes first: long enough to be warm, short enough to interleave.
const BUDGET: u64 = 20_000;

/// Bytes that a clone may copy which writes to 25 pages, huge ones as they may be.
const TOUCHED: u64 = 64 << 20;

/// A worker and what is known of its parent process.
#[derive(Debug)]
pub(super) struct Member {
    pub spec: Spec,
    pub worker: Worker<ForkSubject>,
    pub facts: Facts,
    pub sealed: Option<Sealed>,
    pub written_pages: usize,
}

impl Member {
    /// Starts the worker and waits until its memory is filled, and sealed where the method says so.
    pub(super) fn start(method: Method, size: u64, cpu: usize) -> Result<Self, BenchError> {
        let spec = Spec { method, size, cpu };
        let worker = spec.start::<ForkSubject>()?;
        let Ready { facts, sealed } = *worker.ready();
        Ok(Self { spec, worker, facts, sealed, written_pages: 0 })
    }

    /// Why it must be left out, if so.
    pub(super) fn flaw(&self) -> Option<String> {
        self.spec.flaw(&self.facts)
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
}

fn unexpected(reply: &Reply) -> BenchError {
    BenchError::Unable(format!("a worker answered another question than was asked: {reply:?}"))
}

/// Measures everything for the run's size.
pub(super) fn measure(run: &mut Run) -> Result<(), BenchError> {
    let methods = run.methods(1)?;
    let groups = run.plan.groups(&methods, run.size, 1)?;
    if groups.len() > 1 {
        let note = format!(
            "{}: the methods don't fit into memory together; measured one group after the other, each beside an empty process",
            Size(run.size)
        );
        run.progress.note(&note);
    }
    let number = groups.len();
    for (index, methods) in groups.into_iter().enumerate() {
        let deadline = run.deadline.part(1.0 / (number - index) as f64);
        run.group(methods, deadline)?;
    }
    Ok(())
}

impl Run<'_> {
    /// The methods that this size can be held in now, `copies` times at once.
    pub(super) fn methods(&mut self, copies: usize) -> Result<Vec<Method>, BenchError> {
        let mut methods = self.plan.methods.clone();
        if methods.contains(&Method::Hugetlb) && self.size > 0 {
            let times = copies as u64;
            let all = Spec { method: Method::Hugetlb, size: self.size * times, cpu: self.plan.cpu };
            if let Some(why) = all.shortage(self.size.min(TOUCHED) * times)? {
                methods.retain(|&method| method != Method::Hugetlb);
                let cell = Spec { size: self.size, ..all }.name();
                self.results.leave_out(cell, why, self.progress);
            }
        }
        Ok(methods)
    }

    fn group(&mut self, methods: Vec<Method>, deadline: Deadline) -> Result<(), BenchError> {
        let (plan, size) = (self.plan, self.size);
        self.progress.begin(&format!("{}: filling memory", Size(size)), methods.len() as u64);
        let mut members = Vec::new();
        for &method in &methods {
            if self.progress.interrupted() {
                break;
            }
            let member = Member::start(method, size, plan.cpu)?;
            match member.flaw() {
                None => members.push(member),
                Some(flaw) => self.results.leave_out(member.spec.name(), flaw, self.progress),
            }
            self.progress.step();
        }
        if size > 0 {
            members.push(Member::start(Method::Fork4k, 0, plan.cpu)?);
        }
        let group = Group { size, methods, copies: 1, affinity: format!("all on cpu {}", plan.cpu) };
        // Without memory there are no states to tell apart.
        let states = if size > 0 { plan.states } else { &plan.states[..1] };
        for (index, &state) in states.iter().enumerate() {
            if self.progress.interrupted() {
                break;
            }
            if deadline.passed() && index > 0 {
                let cell = format!("{}, parent {state}", Size(size));
                self.results.no_time_for(cell, self.progress);
                continue;
            }
            let effort = Effort::rounds(plan.rounds).until(deadline.part(1.0 / (states.len() - index) as f64));
            self.state(&group, &mut members, state, &effort)?;
        }
        members.iter_mut().try_for_each(Member::verify)
    }

    fn state(
        &mut self,
        group: &Group,
        members: &mut [Member],
        state: ParentState,
        effort: &Effort,
    ) -> Result<(), BenchError> {
        members.iter_mut().try_for_each(|member| member.become_state(state))?;
        // An empty parent has nothing for its clones to touch. Of others what that costs is asked in one state only.
        let touched = |member: &Member| member.spec.size > 0 && state == ParentState::Idle;
        let probes = |member: &Member| if touched(member) { &Probe::ALL } else { &Probe::ALL[..1] };
        let cells: Vec<(usize, Probe)> = members
            .iter()
            .enumerate()
            .flat_map(|(index, member)| probes(member).iter().map(move |&probe| (index, probe)))
            .collect();
        let seed = group.size ^ u64::from(state.millionths());
        self.progress.begin(&format!("{}, parent {state}", Size(group.size)), effort.steps());
        let (sampled, done) = sample(cells.len(), effort, seed, self.progress, |cell, round| {
            let (index, probe) = cells[cell];
            // The same pages for every method.
            let seed = seed.wrapping_add((round * Probe::ALL.len()) as u64 + probe as u64);
            let batch = Batch { probe, samples: BATCH, budget: BUDGET, start: None, seed };
            members[index].worker.send(&Ask::Batch(batch))?;
            Ok(by_measure(probe, &[members[index].samples()?]))
        });
        for (&(index, _), series) in cells.iter().zip(&sampled.cells) {
            for series in series {
                keep(self.results, group, &members[index], state, series, sampled.ended)?;
            }
        }
        done
    }
}

/// What clones of one kind, made by one worker or several at once, were made for.
pub(super) fn by_measure(probe: Probe, samples: &[Samples]) -> Visit<Measure> {
    let of = |measure| samples.iter().flat_map(|samples| samples.of(measure)).copied().collect();
    probe.measures().iter().map(|&measure| (measure, of(measure))).collect()
}
