//! What is drawn: the fork calls of idle parents, picked from the records of `bench fork`.

use serde_json::Value;

use crate::BenchError;
use crate::fork::{EXPERIMENT, Method};
use crate::record::{Document, Record};
use crate::size::Size;
use crate::stats::Summary;

/// Everything the figure shows, in microseconds.
pub(super) struct Series {
    /// The methods that were measured with memory, baseline first; none is without points.
    pub lines: Vec<Line>,
    /// The median of the empty processes beside them all.
    pub empty: Option<f64>,
}

/// One method.
pub(super) struct Line {
    /// The method.
    pub method: Method,
    /// By size, ascending.
    pub points: Vec<Point>,
}

/// One method at one size.
pub(super) struct Point {
    /// Bytes of memory the parent has.
    pub size: u64,
    /// The samples' summary, all above zero.
    pub call: Summary,
}

impl Series {
    /// Picks what is to be drawn from `document`.
    pub(super) fn of(document: &Document) -> Result<Self, BenchError> {
        let calls: Vec<&Record> = document.records.iter().filter(|record| is_idle_call(record)).collect();
        let lines = Method::ALL.into_iter().map(|method| Line::of(method, &calls)).collect::<Result<Vec<_>, _>>()?;
        let lines: Vec<Line> = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
        if lines.is_empty() {
            let why = "there are no fork calls of a parent with memory in these records; make some with `flashfork bench fork`";
            return Err(BenchError::Unable(why.to_owned()));
        }
        let empty: Vec<f64> = calls
            .iter()
            .filter(|record| size(record) == Some(0) && record.method == Method::Fork4k.name())
            .flat_map(|record| record.samples.iter().copied())
            .collect();
        let empty = if empty.is_empty() { None } else { Some(positive(&empty, "the empty process")?.p50) };
        Ok(Self { lines, empty })
    }

    /// Every point of every line.
    pub(super) fn points(&self) -> impl Iterator<Item = &Point> {
        self.lines.iter().flat_map(|line| &line.points)
    }
}

impl Line {
    fn of(method: Method, calls: &[&Record]) -> Result<Self, BenchError> {
        let mut points = Vec::new();
        for record in calls.iter().filter(|record| record.method == method.name()) {
            if let Some(size @ 1..) = size(record) {
                let call = positive(&record.samples, &format!("{method}, {}", Size(size)))?;
                points.push(Point { size, call });
            }
        }
        points.sort_by_key(|point| point.size);
        Ok(Self { method, points })
    }
}

/// Whether a record is of fork calls of an idle parent that clones by itself.
fn is_idle_call(record: &Record) -> bool {
    let param = |key| record.params.get(key);
    record.experiment == EXPERIMENT
        && param("measure").and_then(Value::as_str) == Some("call")
        && param("parent").and_then(Value::as_str) == Some("idle")
        && param("concurrent").and_then(Value::as_u64) == Some(1)
}

fn size(record: &Record) -> Option<u64> {
    record.params.get("size").and_then(Value::as_u64)
}

fn positive(samples: &[f64], whose: &str) -> Result<Summary, BenchError> {
    Summary::of(samples).filter(|summary| summary.min > 0.0).ok_or_else(|| {
        BenchError::Unable(format!("the fork calls of {whose} are not all above zero: no place on a logarithmic axis"))
    })
}
