//! The harnesses, asked in turn.

use super::{
	UnitTestOptions,
	case::Case,
	cycle::Phase,
	found::Made,
	subject::{Ask, Ready, Reply, Spec, UnitTestSubject},
};
use crate::{prelude::*, subjects::database::Image};
use flashfork_measure::worker::unexpected;

/// Clones per test, harness and round.
const BATCH: usize = 10;

struct Team {
	method: Method,
	workers: Vec<Worker<UnitTestSubject>>,
}

/// Starts all harnesses, asks them in turn, and checks that every database is still what it was.
pub fn measure(options: &UnitTestOptions, methods: &[Method], cpus: &[usize], image: &Image, run: &mut Run) -> Result {
	let made = Made { cpus, image };
	made.keep_image(run)?;
	run.begin("loading the database into each harness", (methods.len() * cpus.len()) as u64);
	let mut teams = Vec::new();
	for &method in methods {
		run.go_on()?;
		let team = start(options.size, cpus, image, method, run)?;
		match team.flaw() {
			Some(flaw) => run.leave_out(method.as_ref(), flaw),
			None => {
				let ready: Vec<&Ready> = team.workers.iter().map(Worker::ready).collect();
				made.keep_preparation(method, &ready, run)?;
				teams.push(team);
			}
		}
	}
	let Some(expected) = teams.first().map(|team| team.workers[0].ready().checksum) else { return Ok(()) };
	let cells: Vec<(usize, Case)> =
		(0..teams.len()).flat_map(|team| Case::all().map(move |case| (team, case))).collect();
	let stage = "interleaved rounds of tests in clones";
	let taken = run.sample(stage, Effort::rounds(options.rounds as usize), cells.len(), image.bytes, |cell, round| {
		let (team, case) = cells[cell];
		teams[team].run(case, round * BATCH)
	});
	taken.keep(run, |cell, phase| {
		let (team, case) = cells[cell];
		let row = made.row(teams[team].method.as_ref(), phase.as_ref(), "us").chosen("test", case.as_ref());
		row.beside(json!({ "uncounted_clones_per_round": cpus.len() }))
	})?;
	run.begin("comparing the databases with what they were", (teams.len() * cpus.len()) as u64);
	teams.iter_mut().try_for_each(|team| team.verify(expected, run))
}

/// Starts the harnesses of `method`, one by one: loading is a phase that is timed.
fn start(size: Size, cpus: &[usize], image: &Image, method: Method, run: &mut Run) -> Result<Team> {
	let mut workers: Vec<Worker<UnitTestSubject>> = Vec::new();
	for (job, &cpu) in cpus.iter().enumerate() {
		let spec = Spec { method, image: image.path.clone(), cpu };
		let worker = Worker::<UnitTestSubject>::start(format!("{method} {size}, harness {}", job + 1), &spec)?;
		workers.push(worker);
		run.step();
	}
	Ok(Team { method, workers })
}

impl Team {
	/// Whether the method could be prepared as it is meant; if not, why it must be left out.
	fn flaw(&self) -> Option<String> {
		self.workers.iter().find_map(|worker| worker.ready().pages.flaw(self.method))
	}

	/// One batch in every harness at the same time.
	fn run(&mut self, case: Case, first: usize) -> Result<Visit<Phase>> {
		let ask = Ask::Batch { case, first, count: BATCH };
		self.workers.iter_mut().try_for_each(|worker| worker.send(&ask))?;
		let mut all = Vec::new();
		for worker in &mut self.workers {
			match worker.receive()? {
				Reply::Batch(samples) => all.extend(samples),
				other => return Err(unexpected(&other)),
			}
		}
		Ok(by_measure(all))
	}

	/// Checks that every harness loaded the same database and that no clone changed it. The last request, because it
	/// reads everything.
	fn verify(&mut self, expected: u64, run: &mut Run) -> Result {
		for worker in &mut self.workers {
			let before = worker.ready().checksum;
			match worker.ask(&Ask::Checksum)? {
				Reply::Checksum(after) if [before, after] == [expected; 2] => run.step(),
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
