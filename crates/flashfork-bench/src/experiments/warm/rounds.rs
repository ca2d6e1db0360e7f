//! All programs, started anew and cloned, in turn.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{
	WarmOptions,
	command::{Runs, Way},
	program::Program,
	templates::{faults_of_clones, lacks, warm},
};
use crate::{
	prelude::*,
	subjects::{guard::Guard, template::Template},
};

/// Before each sample. A template begins with its next clone a millisecond after the last one.
const PAUSE: Duration = Duration::from_millis(30);

/// Lets others run for a while. The processor doesn't fall asleep: to wake a virtual one up takes longer than starting
/// a program.
fn pause() {
	let begin = Instant::now();
	while begin.elapsed() < PAUSE {
		std::thread::yield_now();
	}
}

/// Clones made one by one for a sample of [`Way::Busy`].
const IN_A_ROW: usize = 10;

/// A clone has told its end, and takes its memory apart; no longer than this.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "snake_case")]
pub enum Measure {
	/// Start of the command until its end is seen, in microseconds.
	Whole,
	/// Until its first line is there.
	Line,
	/// Page faults of the command itself.
	Faults,
	/// Page faults of its clone, those before it had a caller included.
	CloneFaults,
}

impl Measure {
	fn unit(self) -> &'static str {
		match self {
			Self::Whole | Self::Line => "us",
			Self::Faults | Self::CloneFaults => "count",
		}
	}
}

struct Subject {
	program: Program,
	runs: Runs,
	template: Option<Template>,
}

/// This thread on one CPU, and what it starts; until it is dropped.
struct Pinned(CpuSet);

impl Pinned {
	fn new() -> Result<Self> {
		let before = sched_getaffinity(None).or_cant("read the allowed CPUs")?;
		pin::pin(pin::chosen_cpu()?)?;
		Ok(Self(before))
	}
}

impl Drop for Pinned {
	fn drop(&mut self) {
		// What was allowed before still is, or it doesn't matter any more.
		let _ = sched_setaffinity(None, &self.0);
	}
}

pub fn measure(options: &WarmOptions, flashfork: &Path, run: &mut Run) -> Result {
	let _pinned = Pinned::new()?;
	let work = WorkDir::new(None)?;
	let mut guard = Guard::start()?;
	let programs = options.programs();
	run.begin("templates", programs.len() as u64);
	let mut subjects = Vec::new();
	for program in programs {
		run.go_on()?;
		subjects.extend(prepare(program, flashfork, work.path(), &mut guard, run)?);
		run.step();
	}
	let mut cells = Vec::new();
	for (index, subject) in subjects.iter().enumerate() {
		cells.extend(Way::all().filter(|way| *way == Way::Cold || subject.template.is_some()).map(|w| (index, w)));
	}
	let taken = run.sample("programs and their clones", options.effort(), cells.len(), 11, |cell, _| {
		let (index, way) = cells[cell];
		visit(&subjects[index], way)
	});
	taken.keep(run, |cell, measure| {
		let (index, way) = cells[cell];
		let Subject { program, template, .. } = &subjects[index];
		let chosen = json!({ "measure": measure.as_ref(), "program": program.as_ref() });
		let sealed = template.as_ref().map_or(0, |template| template.sealed);
		Row::of(way.as_ref(), measure.unit(), chosen).beside(json!({ "sealed_bytes": sealed }))
	})
}

fn prepare(
	program: Program,
	flashfork: &Path,
	place: &Path,
	guard: &mut Guard,
	run: &mut Run,
) -> Result<Option<Subject>> {
	let runs = Runs::new(program, flashfork, place)?;
	if let Some(why) = lacks(&runs, program) {
		run.leave_out(program.as_ref(), why);
		return Ok(None);
	}
	if program.flags().is_some() {
		return Ok(Some(Subject { program, runs, template: None }));
	}
	let template = match warm(&runs, program, guard)? {
		Ok(template) => Some(template),
		Err(why) => {
			run.leave_out(format!("clones of {}", program.as_ref()), why);
			None
		}
	};
	Ok(Some(Subject { program, runs, template }))
}

fn visit(subject: &Subject, way: Way) -> Result<Visit<Measure>> {
	pause();
	if way == Way::Busy {
		let begin = Instant::now();
		for _ in 0..IN_A_ROW {
			subject.runs.once(way)?;
		}
		return Ok(vec![(Measure::Whole, vec![micros(begin) / IN_A_ROW as f64])]);
	}
	let template = subject.template.as_ref().filter(|_| way == Way::Clone);
	let before = template.map(faults_of_clones).transpose()?;
	let taken = subject.runs.once(way)?;
	let mut visit = vec![(Measure::Whole, vec![taken.whole]), (Measure::Faults, vec![taken.faults])];
	visit.extend(taken.line.map(|line| (Measure::Line, vec![line])));
	if let (Some(template), Some(before)) = (template, before) {
		let end = Instant::now() + PATIENCE;
		let mut now = faults_of_clones(template)?;
		while now == before {
			if Instant::now() > end {
				let program = subject.program.as_ref();
				return Err(unable!("a clone of {program} has not ended after it said so"));
			}
			std::thread::sleep(Duration::from_millis(1));
			now = faults_of_clones(template)?;
		}
		visit.push((Measure::CloneFaults, vec![now - before]));
	}
	Ok(visit)
}
