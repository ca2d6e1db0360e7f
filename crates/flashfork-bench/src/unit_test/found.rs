//! What was measured, on its way to records and tables.

use serde_json::{Value, json};

use super::EXPERIMENT;
use super::case::Case;
use super::cycle::Phases;
use super::subject::Ready;
use crate::BenchError;
use crate::fork::Method;
use crate::record::Record;
use crate::stats::{Ratio, Rounds, ratio_of_medians};

/// A part of a test's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The fork call.
    Clone,
    /// The test in the clone.
    Test,
    /// Ending and reaping the clone.
    Reap,
    /// All of it.
    Whole,
}

impl Phase {
    pub(super) const ALL: [Self; 4] = [Self::Clone, Self::Test, Self::Reap, Self::Whole];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::Test => "test",
            Self::Reap => "reap",
            Self::Whole => "whole",
        }
    }

    fn of(self, phases: &Phases) -> f64 {
        match self {
            Self::Clone => phases.clone,
            Self::Test => phases.test,
            Self::Reap => phases.reap,
            Self::Whole => phases.whole,
        }
    }
}

/// One harness process.
#[derive(Debug, Clone)]
pub(super) struct Harness {
    pub method: Method,
    pub cpu: usize,
    pub ready: Ready,
}

/// What one method's harnesses measured for one test, round by round.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    method: Method,
    case: Case,
    rounds: Vec<Vec<Phases>>,
}

/// Everything a run measured.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// Bytes of the database.
    pub database_bytes: u64,
    /// Harnesses per method.
    pub jobs: usize,
    /// The harnesses.
    pub harnesses: Vec<Harness>,
    /// Seconds to build the image, when it was built.
    pub built_in: Option<f64>,
    /// Methods that were left out and why.
    pub notes: Vec<String>,
    pub(super) cells: Vec<Cell>,
}

impl Results {
    /// The methods that were measured, in table order.
    pub(super) fn methods(&self) -> Vec<Method> {
        let measured = |method: &Method| self.harnesses.iter().any(|harness| harness.method == *method);
        Method::ALL.into_iter().filter(measured).collect()
    }

    /// Adds what one round brought.
    pub(super) fn keep(&mut self, method: Method, case: Case, phases: Vec<Phases>) {
        match self.cells.iter_mut().find(|cell| (cell.method, cell.case) == (method, case)) {
            Some(cell) => cell.rounds.push(phases),
            None => self.cells.push(Cell { method, case, rounds: vec![phases] }),
        }
    }

    /// The samples of one phase of one test, in microseconds; empty when it wasn't measured.
    pub(super) fn rounds(&self, method: Method, case: Case, phase: Phase) -> Rounds {
        let cell = self.cells.iter().find(|cell| (cell.method, cell.case) == (method, case));
        let rounds = cell.into_iter().flat_map(|cell| &cell.rounds);
        Rounds(rounds.map(|round| round.iter().map(|phases| phase.of(phases)).collect()).collect())
    }

    /// How many times as long as `other` the phase of `method` took, over the tests `cases`.
    pub(super) fn ratio(&self, method: Method, other: Method, cases: &[Case], phase: Phase) -> Option<Ratio> {
        ratio_of_medians(&self.pooled(method, cases, phase), &self.pooled(other, cases, phase))
    }

    /// The samples of several tests, those of the same round together.
    pub(super) fn pooled(&self, method: Method, cases: &[Case], phase: Phase) -> Rounds {
        let mut pooled = Rounds::default();
        for case in cases {
            for (round, samples) in self.rounds(method, *case, phase).0.into_iter().enumerate() {
                match pooled.0.get_mut(round) {
                    Some(pool) => pool.extend(samples),
                    None => pooled.push(samples),
                }
            }
        }
        pooled
    }

