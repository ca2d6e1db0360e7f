//! The records of `bench fuzz`: what tells them apart, and how they are found again.

use serde::Deserialize;
use serde_json::{Value, json};

use super::EXPERIMENT;
use super::afl_stats::AflStats;
use super::campaign::Campaign;
use super::shim::ShimReport;
use crate::subjects::Method;
use flashfork_measure::BenchError;
use flashfork_measure::record::{Document, Record};
use flashfork_measure::stats::{Ratio, Rounds, ratio_of_medians};

const RATE: &str = "rate over time";
const MEAN: &str = "mean rate of each slice";
const START_UP: &str = "start-up";
const EQUAL: &str = "edges after equal work";

/// What all records of a run share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// Bytes of the database.
    pub database_bytes: u64,
    /// The CPU AFL and the fuzzed program share.
    pub cpu: usize,
}

impl Run {
    /// The record of one slice of a method's time: executions per second in windows of a second.
    pub(super) fn slice(
        self,
        method: Method,
        slice: usize,
        seed: u64,
        campaign: &Campaign,
    ) -> Result<Record, BenchError> {
        let ends: Vec<f64> = campaign.windows.iter().map(|window| window.end).collect();
        let rates = campaign.windows.iter().map(|window| window.rate).collect();
        let record = self.record(method, RATE, [("slice", json!(slice)), ("afl_seed", json!(seed))], "1/s", rates)?;
        Ok(record.beside([
            ("t_s", json!(ends)),
            ("executions", json!(campaign.executions)),
            ("seconds", json!(campaign.seconds)),
            ("startup_s", json!(campaign.startup)),
            ("afl", json!(campaign.afl)),
            ("heap_huge_fraction", json!(campaign.pages.huge_fraction())),
            ("shim", json!(campaign.shim)),
        ]))
    }

    /// Of a method's slices: the mean rates and the start-up times.
    pub(super) fn of_slices(self, method: Method, slices: &[Slice]) -> Result<[Record; 2], BenchError> {
        let means = slices.iter().map(|slice| slice.executions as f64 / slice.seconds).collect();
        let startups = slices.iter().map(|slice| slice.startup_s).collect();
        Ok([self.record(method, MEAN, [], "1/s", means)?, self.record(method, START_UP, [], "s", startups)?])
    }

    /// The record of a method's coverage after as many executions as the slowest method managed in a slice.
    pub(super) fn equal(self, method: Method, afl: &AflStats) -> Result<Record, BenchError> {
        let record = self.record(method, EQUAL, [], "edges", vec![afl.edges as f64])?;
        Ok(record.beside([("executions", json!(afl.executions)), ("afl", json!(afl))]))
    }

    fn record<const N: usize>(
        self,
        method: Method,
        measure: &str,
        chosen: [(&str, Value); N],
        unit: &str,
        samples: Vec<f64>,
    ) -> Result<Record, BenchError> {
        let all = [("measure", json!(measure)), ("database_bytes", json!(self.database_bytes))];
        let record = Record::new(EXPERIMENT, method.name(), all.into_iter().chain(chosen), unit, samples)?;
        Ok(record.beside([("cpu", json!(self.cpu))]))
    }
}

/// What was observed beside a slice's rates.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Slice {
    /// Executions since the first.
    pub executions: u64,
    /// Seconds since the first.
    pub seconds: f64,
    /// Seconds from AFL's start to the first execution.
    pub startup_s: f64,
    /// AFL's own account.
    pub afl: AflStats,
    /// The share of the fork server's heap on huge pages.
    pub heap_huge_fraction: f64,
    /// What the shim did, where there was one.
    pub shim: Option<ShimReport>,
}

/// The methods that were measured, in table order.
pub(super) fn methods(records: &[Record]) -> impl Iterator<Item = Method> {
    Method::STOCK.into_iter().filter(|&method| series(records, method).next().is_some())
}

