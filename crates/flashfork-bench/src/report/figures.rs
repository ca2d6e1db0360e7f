//! The figures of the report, each made from the records alone; one whose records are missing is left out.

mod ladder;
mod mixes;
mod model;
mod samples;
mod sizes;
mod writes;

use serde_json::Value;

use super::plot::Plot;
use crate::BenchError;
use crate::record::{Document, Record};

/// A figure.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Its place in the page: `ladder-exit`, `sizes` and the like.
    pub name: String,
    /// Its title.
    pub title: String,
    /// What to see in it.
    pub caption: String,
    /// The pictures, side by side or one below the other, as SVG.
    pub pictures: Vec<String>,
}

/// All figures that `document` has records for.
pub fn all(document: &Document) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for make in
        [ladder::figure, sizes::figure, model::fit, model::merit, mixes::figure, writes::figure, samples::figure]
    {
        figures.extend(make(document)?);
    }
    Ok(figures)
}

fn drawn(plots: impl IntoIterator<Item = Plot>) -> Result<Vec<String>, BenchError> {
    let draw = |plot: Plot| plot.draw().map_err(|error| BenchError::Unable(format!("can't draw a figure: {error}")));
    plots.into_iter().map(draw).collect()
}

/// The records of an experiment with these text parameters.
fn of<'a>(
    document: &'a Document,
    experiment: &'a str,
    texts: &'a [(&'a str, &'a str)],
) -> impl Iterator<Item = &'a Record> {
    document.records.iter().filter(move |record| {
        record.experiment == experiment
            && texts.iter().all(|(name, value)| record.params.get(*name).and_then(Value::as_str) == Some(*value))
    })
}

/// A parameter that is a number.
pub(super) fn number(record: &Record, name: &str) -> Option<f64> {
    record.params.get(name).and_then(Value::as_f64)
}

/// `values` sorted, each once.
fn distinct(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}
