//! Records as packed files have them. The samples of each round lie in order of size, and instead of samples and
//! summary there is `"places"`: where the first one is among all numbers that can be [kept](super::kept), and how many
//! places behind the one before it each other is. So a third of the file is spared.

use serde::de::Error;
use serde_json::{Result, Value, json};

use super::digits::{at_place, place};
use super::{Record, summary};

const PLACES: &str = "places";
const SAMPLES: &str = "samples";

/// A record as it is packed: as it is, but for the order, where a sample has no place. None that is not positive has.
pub fn pack(mut record: Record) -> Result<Value> {
    let rounds = record.rounds().0.into_iter().map(|mut round| {
        round.sort_by(f64::total_cmp);
        round
    });
    record.samples = rounds.flatten().collect();
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
