//! Records as packed files have them (docs/MEASURING.md): instead of samples and summary there is `"places"`, where the
//! first one is among all numbers that can be [kept](super::kept), and how many places behind the one before it each
//! other is.

use serde::de::Error;
use serde_json::{Result, Value, json};

use super::digits::{at_place, place};
use super::{Record, SAMPLES_PER_ROUND, summary};

const PLACES: &str = "places";
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
        record.observed.insert(SAMPLES_PER_ROUND.to_owned(), counts.into());
        record.observed.entry(SAMPLES_TAKEN.to_owned()).or_insert(taken.into());
    }
    let places: Option<Vec<i32>> = record.samples.iter().copied().map(place).collect();
    let mut value = serde_json::to_value(&record)?;
    if let (Some(places), Some(fields)) = (places, value.as_object_mut()) {
        for field in summary(&[]).keys().map(String::as_str).chain([SAMPLES]) {
            fields.remove(field);
        }
        let mut before = 0;
        let steps = places.into_iter().map(|place| place - std::mem::replace(&mut before, place));
        fields.insert(PLACES.to_owned(), steps.collect());
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

/// Has the records of a document as they were packed.
pub fn unpack(document: &mut Value) -> Result<()> {
    let records = document.get_mut("records").and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default();
    for fields in records.iter_mut().filter_map(Value::as_object_mut) {
        let Some(places) = fields.remove(PLACES) else { continue };
        let mut at = 0i32;
        let mut next = |step: i32| {
            at = at.checked_add(step)?;
            at_place(at)
        };
        let steps: Vec<i32> = serde_json::from_value(places)?;
        let samples: Option<Vec<f64>> = steps.into_iter().map(&mut next).collect();
        let samples = samples.ok_or_else(|| Error::custom("a sample is at no place"))?;
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
        let record = Record::of_rounds("fork", "seal", [], "us", &rounds).unwrap();
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
