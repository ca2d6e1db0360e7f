//! Records as packed files have them (docs/MEASURING.md): instead of samples and summary there is `"ranks"`, in the
//! [order] of what is alike: the smallest of each round, then the second of each, and so on. A number says how many
//! places, among all numbers that can be [kept](super::kept), a sample is behind another: the smallest behind that of
//! the round before, each other one behind the next smaller of its round. So two fifths of the file are spared. Of a
//! cell with many samples a hundred or so are left, and none of the warm-up.

use serde::de::Error;
use serde_json::{Result, Value, json};

use super::digits::{at_place, place};
use super::{Record, SAMPLES_PER_ROUND, WARM_UP, summary};

const RANKS: &str = "ranks";
const SAMPLES: &str = "samples";

/// How many samples of a cell are enough for what its tables say. Rounds of few samples keep some more between them.
const ENOUGH: usize = 100;

/// How many samples there were, among what was observed, where some are left out.
const SAMPLES_TAKEN: &str = "samples_taken";

/// A record as it is packed: as it is, but for the order, where a sample has no place. None that is not positive has.
pub fn pack(mut record: Record) -> Result<Value> {
	let taken = record.samples.len();
	let rounds: Vec<Vec<f64>> = record.rounds().0.into_iter().map(|round| thinned(round, taken)).collect();
	let counts: Vec<usize> = rounds.iter().map(Vec::len).collect();
	record.samples = rounds.concat();
	if record.samples.len() < taken {
		record.observed.insert(SAMPLES_PER_ROUND.to_owned(), counts.clone().into());
		record.observed.entry(SAMPLES_TAKEN.to_owned()).or_insert(taken.into());
	}
	record.observed.remove(WARM_UP);
	let places: Option<Vec<i32>> = record.samples.iter().copied().map(place).collect();
	let mut value = serde_json::to_value(&record)?;
	if let (Some(places), Some(fields)) = (places, value.as_object_mut()) {
		for field in summary(&[]).keys().map(String::as_str).chain([SAMPLES]) {
			fields.remove(field);
		}
		let step = |(at, before): (usize, Option<usize>)| places[at] - before.map_or(0, |before| places[before]);
		fields.insert(RANKS.to_owned(), order(&counts).map(step).collect());
	}
	Ok(value)
}

/// The round's samples by size; of more than [`ENOUGH`] in all its rounds its share, evenly from the smallest to the
/// largest, at least one.
fn thinned(mut round: Vec<f64>, taken: usize) -> Vec<f64> {
	round.sort_by(f64::total_cmp);
	let left = (round.len() * ENOUGH + taken / 2) / taken.max(1);
	if taken <= ENOUGH || left >= round.len() {
		return round;
	}
	let left = left.max(1);
	(0..left).map(|i| round[(2 * i + 1) * round.len() / (2 * left)]).collect()
}

/// In rounds of so many samples, which lie one after another, those of equal rank in their round one after another; of
/// each where it is, and where the one is that it is counted from.
fn order(counts: &[usize]) -> impl Iterator<Item = (usize, Option<usize>)> {
	let starts = counts.iter().scan(0, |end, &count| Some(std::mem::replace(end, *end + count)));
	let rounds: Vec<(usize, usize)> = starts.zip(counts.iter().copied()).collect();
	let mut smallest = None;
	(0..counts.iter().copied().max().unwrap_or_default()).flat_map(move |rank| {
		let of_rank = rounds.iter().filter(|(_, count)| *count > rank).map(|(start, _)| start + rank);
		let before = |at| (at, if rank == 0 { smallest.replace(at) } else { Some(at - 1) });
		of_rank.map(before).collect::<Vec<_>>()
	})
}

fn no_place() -> serde_json::Error {
	Error::custom("a sample is at no place")
}

/// Has the records of a document as they were packed.
pub fn unpack(document: &mut Value) -> Result<()> {
	let records = document.get_mut("records").and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default();
	for fields in records.iter_mut().filter_map(Value::as_object_mut) {
		let Some(steps) = fields.remove(RANKS) else { continue };
		let steps: Vec<i32> = serde_json::from_value(steps)?;
		let counts = fields.get("observed").and_then(|observed| observed.get(SAMPLES_PER_ROUND)).cloned();
		let counts: Option<Vec<usize>> = counts.and_then(|counts| serde_json::from_value(counts).ok());
		let counts = counts.filter(|counts| {
			counts.iter().try_fold(0, |sum: usize, &count| sum.checked_add(count)) == Some(steps.len())
		});
		let mut places = vec![0; steps.len()];
		for ((at, before), step) in order(&counts.unwrap_or_else(|| vec![1; steps.len()])).zip(&steps) {
			let before: i32 = before.map_or(0, |before| places[before]);
			places[at] = before.checked_add(*step).ok_or_else(no_place)?;
		}
		let samples: Vec<f64> = places.into_iter().map(at_place).collect::<Option<_>>().ok_or_else(no_place)?;
		fields.extend(summary(&samples));
		fields.insert(SAMPLES.to_owned(), json!(samples));
	}
	Ok(())
}

#[cfg(test)]
mod tests {
	use super::super::{Rounds, kept};
	use super::*;

	#[test]
	fn of_many_samples_a_hundred_are_left_with_the_same_quantiles() {
		let rounds =
			Rounds((0..20).map(|round| (0..20).map(|i| f64::from(1000 + 100 * i + round)).collect()).collect());
		let record = Record::new("fork", "seal", [], "us", rounds.flat()).unwrap().in_rounds(&rounds);
		let mut document = json!({ "records": [pack(record.clone()).unwrap()] });
		unpack(&mut document).unwrap();
		let left: Record = serde_json::from_value(document["records"][0].clone()).unwrap();
		assert_eq!(left.rounds().0.iter().map(Vec::len).collect::<Vec<_>>(), [5; 20]);
		assert_eq!(left.rounds().0[3], [1203.0, 1603.0, 2003.0, 2403.0, 2803.0].map(kept));
		assert_eq!(left.observed[SAMPLES_TAKEN], 400);
		assert!((left.p50 / record.p50 - 1.0).abs() < 0.05, "{} and {}", left.p50, record.p50);
		// Again nothing more is left out, and how many there were stays known.
		assert_eq!(pack(left.clone()).unwrap()["observed"], serde_json::to_value(&left.observed).unwrap());
	}
}
