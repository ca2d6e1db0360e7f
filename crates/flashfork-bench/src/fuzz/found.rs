//! What was measured, on its way to records and tables.

use serde_json::{Value, json};

use super::EXPERIMENT;
use super::afl_stats::AflStats;
use super::campaign::{Campaign, Window};
use crate::BenchError;
use crate::fork::Method;
use crate::record::Record;
use crate::stats::{Ratio, Rounds, ratio_of_medians};

/// One slice of one method's time.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    pub method: Method,
    /// Counted from 0; the same number, the same random seed.
    pub slice: usize,
    /// AFL's random seed.
    pub seed: u64,
    pub campaign: Campaign,
}

/// A method's coverage after as many executions as the slowest method managed in a slice.
#[derive(Debug, Clone)]
pub(super) struct EqualWork {
    pub method: Method,
    /// Executions; AFL stops a little after the number it is given.
    pub executions: u64,
    pub afl: AflStats,
}

/// Everything a run measured.
#[derive(Debug)]
pub(super) struct Results {
    /// Bytes of the database.
    pub database_bytes: u64,
    /// The CPU AFL and the fuzzed program shared.
    pub cpu: usize,
    /// In the order they were measured.
    pub slices: Vec<Slice>,
    /// One per method.
    pub equal: Vec<EqualWork>,
    /// Methods that were left out and why.
    pub notes: Vec<String>,
}

impl Results {
    pub(super) fn new(database_bytes: u64, cpu: usize) -> Self {
        Self { database_bytes, cpu, slices: Vec::new(), equal: Vec::new(), notes: Vec::new() }
    }

    /// The methods that were measured, in table order.
    pub(super) fn methods(&self) -> impl Iterator<Item = Method> {
        Method::STOCK.into_iter().filter(|&method| self.slices.iter().any(|slice| slice.method == method))
    }

    /// The slices of `method`, in order.
    pub(super) fn of(&self, method: Method) -> impl Iterator<Item = &Campaign> {
        self.slices.iter().filter(move |slice| slice.method == method).map(|slice| &slice.campaign)
    }

    /// Executions per second in windows of a second, slice by slice.
    pub(super) fn rates(&self, method: Method) -> Rounds {
        Rounds(self.of(method).map(rates).collect())
    }

    /// Executions per second over all slices: the paper's average.
    pub(super) fn mean_rate(&self, method: Method) -> f64 {
        let (executions, seconds) = self
            .of(method)
            .fold((0, 0.0), |(count, time), campaign| (count + campaign.executions, time + campaign.seconds));
        executions as f64 / seconds
    }

    /// How many times the executions per second of `other` those of `method` are.
    pub(super) fn ratio(&self, method: Method, other: Method) -> Option<Ratio> {
        ratio_of_medians(&self.rates(method), &self.rates(other))
    }

    /// The time series of every slice, and per method the means, the start-up times and the coverage for equal work.
    pub(super) fn records(&self) -> Result<Vec<Record>, BenchError> {
        let mut records = self.slices.iter().map(|slice| self.series(slice)).collect::<Result<Vec<_>, _>>()?;
        for method in self.methods() {
            let name = method.name();
            let means = self.of(method).map(|campaign| campaign.executions as f64 / campaign.seconds).collect();
            records.push(self.record(name, [("measure", json!("mean rate of each slice"))], [], "1/s", means)?);
            let startups = self.of(method).map(|campaign| campaign.startup).collect();
            records.push(self.record(name, [("measure", json!("start-up"))], [], "s", startups)?);
        }
        for equal in &self.equal {
            let chosen = [("measure", json!("edges after equal work"))];
            let observed = [("executions", json!(equal.executions)), ("afl", json!(equal.afl))];
            records.push(self.record(equal.method.name(), chosen, observed, "edges", vec![equal.afl.edges as f64])?);
        }
        Ok(records)
    }

    fn series(&self, slice: &Slice) -> Result<Record, BenchError> {
        let campaign = &slice.campaign;
        let ends: Vec<f64> = campaign.windows.iter().map(|window| window.end).collect();
        let chosen =
            [("measure", json!("rate over time")), ("slice", json!(slice.slice)), ("afl_seed", json!(slice.seed))];
        let observed = [
            ("t_s", json!(ends)),
            ("executions", json!(campaign.executions)),
            ("seconds", json!(campaign.seconds)),
            ("startup_s", json!(campaign.startup)),
            ("afl", json!(campaign.afl)),
            ("heap_huge_fraction", json!(campaign.pages.huge_fraction())),
            ("shim", json!(campaign.shim)),
        ];
        self.record(slice.method.name(), chosen, observed, "1/s", rates(campaign))
    }

    fn record<const N: usize, const M: usize>(
        &self,
        method: &str,
        chosen: [(&str, Value); N],
        observed: [(&str, Value); M],
        unit: &str,
        samples: Vec<f64>,
    ) -> Result<Record, BenchError> {
        let chosen = chosen.into_iter().chain([("database_bytes", json!(self.database_bytes))]);
        let record = Record::new(EXPERIMENT, method, chosen, unit, samples)?;
        Ok(record.beside(observed).beside([("cpu", json!(self.cpu))]))
    }
}

fn rates(campaign: &Campaign) -> Vec<f64> {
    campaign.windows.iter().map(|window: &Window| window.rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::HeapPages;

    fn slice(method: Method, slice: usize, rate: f64, seconds: f64) -> Slice {
        let afl = AflStats {
            version: "++4.04c".into(),
            executions: 1,
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
        Slice { method, slice, seed: 9, campaign }
    }

    fn results() -> Results {
        let mut results = Results::new(1 << 30, 1);
        for number in 0..2 {
            results.slices.push(slice(Method::Fork4k, number, 49.5, 10.0));
            results.slices.push(slice(Method::Seal, number, 999.5, 10.0));
        }
        results.slices.push(slice(Method::Seal, 2, 100.0, 20.0));
        results
    }

    #[test]
    fn ratios_are_of_medians_and_means_weigh_time() {
        let results = results();
        assert_eq!(results.ratio(Method::Seal, Method::Fork4k).unwrap().value, 999.5 / 50.0);
        assert_eq!(results.mean_rate(Method::Seal), (2.0 * 9995.0 + 2000.0) / 40.0);
        assert!(results.ratio(Method::Seal, Method::ForkThp).is_none());
        assert_eq!(results.methods().collect::<Vec<_>>(), [Method::Fork4k, Method::Seal]);
    }

    #[test]
    fn every_slice_keeps_its_time_series() {
        let records = results().records().unwrap();
        let series: Vec<_> = records.iter().filter(|record| record.chosen["measure"] == "rate over time").collect();
        assert_eq!(series.len(), 5);
        assert!(series.iter().all(|record| record.observed["t_s"].as_array().unwrap().len() == record.n));
        assert_eq!(series[0].observed["afl"]["edges"], 2);
    }
}
