//! Benchmark records: the host card, and for every configuration its parameters, summary and every sample.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::BenchError;
use crate::host::HostCard;
use crate::sampling::{Ended, Series};
use crate::stats::{Rounds, Summary};

/// The schema this version writes and reads.
pub const SCHEMA: &str = "flashfork.bench/1";

/// What distinguishes one record from the others of its experiment: size, parent state, CPU and so on.
pub type Params = BTreeMap<String, Value>;

/// All records of one run, with the machine they were taken on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The machine.
    pub host: HostCard,
    /// The records.
    pub records: Vec<Record>,
    /// Cells that could not be measured, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// A cell that could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The experiment.
    pub experiment: String,
    /// Which cell, in words: "odf, 1 GB".
    pub cell: String,
    /// Why, in one line.
    pub reason: String,
}

/// The samples of one configuration and their summary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The experiment, for example `fork`.
    pub experiment: String,
    /// The method measured, for example `seal`.
    pub method: String,
    /// Everything else that distinguishes this record.
    pub params: Params,
    /// Unit of the samples: `us`, `s`, `s/GB`, `bytes`, `1/s`, `count` and the like.
    pub unit: String,
    /// Number of samples.
    pub n: usize,
    /// Smallest sample.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90 % quantile.
    pub p90: f64,
    /// 99 % quantile.
    pub p99: f64,
    /// Largest sample.
    pub max: f64,
    /// Every sample, in the order it was taken.
    pub samples: Vec<f64>,
}

impl Record {
    /// A record of `samples`. Fails when there are none, or one is not a finite number.
    pub fn new(
        experiment: &str,
        method: &str,
        params: Params,
        unit: &str,
        samples: Vec<f64>,
    ) -> Result<Self, BenchError> {
        let Some(Summary { n, min, p50, p90, p99, max, .. }) = Summary::of(&samples) else {
            return Err(BenchError::Unable(format!(
                "{experiment}, method {method}: no usable samples ({} taken)",
                samples.len()
            )));
        };
        let (experiment, method, unit) = (experiment.to_owned(), method.to_owned(), unit.to_owned());
        Ok(Self { experiment, method, params, unit, n, min, p50, p90, p99, max, samples })
    }

    /// Experiment and method, for messages.
    pub fn label(&self) -> String {
        let size = self.params.get("size").and_then(Value::as_u64);
        let measure = self.params.get("measure").and_then(Value::as_str);
        let size = size.map_or(String::new(), |size| format!(", {}", crate::size::show(size)));
        let measure = measure.map_or(String::new(), |measure| format!(", {measure}"));
        format!("{} {}{size}{measure}", self.experiment, self.method)
    }

    /// The samples by round where the record says how many each round had, else each for itself.
    pub fn rounds(&self) -> Rounds {
        let counts: Option<Vec<usize>> = self.params.get("samples_per_round").and_then(|value| {
            value.as_array()?.iter().map(|count| count.as_u64().map(|count| count as usize)).collect()
        });
        match counts
            .filter(|counts| counts.iter().fold(0_usize, |sum, &count| sum.saturating_add(count)) == self.samples.len())
        {
            None => Rounds::independent(&self.samples),
            Some(counts) => {
                let mut rest = self.samples.as_slice();
                let mut next = |count| {
                    let (round, after) = rest.split_at(count);
                    rest = after;
                    round.to_vec()
                };
                Rounds(counts.into_iter().map(&mut next).collect())
            }
        }
    }

    /// What contradicts the samples in this record's summary, if anything.
    fn contradiction(&self) -> Option<String> {
        let fresh = Self::new(&self.experiment, &self.method, self.params.clone(), &self.unit, self.samples.clone());
        match fresh {
            Ok(fresh) if fresh == *self => None,
            Ok(_) => {
                Some(format!("the summary of {} {} does not follow from its samples", self.experiment, self.method))
            }
            Err(error) => Some(error.to_string()),
        }
    }
}

/// A record of what [`crate::sampling`] took, with how many samples each round had, the warm-up and why it ended.
pub(crate) fn of_series<'a, M>(
    experiment: &str,
    method: &str,
    params: impl IntoIterator<Item = (&'a str, Value)>,
    unit: &str,
    series: &Series<M>,
    ended: Ended,
) -> Result<Record, BenchError> {
    let per_round: Vec<usize> = series.rounds.0.iter().map(Vec::len).collect();
    let kept = [
        ("samples_per_round", Value::from(per_round)),
        ("warm_up", Value::from(series.warm_up.clone())),
        ("ended", Value::from(ended.name())),
    ];
    let params = params.into_iter().chain(kept).map(|(name, value)| (name.to_owned(), value)).collect();
    Record::new(experiment, method, params, unit, series.rounds.flat())
}

impl Document {
    /// A document of `records` taken on `host`.
    pub fn new(host: HostCard, records: Vec<Record>) -> Self {
        Self { schema: SCHEMA.to_owned(), host, records, missing: Vec::new() }
    }

