//! Benchmark records: the host card, and for every configuration what was chosen, what was observed, summary and every
//! sample.

mod cell;
mod digits;
mod packed;

pub use cell::{sort_names, words};
pub use digits::kept;

use std::{
	collections::BTreeMap,
	fs::File,
	io::{BufRead, BufReader, BufWriter, Read, Write},
	path::Path,
};

use lzma_rust2::{LzipOptions, LzipReader, LzipWriter, LzmaOptions};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
	BenchError, OrCant, Result,
	host::HostCard,
	sampling::{Ended, Series},
	stats::{Ratio, Rounds, Summary, ratio_of_medians},
};

/// The schema this version writes and reads.
pub const SCHEMA: &str = "flashfork.bench/2";

/// How many samples each round had, among what was observed.
const SAMPLES_PER_ROUND: &str = "samples_per_round";

/// The samples of the warm-up, among what was observed.
const WARM_UP: &str = "warm_up";

/// The first bytes of what lzip has packed.
const LZIP: &[u8] = b"LZIP";

/// Values by name.
pub type Values = BTreeMap<String, Value>;

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
	/// What was decided before measuring, size and measure for example: it tells this record from the others of its
	/// experiment.
	pub chosen: Values,
	/// What was measured beside the samples or found on the host. It tells nothing apart.
	pub observed: Values,
	/// Unit of the samples: `us`, `s`, `s/GB`, `bytes`, `1/s`, `count` and the like.
	pub unit: String,
	/// Number of samples.
	pub n: usize,
	/// Smallest sample. It and the quantiles are as [`kept`], too.
	pub min: f64,
	/// Median.
	pub p50: f64,
	/// 90 % quantile.
	pub p90: f64,
	/// 99 % quantile.
	pub p99: f64,
	/// Largest sample.
	pub max: f64,
	/// Every sample, in the order it was taken, as [`kept`].
	pub samples: Vec<f64>,
}

impl Record {
	/// A record of `samples`, which are [`kept`], and of which nothing else was observed. Fails when there are none, or
	/// one is not a finite number.
	pub fn new<'a>(
		experiment: &str,
		method: &str,
		chosen: impl IntoIterator<Item = (&'a str, Value)>,
		unit: &str,
		samples: Vec<f64>,
	) -> Result<Self> {
		let samples: Vec<f64> = samples.into_iter().map(kept).collect();
		let Some(Summary { n, min, p50, p90, p99, max, .. }) = Summary::of(&samples) else {
			return Err(crate::unable!("{experiment}, method {method}: no usable samples ({} taken)", samples.len()));
		};
		let (experiment, method, unit) = (experiment.to_owned(), method.to_owned(), unit.to_owned());
		let (chosen, observed) = (named(chosen), Values::new());
		let [min, p50, p90, p99, max] = [min, p50, p90, p99, max].map(kept);
		Ok(Self { experiment, method, chosen, observed, unit, n, min, p50, p90, p99, max, samples })
	}

	/// The record of the same samples with how many each of these rounds had.
	pub(crate) fn in_rounds(self, rounds: &Rounds) -> Self {
		let counts: Vec<usize> = rounds.0.iter().map(Vec::len).collect();
		self.beside([(SAMPLES_PER_ROUND, counts.into())])
	}

