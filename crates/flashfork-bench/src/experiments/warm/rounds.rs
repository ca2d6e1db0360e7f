//! All programs, started anew and cloned, in turn.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;

use super::WarmOptions;
use super::command::{Runs, Way};
use super::program::Program;
use super::templates::{Template, lacks};
use crate::subjects::guard::Guard;
use flashfork_measure::experiment::Results;
use flashfork_measure::sampling::{Visit, sample};
use flashfork_measure::workdir::WorkDir;
use flashfork_measure::{BenchError, Progress, pin};

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

/// Clones made one after the other for a sample of [`Way::Busy`].
const IN_A_ROW: usize = 10;

/// A clone has told its end, and takes its memory apart; no longer than this.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
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
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Line => "line",
            Self::Faults => "faults",
            Self::CloneFaults => "clone_faults",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Whole | Self::Line => "us",
            Self::Faults | Self::CloneFaults => "count",
        }
    }
}

/// A program that is there.
struct Subject {
    program: Program,
    runs: Runs,
    template: Option<Template>,
}

/// This thread on one CPU, and what it starts; until it is dropped.
struct Pinned(CpuSet);

impl Pinned {
    fn new() -> Result<Self, BenchError> {
        let before = sched_getaffinity(None).map_err(|errno| BenchError::system("read the allowed CPUs", errno))?;
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

/// Measures.
pub(super) fn measure(
    options: &WarmOptions,
    flashfork: &Path,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let _pinned = Pinned::new()?;
    let work = WorkDir::new(None)?;
    let mut guard = Guard::start()?;
    let programs = options.programs();
    progress.begin("templates", programs.len() as u64);
    let mut subjects = Vec::new();
    for program in programs {
        if progress.interrupted() {
            break;
        }
        subjects.extend(prepare(program, flashfork, work.path(), &mut guard, results, progress)?);
        progress.step();
    }
    let mut cells = Vec::new();
    for (index, subject) in subjects.iter().enumerate() {
        cells.extend(
            Way::ALL.into_iter().filter(|way| *way == Way::Cold || subject.template.is_some()).map(|w| (index, w)),
        );
    }
    let effort = options.effort().until(progress.deadline());
    progress.begin("programs and their clones", effort.steps());
    let (sampled, done) = sample(cells.len(), &effort, 11, progress, |cell, _| {
        let (index, way) = cells[cell];
        visit(&subjects[index], way)
    });
    for (&(index, way), series) in cells.iter().zip(&sampled.cells) {
        let subject = &subjects[index];
        for series in series {
            let sealed = subject.template.as_ref().map_or(0, |template| template.sealed);
            let chosen = [("measure", json!(series.measure.name())), ("program", json!(subject.program.name()))];
            let observed = [("sealed_bytes", json!(sealed))];
            results.keep(way.name(), chosen, observed, series.measure.unit(), series, sampled.ended)?;
        }
    }
    done
}

fn prepare(
    program: Program,
    flashfork: &Path,
    place: &Path,
    guard: &mut Guard,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<Option<Subject>, BenchError> {
    let runs = Runs::new(program, flashfork, place)?;
    if let Some(why) = lacks(&runs, program) {
        results.leave_out(program.name(), why, progress);
        return Ok(None);
    }
    if program.flags().is_some() {
        return Ok(Some(Subject { program, runs, template: None }));
    }
    let template = match Template::warm(&runs, program, guard)? {
        Ok(template) => Some(template),
        Err(why) => {
            results.leave_out(format!("clones of {}", program.name()), why, progress);
            None
        }
    };
    Ok(Some(Subject { program, runs, template }))
}

fn visit(subject: &Subject, way: Way) -> Result<Visit<Measure>, BenchError> {
    pause();
    if way == Way::Busy {
        let begin = Instant::now();
        for _ in 0..IN_A_ROW {
            subject.runs.once(way)?;
        }
        return Ok(vec![(Measure::Whole, vec![begin.elapsed().as_secs_f64() * 1e6 / IN_A_ROW as f64])]);
    }
    let template = subject.template.as_ref().filter(|_| way == Way::Clone);
    let before = template.map(Template::faults_of_clones).transpose()?;
    let taken = subject.runs.once(way)?;
    let mut visit = vec![(Measure::Whole, vec![taken.whole]), (Measure::Faults, vec![taken.faults])];
    visit.extend(taken.line.map(|line| (Measure::Line, vec![line])));
    if let (Some(template), Some(before)) = (template, before) {
        let end = Instant::now() + PATIENCE;
        let mut now = template.faults_of_clones()?;
        while now == before {
            if Instant::now() > end {
                let program = subject.program.name();
                return Err(BenchError::Unable(format!("a clone of {program} has not ended after it said so")));
            }
            std::thread::sleep(Duration::from_millis(1));
            now = template.faults_of_clones()?;
        }
        visit.push((Measure::CloneFaults, vec![now - before]));
    }
    Ok(visit)
}