    /// One record per method, test and phase, and per method those of its preparation.
    pub(super) fn records(&self) -> Result<Vec<Record>, BenchError> {
        let mut records = Vec::new();
        if let Some(seconds) = self.built_in {
            records.push(self.once("image", "build image", "s", vec![seconds])?);
        }
        for method in self.methods() {
            self.preparation(method, &mut records)?;
            for case in Case::ALL {
                for phase in Phase::ALL {
                    let rounds = self.rounds(method, case, phase);
                    let chosen = self.chosen(phase.name()).into_iter().chain([("test", json!(case.name()))]);
                    let record = Record::of_rounds(EXPERIMENT, method.name(), chosen, "us", &rounds)?;
                    let uncounted = [("uncounted_clones_per_round", json!(self.jobs))];
                    records.push(record.beside(uncounted).beside(self.observed()));
                }
            }
        }
        Ok(records)
    }

    fn preparation(&self, method: Method, records: &mut Vec<Record>) -> Result<(), BenchError> {
        let of = |figure: &dyn Fn(&Ready) -> Option<f64>| -> Vec<f64> {
            let own = self.harnesses.iter().filter(|harness| harness.method == method);
            own.filter_map(|harness| figure(&harness.ready)).collect()
        };
        let name = method.name();
        records.push(self.once(name, "initialise", "s", of(&|ready| Some(ready.initialise)))?);
        let huge = of(&|ready| Some(ready.pages.huge_fraction()));
        records.push(self.once(name, "heap on huge pages before sealing", "fraction", huge)?);
        if method == Method::Seal {
            let sealed = |figure: fn(&crate::engine::Sealed) -> f64| of(&|ready| ready.sealed.as_ref().map(figure));
            records.push(self.once(name, "seal", "s", sealed(|sealed| sealed.seconds))?);
            records.push(self.once(name, "sealed", "bytes", sealed(|sealed| sealed.bytes as f64))?);
            let huge = sealed(|sealed| sealed.huge_fraction());
            records.push(self.once(name, "sealed on 2 MB pages", "fraction", huge)?);
        }
        Ok(())
    }

    /// A record of what each harness did once.
    fn once(&self, method: &str, phase: &str, unit: &str, samples: Vec<f64>) -> Result<Record, BenchError> {
        let record = Record::new(EXPERIMENT, method, self.chosen(phase), unit, samples)?;
        Ok(record.beside(self.observed()))
    }

    fn chosen<'a>(&self, phase: &'a str) -> [(&'a str, Value); 3] {
        [("phase", json!(phase)), ("database_bytes", json!(self.database_bytes)), ("jobs", json!(self.jobs))]
    }

    fn observed(&self) -> [(&'static str, Value); 1] {
        let mut cpus: Vec<usize> = self.harnesses.iter().map(|harness| harness.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        [("cpus", json!(cpus))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(clone: f64) -> Phases {
        Phases { clone, test: 2.0, reap: 3.0, whole: 10.0 * clone }
    }

    #[test]
    fn samples_of_a_round_stay_together_when_tests_are_pooled() {
        let mut results = Results::default();
        for round in 1..=2 {
            for case in Case::ALL {
                results.keep(Method::Seal, case, vec![phases(f64::from(round)); 2]);
            }
        }
        let pooled = results.pooled(Method::Seal, &Case::ALL, Phase::Clone);
        assert_eq!(pooled.0, [vec![1.0; 6], vec![2.0; 6]]);
        assert_eq!(results.rounds(Method::Seal, Case::Update, Phase::Whole).flat(), [10.0, 10.0, 20.0, 20.0]);
        assert!(results.rounds(Method::Fork4k, Case::Select, Phase::Clone).0.is_empty());
    }

    #[test]
    fn a_ratio_compares_the_same_phase() {
        let mut results = Results::default();
        results.keep(Method::Fork4k, Case::Select, vec![phases(600.0); 3]);
        results.keep(Method::Seal, Case::Select, vec![phases(6.0); 3]);
        let ratio = |phase| results.ratio(Method::Fork4k, Method::Seal, &[Case::Select], phase).unwrap().value;
        assert_eq!((ratio(Phase::Clone), ratio(Phase::Test)), (100.0, 1.0));
        assert!(results.ratio(Method::Fork4k, Method::ForkThp, &[Case::Select], Phase::Clone).is_none());
    }
}