	/// The record with what was observed beside the samples.
	pub fn beside<'a>(mut self, observed: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
		self.observed.append(&mut named(observed));
		self
	}

	/// A whole number that was chosen.
	pub fn number(&self, name: &str) -> Option<u64> {
		self.chosen.get(name)?.as_u64()
	}

	/// A number that was chosen.
	pub fn float(&self, name: &str) -> Option<f64> {
		self.chosen.get(name)?.as_f64()
	}

	/// A text that was chosen.
	pub fn text(&self, name: &str) -> Option<&str> {
		self.chosen.get(name)?.as_str()
	}

	/// What was chosen, in words: "measure call, size 1G".
	pub fn cell(&self) -> String {
		words(&self.chosen)
	}

	/// Experiment, method and cell: "fork seal: measure call, size 1G". No other record of a document is called that.
	pub fn name(&self) -> String {
		format!("{} {}: {}", self.experiment, self.method, self.cell())
	}

	/// Experiment and method, for messages.
	pub fn label(&self) -> String {
		let size =
			self.number("size").map_or(String::new(), |size| format!(", {}", flashfork_terminal::size::show(size)));
		let measure = self.text("measure").map_or(String::new(), |measure| format!(", {measure}"));
		format!("{} {}{size}{measure}", self.experiment, self.method)
	}

	/// The samples by round where the record says how many each round had, else each for itself.
	pub fn rounds(&self) -> Rounds {
		let counts: Option<Vec<usize>> =
			self.observed.get(SAMPLES_PER_ROUND).and_then(|counts| serde_json::from_value(counts.clone()).ok());
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
		let said = [self.min, self.p50, self.p90, self.p99, self.max].map(kept);
		let follows = Summary::of(&self.samples)
			.is_some_and(|it| it.n == self.n && [it.min, it.p50, it.p90, it.p99, it.max].map(kept) == said);
		(!follows)
			.then(|| format!("the summary of {} {} does not follow from its samples", self.experiment, self.method))
	}
}

/// The fields of a record that follow from its samples.
fn summary(samples: &[f64]) -> serde_json::Map<String, Value> {
	let quantiles = Summary::of(samples).map_or([0.0; 5], |it| [it.min, it.p50, it.p90, it.p99, it.max]).map(kept);
	let named = ["min", "p50", "p90", "p99", "max"].into_iter().zip(quantiles);
	let count = ("n".to_owned(), samples.len().into());
	named.map(|(name, value)| (name.to_owned(), value.into())).chain([count]).collect()
}

/// How many times the median of `under` that of `over` is.
pub fn ratio_of(over: Option<&Record>, under: Option<&Record>) -> Option<Ratio> {
	ratio_of_medians(&over?.rounds(), &under?.rounds())
}

/// The whole numbers chosen under this name, ascending, each once.
pub fn numbers<'a>(records: impl IntoIterator<Item = &'a Record>, name: &str) -> Vec<u64> {
	let mut numbers: Vec<u64> = records.into_iter().filter_map(|record| record.number(name)).collect();
	numbers.sort_unstable();
	numbers.dedup();
	numbers
}

