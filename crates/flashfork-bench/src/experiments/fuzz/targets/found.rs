//! The records of `bench fuzz --targets`.

use serde_json::json;

use super::super::EXPERIMENT;
use super::super::afl_stats::AflStats;
use super::target::Target;
use super::way::Way;
use flashfork_measure::BenchError;
use flashfork_measure::record::{Document, Record};

const RATE: &str = "executions of a target";
const SINGLE: &str = "one input of a target";

/// A target, with or without AddressSanitizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Build {
    pub target: Target,
    pub sanitized: bool,
}

/// One way's campaign in one slice of time.
#[derive(Debug)]
pub(super) struct Slice {
    pub way: Way,
    pub afl: AflStats,
}

/// What one input takes, in microseconds, the mean over many.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Times {
    /// In one process.
    pub bare: f64,
    /// In a fork of its own.
    pub forked: f64,
    /// In a round that is taken back.
    pub looped: f64,
}

impl Times {
    const NAMES: [&str; 3] = ["in one process", "in a fork", "in a round on rollback"];
}

impl Build {
    /// Every build, in table order.
    pub fn all() -> impl Iterator<Item = Build> {
        let targets = [Target::Libpng, Target::Libxml2, Target::Sqlite, Target::Cjson];
        targets.into_iter().flat_map(|target| [false, true].map(|sanitized| Build { target, sanitized }))
    }

    /// What people and directories call it.
    pub fn name(self) -> String {
        format!("{}{}", self.target.name(), if self.sanitized { "-asan" } else { "" })
    }

    fn chosen(self, measure: &str) -> [(&'static str, serde_json::Value); 3] {
        [("measure", json!(measure)), ("target", json!(self.target.name())), ("sanitizer", json!(self.sanitizer()))]
    }

    fn sanitizer(self) -> &'static str {
        if self.sanitized { "address" } else { "none" }
    }

    /// The record of a way's executions per second, slice by slice; `None` when there is no slice.
    pub fn rates(self, way: Way, cpu: usize, slices: &[Slice]) -> Result<Option<Record>, BenchError> {
        let afl: Vec<&AflStats> = slices.iter().filter(|slice| slice.way == way).map(|slice| &slice.afl).collect();
        if afl.is_empty() {
            return Ok(None);
        }
        let rates = afl.iter().map(|afl| afl.per_second).collect();
        let record = Record::new(EXPERIMENT, way.name(), self.chosen(RATE), "1/s", rates)?;
        Ok(Some(record.beside([("cpu", json!(cpu)), ("afl", json!(afl))])))
    }

    /// The records of what one input takes.
    pub fn times(self, times: Times) -> Result<Vec<Record>, BenchError> {
        let all = [times.bare, times.forked, times.looped];
        let record = |(name, time)| Record::new(EXPERIMENT, name, self.chosen(SINGLE), "us", vec![time]);
        Times::NAMES.into_iter().zip(all).map(record).collect()
    }

    /// The median rate of a way, and AFL's accounts.
    pub fn found(self, document: &Document, way: Way) -> Option<(f64, Vec<AflStats>)> {
        let record = document.find(EXPERIMENT, way.name(), &self.chosen(RATE))?;
        Some((record.p50, serde_json::from_value(record.observed.get("afl")?.clone()).ok()?))
    }

    /// What one input takes.
    pub fn found_times(self, document: &Document) -> Option<Times> {
        let time = |name| Some(document.find(EXPERIMENT, name, &self.chosen(SINGLE))?.p50);
        let [bare, forked, looped] = Times::NAMES.map(time);
        Some(Times { bare: bare?, forked: forked?, looped: looped? })
    }
}

/// Whether the document is one of targets.
pub(super) fn is_of_targets(document: &Document) -> bool {
    let of_target = |record: &Record| record.experiment == EXPERIMENT && record.chosen.contains_key("target");
    document.records.iter().any(of_target)
}