/// The slices of `method`, in order.
pub(super) fn slices(records: &[Record], method: Method) -> Vec<Slice> {
    let observed = |record: &Record| serde_json::to_value(&record.observed).and_then(serde_json::from_value).ok();
    series(records, method).filter_map(observed).collect()
}

/// AFL's account of `method` after equal work.
pub(super) fn equal(document: &Document, method: Method) -> Option<AflStats> {
    let record = document.find(EXPERIMENT, method.name(), &[("measure", json!(EQUAL))])?;
    serde_json::from_value(record.observed.get("afl")?.clone()).ok()
}

/// Executions per second in windows of a second, slice by slice.
pub(super) fn rates(document: &Document, method: Method) -> Rounds {
    Rounds(series(&document.records, method).map(|record| record.samples.clone()).collect())
}

/// Executions per second over all slices: the paper's average.
pub(super) fn mean_rate(slices: &[Slice]) -> f64 {
    let executions: u64 = slices.iter().map(|slice| slice.executions).sum();
    executions as f64 / slices.iter().map(|slice| slice.seconds).sum::<f64>()
}

/// How many times the executions per second of `other` those of `method` are.
pub(super) fn ratio(document: &Document, method: Method, other: Method) -> Option<Ratio> {
    ratio_of_medians(&rates(document, method), &rates(document, other))
}

fn series(records: &[Record], method: Method) -> impl Iterator<Item = &Record> {
    records.iter().filter(move |record| {
        record.experiment == EXPERIMENT
            && record.method == method.name()
            && record.chosen.get("measure") == Some(&json!(RATE))
    })
}

#[cfg(test)]
mod tests {
    use super::super::campaign::Window;
    use super::*;
    use crate::subjects::heap::HeapPages;
    use flashfork_measure::host::HostCard;

    const RUN: Run = Run { database_bytes: 1 << 30, cpu: 1 };

    fn slice(method: Method, slice: usize, rate: f64, seconds: f64) -> Record {
        let afl = AflStats {
            version: "++4.04c".into(),
            executions: 1,
            per_second: 1.0,
            edges: 2,
            edges_of: 3,
            corpus: 4,
            coverage_percent: 5.0,
            stability_percent: 100.0,
            crashes: 0,
            hangs: 0,
        };
        let campaign = Campaign {
            startup: 1.0,
            windows: vec![Window { end: 1.0, rate }, Window { end: 2.0, rate: rate + 1.0 }],
            executions: (rate * seconds) as u64,
            seconds,
            afl,
            pages: HeapPages { anonymous: 1, huge: 0 },
            shim: None,
        };
        RUN.slice(method, slice, 9, &campaign).unwrap()
    }

    fn document() -> Document {
        let mut records = Vec::new();
        for number in 0..2 {
            records.push(slice(Method::Fork4k, number, 49.6, 10.0));
            records.push(slice(Method::Seal, number, 990.0, 10.0));
        }
        records.push(slice(Method::Seal, 2, 100.0, 20.0));
        Document::new(HostCard::read().unwrap(), records)
    }

    #[test]
    fn ratios_are_of_medians_and_means_weigh_time() {
        let document = document();
        assert_eq!(ratio(&document, Method::Seal, Method::Fork4k).unwrap().value, 990.0 / 50.1);
        assert_eq!(mean_rate(&slices(&document.records, Method::Seal)), (2.0 * 9900.0 + 2000.0) / 40.0);
        assert!(ratio(&document, Method::Seal, Method::ForkThp).is_none());
        assert_eq!(methods(&document.records).collect::<Vec<_>>(), [Method::Fork4k, Method::Seal]);
    }

    #[test]
    fn every_slice_keeps_its_time_series() {
        let document = document();
        assert!(document.records.iter().all(|record| record.observed["t_s"].as_array().unwrap().len() == record.n));
        assert_eq!(slices(&document.records, Method::Seal).len(), 3);
        assert_eq!(slices(&document.records, Method::Fork4k)[0].afl.edges, 2);
    }
}