fn named<'a>(values: impl IntoIterator<Item = (&'a str, Value)>) -> Values {
	values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The record of a series that [`crate::sampling`] took, with its rounds, the warm-up and why it ended.
pub(crate) fn of_series<M>(record: Record, series: &Series<M>, ended: Ended) -> Record {
	let warm_up: Vec<f64> = series.warm_up.iter().copied().map(kept).collect();
	record.in_rounds(&series.rounds).beside([(WARM_UP, warm_up.into()), ("ended", ended.as_ref().into())])
}

impl Document {
	/// A document of `records` taken on `host`.
	///
	/// Every experiment's records come through here, so this is where one that makes two records which can't be told
	/// apart is caught: in every test of it. Nobody's figures are lost for that, so it isn't an error elsewhere.
	pub fn new(host: HostCard, records: Vec<Record>) -> Self {
		debug_assert_eq!(cell::shared_name(&records), None, "nothing that was chosen tells these records apart");
		Self { schema: SCHEMA.to_owned(), host, records, missing: Vec::new() }
	}

	/// A document of `records` taken here.
	pub fn here(records: Vec<Record>) -> Result<Self> {
		Ok(Self::new(HostCard::read()?, records))
	}

	/// The record of `method` in `experiment` for which all that is in `wanted`, a JSON object, was chosen.
	pub fn find(&self, experiment: &str, method: impl AsRef<str>, wanted: Value) -> Option<&Record> {
		let wanted = wanted.as_object()?;
		self.records.iter().find(|record| {
			record.experiment == experiment
				&& record.method == method.as_ref()
				&& wanted.iter().all(|(name, value)| record.chosen.get(name) == Some(value))
		})
	}

	/// The records of `experiment`.
	pub fn of(&self, experiment: &str) -> impl Iterator<Item = &Record> {
		self.records.iter().filter(move |record| record.experiment == experiment)
	}

	/// Writes the document to `path` as one line of JSON.
	pub fn write(&self, path: &Path) -> Result {
		File::create(path)
			.and_then(|mut file| self.write_to(&mut file))
			.or_cant(format_args!("write {}", path.display()))
	}

	/// Writes it to `path` packed by lzip, the samples of each round in order of size: which of one record was taken
	/// together with which of another can't be told there.
	pub fn write_packed(&self, path: &Path) -> Result {
		File::create(path).and_then(|file| self.pack_to(file)).or_cant(format_args!("write {}", path.display()))
	}

	/// The JSON, in one line, that [`Document::write_packed`] packs.
	pub fn packed(&self) -> serde_json::Result<String> {
		let mut value = serde_json::to_value(Self { records: Vec::new(), ..self.clone() })?;
		packed::pack(&self.records, &mut value)?;
		Ok(format!("{value}\n"))
	}

	fn pack_to(&self, file: File) -> std::io::Result<()> {
		let mut options = LzipOptions::with_preset(6);
		options.lzma_options.nice_len = LzmaOptions::NICE_LEN_MAX;
		let mut out = LzipWriter::new(BufWriter::new(file), options);
		out.write_all(self.packed()?.as_bytes())?;
		out.finish()?.flush()
	}

	/// The same into something that is open.
	pub fn write_to(&self, out: &mut dyn Write) -> std::io::Result<()> {
		let mut out = BufWriter::new(out);
		serde_json::to_writer(&mut out, self)?;
		writeln!(out)?;
		out.flush()
	}

	/// Reads a document written by [`Document::write`], packed by lzip or not. It refuses other schemas, and summaries
	/// that contradict their samples.
	pub fn read(path: &Path) -> Result<Self> {
		let read = |error| BenchError::system(format!("read {}", path.display()), error);
		let mut file = BufReader::new(File::open(path).map_err(read)?);
		let wrong = |why: String| BenchError::Record { path: path.to_owned(), why };
		let text: &mut dyn Read = match file.fill_buf().map_err(read)? {
			begin if begin.starts_with(LZIP) => &mut BufReader::new(LzipReader::new(file)),
			_ => &mut file,
		};
		let mut value: Value = serde_json::from_reader(text)
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
		packed::unpack(&mut value).map_err(|error| wrong(error.to_string()))?;
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
		let chosen = [("size", json!(1u64 << 30)), ("parent", json!("idle"))];
		let samples = vec![22.314, 21.0, 25.125, 1.0 / 3.0];
		Record::new("fork", "seal", chosen, "us", samples).unwrap().beside([("vmas", json!(37))])
	}

	#[test]
	fn a_document_survives_the_file() {
		let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
		let document = Document::here(vec![record()]).unwrap();
		document.write(&path).unwrap();
		assert_eq!(Document::read(&path).unwrap(), document);
	}

	#[test]
	fn a_packed_file_is_read() {
		let dir = tempfile::tempdir().unwrap();
		let document = Document::here(vec![record()]).unwrap();
		let mut text = Vec::new();
		document.write_to(&mut text).unwrap();
		let lzip = dir.path().join("records.json.lz");
		let mut packed = LzipWriter::new(File::create(&lzip).unwrap(), LzipOptions::with_preset(9));
		packed.write_all(&text).and_then(|()| packed.finish()).unwrap();
		assert_eq!(Document::read(&lzip).unwrap(), document);
	}

	#[test]
	fn nothing_is_lost_by_packing_but_the_order_within_rounds() {
		let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
		let of = |size, rounds: &[&[f64]]| {
			let rounds = Rounds(rounds.iter().map(|round| round.to_vec()).collect());
			Record::new("fork", "seal", [("size", json!(size))], "us", rounds.flat()).unwrap().in_rounds(&rounds)
		};
		let document = |rounds: [&[&[f64]]; 3]| {
			let records = rounds.iter().enumerate().map(|(size, rounds)| of(size, rounds)).collect();
			Document::here(records).unwrap()
		};
		let taken = document([&[&[3.0, 1.0 / 3.0], &[2e9, 7.0, 1.0]], &[&[1.0, 0.0]], &[&[1e-300, 9e300], &[-2.0]]]);
		taken.write_packed(&path).unwrap();
		let packed = std::fs::read(&path).unwrap();
		assert!(packed.starts_with(LZIP));
		let value: Value = serde_json::from_reader(LzipReader::new(packed.as_slice())).unwrap();
		let has = |i: usize| [&value["ranks"][i], &value["records"][i]["p50"]].map(|it| !it.is_null());
		assert_eq!([has(0), has(1), has(2)], [[true, false], [false, true], [false, true]]);
		let ordered = document([&[&[1.0 / 3.0, 3.0], &[1.0, 7.0, 2e9]], &[&[0.0, 1.0]], &[&[1e-300, 9e300], &[-2.0]]]);
		let read = Document::read(&path).unwrap();
		assert_eq!(read.records, ordered.records);
		for wrong in [json!({}), json!([null]), json!([1, null, null]), json!(["99999z", null, null])] {
			let mut value = value.clone();
			value["ranks"] = wrong;
			std::fs::write(&path, value.to_string()).unwrap();
			assert!(Document::read(&path).is_err());
		}
	}

	#[test]
	fn the_json_has_the_documented_shape() {
		let value = serde_json::to_value(Document::here(vec![record()]).unwrap()).unwrap();
		assert_eq!(value["schema"], "flashfork.bench/2");
		assert!(value["host"]["kernel"].is_string());
		let record = value["records"][0].as_object().unwrap();
		let keys: Vec<&str> = record.keys().map(String::as_str).collect();
		let mut expected =
			["experiment", "method", "chosen", "observed", "unit", "n", "min", "p50", "p90", "p99", "max", "samples"];
		expected.sort_unstable();
		assert_eq!(keys, expected);
		assert_eq!((record["n"].as_u64(), record["chosen"]["size"].as_u64()), (Some(4), Some(1 << 30)));
		assert_eq!(record["observed"], json!({ "vmas": 37 }));
	}

	#[test]
	fn refuses_other_schemas_and_false_summaries() {
		let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
		let mut document = Document::here(vec![record()]).unwrap();
		document.records[0].p50 += 1.0;
		document.write(&path).unwrap();
		assert!(Document::read(&path).unwrap_err().to_string().contains("does not follow"));
		document.records[0] = record();
		document.schema = "flashfork.bench/3".into();
		document.write(&path).unwrap();
		assert!(Document::read(&path).unwrap_err().to_string().contains("flashfork.bench/3"));
		std::fs::write(&path, "[1]").unwrap();
		assert!(Document::read(&path).unwrap_err().to_string().contains("no schema"));
	}

	#[test]
	fn samples_go_back_into_their_rounds() {
		let mut record = record();
		assert_eq!(record.rounds(), Rounds::independent(&record.samples));
		record.observed.insert(SAMPLES_PER_ROUND.to_owned(), json!([3, 0, 1]));
		assert_eq!(record.rounds().0, [vec![22.32, 21.0, 25.1], vec![], vec![0.333]]);
		record.observed.insert(SAMPLES_PER_ROUND.to_owned(), json!([3]));
		assert_eq!(record.rounds(), Rounds::independent(&record.samples), "counts that don't add up are no counts");
		record.observed.insert(SAMPLES_PER_ROUND.to_owned(), json!([u64::MAX, 5]));
		assert_eq!(record.rounds(), Rounds::independent(&record.samples), "nor are those nobody can add");
	}

	#[test]
	#[should_panic(expected = "nothing that was chosen tells these records apart")]
	fn records_that_can_not_be_told_apart_are_a_mistake_of_who_makes_them() {
		Document::here(vec![record(), record()]).unwrap();
	}

	#[test]
	fn no_samples_no_record() {
		assert!(Record::new("fork", "seal", [], "us", vec![]).is_err());
		assert!(Record::new("fork", "seal", [], "us", vec![f64::NAN]).is_err());
	}
}
