//! The harnesses, asked in turn.

use serde_json::json;

use super::case::Case;
use super::cycle::Phases;
use super::found::{Phase, Run};
use super::plan::Plan;
use super::subject::{Ask, Ready, Reply, Spec, UnitTestSubject};
use crate::subjects::Method;
use crate::subjects::database::Image;
use flashfork_measure::experiment::Results;
use flashfork_measure::sampling::{Effort, sample};
use flashfork_measure::worker::Worker;
use flashfork_measure::{BenchError, Progress};

/// Clones per test, harness and round.
const BATCH: usize = 10;

/// Below this share of huge pages, what was measured would not be huge pages. A heap begins and ends between them, so a
/// small one never is all huge.
const MOSTLY_HUGE: f64 = 0.5;

/// The harnesses of one method.
#[derive(Debug)]
struct Team {
    method: Method,
    workers: Vec<Worker<UnitTestSubject>>,
}

/// Starts all harnesses, asks them in turn, and checks that every database is still what it was.
pub(super) fn measure(
    plan: &Plan,
    image: &Image,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let run = Run::new(plan, image);
    run.keep_image(results)?;
    progress.begin("loading the database into each harness", (plan.methods.len() * plan.jobs) as u64);
    let mut teams = Vec::new();
    for &method in &plan.methods {
        if progress.interrupted() {
            return Ok(());
        }
        let team = start(plan, image, method, progress)?;
        match team.flaw() {
            Some(flaw) => results.leave_out(method.name(), flaw, progress),
            None => {
                let ready: Vec<&Ready> = team.workers.iter().map(Worker::ready).collect();
                run.keep_preparation(method, &ready, results)?;
                teams.push(team);
            }
        }
    }
    let Some(expected) = teams.first().map(|team| team.workers[0].ready().checksum) else { return Ok(()) };
    let cells: Vec<(usize, Case)> =
        (0..teams.len()).flat_map(|team| Case::ALL.into_iter().map(move |case| (team, case))).collect();
    let effort = Effort::rounds(plan.rounds).until(progress.deadline());
    progress.begin("interleaved rounds of tests in clones", effort.steps());
    let (sampled, done) = sample(cells.len(), &effort, image.bytes, progress, |cell, round| {
        let (team, case) = cells[cell];
        let phases = teams[team].run(case, round * BATCH)?;
        Ok(Phase::ALL.map(|phase| (phase, phases.iter().map(|phases| phase.of(phases)).collect())).to_vec())
    });
    for (&(team, case), series) in cells.iter().zip(&sampled.cells) {
        for series in series {
            let chosen = run.chosen(series.measure.name()).into_iter().chain([("test", json!(case.name()))]);
            let observed = run.observed().into_iter().chain([("uncounted_clones_per_round", json!(plan.jobs))]);
            results.keep(teams[team].method.name(), chosen, observed, "us", series, sampled.ended)?;
        }
    }
    done?;
    progress.begin("comparing the databases with what they were", (teams.len() * plan.jobs) as u64);
    teams.iter_mut().try_for_each(|team| team.verify(expected, progress))
}

/// Starts the harnesses of `method`, one after the other: loading is a phase that is timed.
fn start(plan: &Plan, image: &Image, method: Method, progress: &mut dyn Progress) -> Result<Team, BenchError> {
    let mut workers: Vec<Worker<UnitTestSubject>> = Vec::new();
    for (job, &cpu) in plan.cpus.iter().enumerate() {
        let spec = Spec { method, image: image.path.clone(), cpu };
        let worker = Worker::<UnitTestSubject>::start(format!("{method} {}, harness {}", plan.size, job + 1), &spec)?;
        workers.push(worker);
        progress.step();
    }
    Ok(Team { method, workers })
}

impl Team {
    /// Whether the method could be prepared as it is meant; if not, why it must be left out.
    fn flaw(&self) -> Option<String> {
        let shares = self.workers.iter().map(|worker| worker.ready().pages.huge_fraction());
        let least = shares.fold(1.0, f64::min);
        (self.method == Method::ForkThp && least < MOSTLY_HUGE)
            .then(|| format!("the heap got huge pages for only {:.0} % of its memory", least * 100.0))
    }

    /// One batch in every harness at the same time.
    fn run(&mut self, case: Case, first: usize) -> Result<Vec<Phases>, BenchError> {
        let ask = Ask::Batch { case, first, count: BATCH };
        self.workers.iter_mut().try_for_each(|worker| worker.send(&ask))?;
        let mut all = Vec::new();
        for worker in &mut self.workers {
            match worker.receive()? {
                Reply::Batch(phases) => all.extend(phases),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(all)
    }

    /// Checks that every harness loaded the same database and that no clone changed it. The last request, because it
    /// reads everything.
    fn verify(&mut self, expected: u64, progress: &mut dyn Progress) -> Result<(), BenchError> {
        for worker in &mut self.workers {
            let before = worker.ready().checksum;
            match worker.ask(&Ask::Checksum)? {
                Reply::Checksum(after) if [before, after] == [expected; 2] => progress.step(),
                Reply::Checksum(after) => {
                    return Err(BenchError::Void(format!(
                        "method {}: the database is not what it was: checksum {expected:016x} expected, {before:016x} when \
                         loaded, {after:016x} after the tests; this is a defect, please report it",
                        self.method
                    )));
                }
                other => return Err(unexpected(&other)),
            }
        }
        Ok(())
    }
}

fn unexpected(reply: &Reply) -> BenchError {
    BenchError::Unable(format!("a worker answered another question than was asked: {reply:?}"))
}
