//! The records of `bench unit-test`: what tells them apart, and how they are found again.

use serde_json::{Value, json};

use super::EXPERIMENT;
use super::case::Case;
use super::cycle::Phases;
use super::plan::Plan;
use super::subject::Ready;
use crate::subjects::Method;
use crate::subjects::database::Image;
use crate::subjects::engine::Sealed;
use flashfork_measure::BenchError;
use flashfork_measure::experiment::Results;
use flashfork_measure::record::{Document, Record};
use flashfork_measure::stats::{Ratio, Rounds, ratio_of_medians};

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

    pub(super) fn of(self, phases: &Phases) -> f64 {
        match self {
            Self::Clone => phases.clone,
            Self::Test => phases.test,
            Self::Reap => phases.reap,
            Self::Whole => phases.whole,
        }
    }
}

/// What each harness does once, in records.
pub(super) const INITIALISE: &str = "initialise";
pub(super) const HUGE_HEAP: &str = "heap on huge pages before sealing";
pub(super) const SEAL: &str = "seal";
pub(super) const SEALED: &str = "sealed";
pub(super) const SEALED_HUGE: &str = "sealed on 2 MB pages";

/// What all records of a run share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    plan: &'a Plan,
    image: &'a Image,
}

impl<'a> Run<'a> {
    pub(super) fn new(plan: &'a Plan, image: &'a Image) -> Self {
        Self { plan, image }
    }

    /// Keeps how long the image took to build, when it was built.
    pub(super) fn keep_image(self, results: &mut Results) -> Result<(), BenchError> {
        let Some(took) = self.image.built_in else { return Ok(()) };
        self.keep_once("image", "build image", "s", vec![took.as_secs_f64()], results)
    }

    /// Keeps what the harnesses of `method` did once.
    pub(super) fn keep_preparation(
        self,
        method: Method,
        ready: &[&Ready],
        results: &mut Results,
    ) -> Result<(), BenchError> {
        let of = |figure: fn(&Ready) -> f64| ready.iter().copied().map(figure).collect::<Vec<_>>();
        let sealed = |figure: fn(&Sealed) -> f64| -> Vec<f64> {
            ready.iter().filter_map(|ready| ready.sealed.as_ref().map(figure)).collect()
        };
        let name = method.name();
        self.keep_once(name, INITIALISE, "s", of(|ready| ready.initialise), results)?;
        self.keep_once(name, HUGE_HEAP, "fraction", of(|ready| ready.pages.huge_fraction()), results)?;
        if method == Method::Seal {
            self.keep_once(name, SEAL, "s", sealed(|sealed| sealed.seconds), results)?;
            self.keep_once(name, SEALED, "bytes", sealed(|sealed| sealed.bytes as f64), results)?;
            self.keep_once(name, SEALED_HUGE, "fraction", sealed(Sealed::huge_fraction), results)?;
        }
        Ok(())
    }

    fn keep_once(
        self,
        method: &str,
        phase: &str,
        unit: &str,
        samples: Vec<f64>,
        results: &mut Results,
    ) -> Result<(), BenchError> {
        let record = Record::new(EXPERIMENT, method, self.chosen(phase), unit, samples)?;
        results.records.push(record.beside(self.observed()));
        Ok(())
    }

    /// What is chosen for all records of a phase.
    pub(super) fn chosen(self, phase: &str) -> [(&'static str, Value); 3] {
        [("phase", json!(phase)), ("database_bytes", json!(self.image.bytes)), ("jobs", json!(self.plan.jobs))]
    }

    /// What is observed beside all records.
    pub(super) fn observed(self) -> [(&'static str, Value); 1] {
        let mut cpus = self.plan.cpus.clone();
        cpus.sort_unstable();
        cpus.dedup();
        [("cpus", json!(cpus))]
    }
}

/// The record of what each harness of `method` did once.
pub(super) fn once<'a>(document: &'a Document, method: Method, phase: &str) -> Option<&'a Record> {
    document.find(EXPERIMENT, method.name(), &[("phase", json!(phase))])
}

/// The record of one phase of one test.
pub(super) fn find(document: &Document, method: Method, case: Case, phase: Phase) -> Option<&Record> {
    document.find(EXPERIMENT, method.name(), &[("phase", json!(phase.name())), ("test", json!(case.name()))])
}

/// The methods that were measured, in table order.
pub(super) fn methods(document: &Document) -> Vec<Method> {
    Method::ALL.into_iter().filter(|&method| once(document, method, INITIALISE).is_some()).collect()
}

/// How many times as long as `other` the phase of `method` took, over the tests `cases`.
pub(super) fn ratio(document: &Document, method: Method, other: Method, cases: &[Case], phase: Phase) -> Option<Ratio> {
    ratio_of_medians(&pooled(document, method, cases, phase), &pooled(document, other, cases, phase))
}

/// The samples of several tests, those of the same round together.
pub(super) fn pooled(document: &Document, method: Method, cases: &[Case], phase: Phase) -> Rounds {
    let mut pooled = Rounds::default();
    for record in cases.iter().filter_map(|&case| find(document, method, case, phase)) {
        for (round, samples) in record.rounds().0.into_iter().enumerate() {
            match pooled.0.get_mut(round) {
                Some(pool) => pool.extend(samples),
                None => pooled.push(samples),
            }
        }
    }
    pooled
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashfork_measure::host::HostCard;

    fn record(method: Method, case: Case, phase: Phase, rounds: Vec<Vec<f64>>) -> Record {
        let chosen = [("phase", json!(phase.name())), ("test", json!(case.name()))];
        Record::of_rounds(EXPERIMENT, method.name(), chosen, "us", &Rounds(rounds)).unwrap()
    }

    fn document(records: Vec<Record>) -> Document {
        Document::new(HostCard::read().unwrap(), records)
    }

    #[test]
    fn samples_of_a_round_stay_together_when_tests_are_pooled() {
        let rounds = vec![vec![1.0; 2], vec![2.0; 2]];
        let all = Case::ALL.map(|case| record(Method::Seal, case, Phase::Clone, rounds.clone()));
        let document = document(all.to_vec());
        let of = |method| pooled(&document, method, &Case::ALL, Phase::Clone).0;
        assert_eq!(of(Method::Seal), [vec![1.0; 6], vec![2.0; 6]]);
        assert!(of(Method::Fork4k).is_empty());
    }

    #[test]
    fn a_ratio_compares_the_same_phase() {
        let of = |method, phase, figure| record(method, Case::Select, phase, vec![vec![figure]; 3]);
        let document = document(vec![
            of(Method::Fork4k, Phase::Clone, 600.0),
            of(Method::Seal, Phase::Clone, 6.0),
            of(Method::Fork4k, Phase::Test, 2.0),
            of(Method::Seal, Phase::Test, 2.0),
        ]);
        let of = |phase| ratio(&document, Method::Fork4k, Method::Seal, &[Case::Select], phase).unwrap().value;
        assert_eq!((of(Phase::Clone), of(Phase::Test)), (100.0, 1.0));
        assert!(ratio(&document, Method::Fork4k, Method::ForkThp, &[Case::Select], Phase::Clone).is_none());
    }
}