    /// The record of `method` in `experiment` with these parameters.
    pub fn find(&self, experiment: &str, method: &str, wanted: &[(&str, Value)]) -> Option<&Record> {
        self.records.iter().find(|record| {
            record.experiment == experiment
                && record.method == method
                && wanted.iter().all(|(name, value)| record.params.get(*name) == Some(value))
        })
    }

    /// Writes the document to `path` as one line of JSON.
    pub fn write(&self, path: &Path) -> Result<(), BenchError> {
        let failed = |error: std::io::Error| BenchError::system(format!("write {}", path.display()), error);
        File::create(path).and_then(|mut file| self.write_to(&mut file)).map_err(failed)
    }

    /// The same into something that is open.
    pub fn write_to(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut out = BufWriter::new(out);
        serde_json::to_writer(&mut out, self)?;
        writeln!(out)?;
        out.flush()
    }

    /// Reads a document written by [`Document::write`]; refuses other schemas and summaries that contradict their samples.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let file = File::open(path).map_err(|error| BenchError::system(format!("read {}", path.display()), error))?;
        let wrong = |why: String| BenchError::Record { path: path.to_owned(), why };
        let value: Value = serde_json::from_reader(BufReader::new(file))
            .map_err(|error| wrong(format!("no records, which experiments write with --records: {error}")))?;
        match value.get("schema").and_then(Value::as_str) {
            Some(SCHEMA) => {}
            Some(other) => {
                return Err(wrong(format!("its schema is '{other}', this program reads '{SCHEMA}'")));
            }
            None => {
                return Err(wrong(format!("it names no schema, this program reads '{SCHEMA}'")));
            }
        }
        let document: Self = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        match document.records.iter().find_map(Record::contradiction) {
            Some(why) => Err(wrong(why)),
            None => Ok(document),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record() -> Record {
        let params = Params::from([("size".to_owned(), json!(1u64 << 30)), ("parent".to_owned(), json!("idle"))]);
        Record::new("fork", "seal", params, "us", vec![22.314, 21.0, 25.125, 1.0 / 3.0]).unwrap()
    }

    #[test]
    fn a_document_survives_the_file() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let document = Document::new(HostCard::read().unwrap(), vec![record()]);
        document.write(&path).unwrap();
        assert_eq!(Document::read(&path).unwrap(), document);
    }

    #[test]
    fn the_json_has_the_documented_shape() {
        let value = serde_json::to_value(Document::new(HostCard::read().unwrap(), vec![record()])).unwrap();
        assert_eq!(value["schema"], "flashfork.bench/1");
        assert!(value["host"]["kernel"].is_string());
        let record = value["records"][0].as_object().unwrap();
        let keys: Vec<&str> = record.keys().map(String::as_str).collect();
        let mut expected =
            ["experiment", "method", "params", "unit", "n", "min", "p50", "p90", "p99", "max", "samples"];
        expected.sort_unstable();
        assert_eq!(keys, expected);
        assert_eq!((record["n"].as_u64(), record["params"]["size"].as_u64()), (Some(4), Some(1 << 30)));
    }

    #[test]
    fn refuses_other_schemas_and_false_summaries() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let mut document = Document::new(HostCard::read().unwrap(), vec![record()]);
        document.records[0].p50 += 1.0;
        document.write(&path).unwrap();
        assert!(Document::read(&path).unwrap_err().to_string().contains("does not follow"));
        document.records[0] = record();
        document.schema = "flashfork.bench/2".into();
        document.write(&path).unwrap();
        assert!(Document::read(&path).unwrap_err().to_string().contains("flashfork.bench/2"));
        std::fs::write(&path, "[1]").unwrap();
        assert!(Document::read(&path).unwrap_err().to_string().contains("no schema"));
    }

    #[test]
    fn samples_go_back_into_their_rounds() {
        let mut record = record();
        assert_eq!(record.rounds(), Rounds::independent(&record.samples));
        record.params.insert("samples_per_round".to_owned(), json!([3, 0, 1]));
        assert_eq!(record.rounds().0, [vec![22.314, 21.0, 25.125], vec![], vec![1.0 / 3.0]]);
        record.params.insert("samples_per_round".to_owned(), json!([3]));
        assert_eq!(record.rounds(), Rounds::independent(&record.samples), "counts that don't add up are no counts");
        record.params.insert("samples_per_round".to_owned(), json!([u64::MAX, 5]));
        assert_eq!(record.rounds(), Rounds::independent(&record.samples), "nor are those nobody can add");
    }

    #[test]
    fn no_samples_no_record() {
        assert!(Record::new("fork", "seal", Params::new(), "us", vec![]).is_err());
        assert!(Record::new("fork", "seal", Params::new(), "us", vec![f64::NAN]).is_err());
    }
}
