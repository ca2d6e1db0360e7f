//! Records as packed files have them (docs/MEASURING.md): instead of samples and summary a document has `"ranks"` of
//! each record, in the [order] of what is alike: the smallest of each round, then the second of each, and so on. A
//! letter, with the digits before it, says how many places, among all numbers that can be [kept](super::kept), a sample
//! is behind another: the smallest behind that of the round before, each other one behind the next smaller of its
//! round. So two fifths of the file are spared. Of a cell with many samples a hundred or so are left, and none of the
//! warm-up.

use serde::de::Error;
use serde_json::{Map, Result, Value, json};

use super::{
	Record, SAMPLES_PER_ROUND, WARM_UP,
	digits::{at_place, place},
	summary,
};

const RANKS: &str = "ranks";
const SAMPLES: &str = "samples";

/// How many samples of a cell are enough for what its tables say. Rounds of few samples keep some more between them.
const ENOUGH: usize = 100;

/// How many samples there were, among what was observed, where some are left out.
const SAMPLES_TAKEN: &str = "samples_taken";

/// The records of a document as it is packed.
pub fn pack(records: &[Record], document: &mut Value) -> Result<()> {
	let packed: Vec<(Value, Option<String>)> = records.iter().cloned().map(of_record).collect::<Result<_>>()?;
	let (records, ranks): (Vec<Value>, Vec<Option<String>>) = packed.into_iter().unzip();
	document["records"] = records.into();
	document[RANKS] = ranks.into();
	Ok(())
}

/// A record without samples, and its ranks. Where a sample has no place, and none that is not positive has, there are
/// no ranks, and of the record the order alone is lost.
fn of_record(mut record: Record) -> Result<(Value, Option<String>)> {
	let taken = record.samples.len();
	let rounds: Vec<Vec<f64>> = record.rounds().0.into_iter().map(|round| thinned(round, taken)).collect();
	let counts: Vec<usize> = rounds.iter().map(Vec::len).collect();
	record.samples = rounds.concat();
	if record.samples.len() < taken {
		record.observed.insert(SAMPLES_PER_ROUND.to_owned(), counts.clone().into());
		record.observed.entry(SAMPLES_TAKEN.to_owned()).or_insert(taken.into());
	}
	record.observed.remove(WARM_UP);
	let mut value = serde_json::to_value(&record)?;
	let places: Option<Vec<i32>> = record.samples.iter().copied().map(place).collect();
	let ranks = places.map(|places| {
		let step = |(at, before): (usize, Option<usize>)| places[at] - before.map_or(0, |before| places[before]);
		order(&counts).map(|pair| letter_of(step(pair))).collect()
	});
	if let (Some(_), Some(fields)) = (&ranks, value.as_object_mut()) {
		for field in summary(&[]).keys().map(String::as_str).chain([SAMPLES]) {
			fields.remove(field);
		}
	}
	Ok((value, ranks))
}

/// A step in letters: a to z are 0 to 25, capitals are steps back, and digits before one how often 26 more.
fn letter_of(step: i32) -> String {
	let (often, rest) = (step.unsigned_abs() / 26, step.unsigned_abs() % 26);
	let letter = char::from_digit(10 + rest, 36).map_or(String::new(), String::from);
	let letter = if step < 0 { letter.to_ascii_uppercase() } else { letter };
	if often == 0 { letter } else { format!("{often}{letter}") }
}

fn step_of(letter: &str) -> Option<i32> {
	let (digits, last) = letter.split_at_checked(letter.len().checked_sub(1)?)?;
	let last = last.chars().next()?;
	let rest = last.to_digit(36)?.checked_sub(10)?;
	let often =
		digits.chars().try_fold(0_u32, |often, digit| often.checked_mul(10)?.checked_add(digit.to_digit(10)?))?;
	let step = i32::try_from(often.checked_mul(26)?.checked_add(rest)?).ok()?;
	Some(if last.is_ascii_uppercase() { -step } else { step })
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

/// Has the records of a document as they were packed.
pub fn unpack(document: &mut Value) -> Result<()> {
	let Some(ranks) = document.as_object_mut().and_then(|document| document.remove(RANKS)) else { return Ok(()) };
	let ranks: Vec<Option<String>> = serde_json::from_value(ranks)?;
	let records = document.get_mut("records").and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default();
	if records.len() != ranks.len() {
		return Err(Error::custom("not every record has its ranks"));
	}
	for (fields, ranks) in records.iter_mut().zip(ranks) {
		if let (Some(fields), Some(ranks)) = (fields.as_object_mut(), ranks) {
			let samples = samples_of(fields, &ranks).ok_or_else(|| Error::custom("a sample is at no place"))?;
			fields.extend(summary(&samples));
			fields.insert(SAMPLES.to_owned(), json!(samples));
		}
	}
	Ok(())
}

fn samples_of(fields: &Map<String, Value>, ranks: &str) -> Option<Vec<f64>> {
	let letters = ranks.split_inclusive(|letter: char| letter.is_ascii_alphabetic());
	let steps: Vec<i32> = letters.map(step_of).collect::<Option<_>>()?;
	let counts = fields.get("observed").and_then(|observed| observed.get(SAMPLES_PER_ROUND)).cloned();
	let counts: Option<Vec<usize>> = counts.and_then(|counts| serde_json::from_value(counts).ok());
	let counts = counts
		.filter(|counts| counts.iter().try_fold(0, |sum: usize, &count| sum.checked_add(count)) == Some(steps.len()));
	let mut places = vec![0; steps.len()];
	for ((at, before), step) in order(&counts.unwrap_or_else(|| vec![1; steps.len()])).zip(&steps) {
		let before: i32 = before.map_or(0, |before| places[before]);
		places[at] = before.checked_add(*step)?;
	}
	places.into_iter().map(at_place).collect()
}

#[cfg(test)]
mod tests {
	use super::{
		super::{Rounds, kept},
		*,
	};

	#[test]
	fn of_many_samples_a_hundred_are_left_with_the_same_quantiles() {
		let rounds =
			Rounds((0..20).map(|round| (0..20).map(|i| f64::from(1000 + 100 * i + round)).collect()).collect());
		let record = Record::new("fork", "seal", [], "us", rounds.flat()).unwrap().in_rounds(&rounds);
		let mut document = json!({});
		pack(std::slice::from_ref(&record), &mut document).unwrap();
		unpack(&mut document).unwrap();
		let left: Record = serde_json::from_value(document["records"][0].clone()).unwrap();
		assert_eq!(left.rounds().0.iter().map(Vec::len).collect::<Vec<_>>(), [5; 20]);
		assert_eq!(left.rounds().0[3], [1203.0, 1603.0, 2003.0, 2403.0, 2803.0].map(kept));
		assert_eq!(left.observed[SAMPLES_TAKEN], 400);
		assert!((left.p50 / record.p50 - 1.0).abs() < 0.05, "{} and {}", left.p50, record.p50);
		// Again nothing more is left out, and how many there were stays known.
		assert_eq!(of_record(left.clone()).unwrap().0["observed"], serde_json::to_value(&left.observed).unwrap());
	}

	#[test]
	fn steps_are_letters() {
		for (step, letters) in [(0, "a"), (25, "z"), (26, "1a"), (80, "3c"), (-1, "B"), (-26, "1A")] {
			assert_eq!((letter_of(step).as_str(), step_of(letters)), (letters, Some(step)));
		}
		for wrong in ["", "7", "-a", "+1a", "\u{e4}", "99999999a"] {
			assert_eq!(step_of(wrong), None, "{wrong}");
		}
	}
}
