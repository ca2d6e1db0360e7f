//! The harnesses, asked in turn.

use super::case::Case;
use super::cycle::Phases;
use super::measured::{Harness, Results};
use super::plan::Plan;
use super::subject::{Ask, Reply, Spec, UnitTestSubject};
use crate::database::Image;
use crate::fork::Method;
use crate::order::shuffled_rounds;
use crate::worker::Worker;
use crate::{BenchError, Progress};

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
    progress.begin("loading the database into each harness", (plan.methods.len() * plan.jobs) as u64);
    let mut teams = Vec::new();
    for &method in &plan.methods {
        let team = start(plan, image, method, results, progress)?;
        match team.flaw() {
            None => teams.push(team),
            Some(flaw) => {
                progress.note(&flaw);
                results.harnesses.retain(|harness| harness.method != method);
                results.notes.push(flaw);
            }
        }
    }
    progress.begin("interleaved rounds of tests in clones", plan.rounds as u64);
    for (round, order) in shuffled_rounds(plan.rounds, teams.len(), image.bytes).into_iter().enumerate() {
        for case in Case::ALL {
            for &index in &order {
                let team = &mut teams[index];
                let phases = team.run(case, round * BATCH)?;
                results.keep(team.method, case, phases);
            }
        }
        progress.step();
    }
    progress.begin("comparing the databases with what they were", (teams.len() * plan.jobs) as u64);
    let expected = teams[0].workers[0].ready().checksum;
    teams.iter_mut().try_for_each(|team| team.verify(expected, progress))
}

/// Starts the harnesses of `method`, one after the other: loading is a phase that is timed.
fn start(
    plan: &Plan,
    image: &Image,
    method: Method,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<Team, BenchError> {
    let mut workers: Vec<Worker<UnitTestSubject>> = Vec::new();
    for (job, &cpu) in plan.cpus.iter().enumerate() {
        let spec = Spec { method, image: image.path.clone(), cpu };
        let worker = Worker::<UnitTestSubject>::start(format!("{method} {}, harness {}", plan.size, job + 1), &spec)?;
        let ready = worker.ready().clone();
        results.harnesses.push(Harness { method, cpu, ready });
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
        (self.method == Method::ForkThp && least < MOSTLY_HUGE).then(|| {
            format!(
                "left out: method {}: the heap got huge pages for only {:.0} % of its memory",
                self.method,
                least * 100.0
            )
        })
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

    /// Checks that every harness loaded the same database and that no clone changed it. The last request, because it reads
    /// everything.
    fn verify(&mut self, expected: u64, progress: &mut dyn Progress) -> Result<(), BenchError> {
        for worker in &mut self.workers {
            let before = worker.ready().checksum;
            match worker.ask(&Ask::Checksum)? {
                Reply::Checksum(after) if [before, after] == [expected; 2] => progress.step(),
                Reply::Checksum(after) => {
                    return Err(BenchError::Unable(format!(
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
