//! The figures of the report, each made from the records alone; one whose records are missing is left out.

mod ladder;
mod mixes;
mod model;
mod samples;
mod sizes;
mod writes;

use crate::prelude::*;
use flashfork_measure::{
	plot::{Axis, Ink, Plot, Series, Style, decades, size_tick, time_tick},
	report::Figure,
};

/// All figures that `document` has records for.
pub fn all(document: &Document) -> Result<Vec<Figure>> {
	let mut figures = Vec::new();
	for make in
		[ladder::figure, sizes::figure, model::fit, model::merit, mixes::figure, writes::figure, samples::figure]
	{
		figures.extend(make(document)?);
	}
	Ok(figures)
}

/// The figure of these diagrams; none without any.
fn figure(
	name: &str,
	title: &str,
	caption: impl Into<String>,
	plots: impl IntoIterator<Item = Plot>,
) -> Result<Option<Figure>> {
	let draw = |plot: Plot| plot.draw().map_err(|error| unable!("can't draw a figure: {error}"));
	let pictures: Vec<String> = plots.into_iter().map(draw).collect::<Result<_>>()?;
	let figure = Figure { name: name.into(), title: title.into(), caption: caption.into(), pictures };
	Ok((!figure.pictures.is_empty()).then_some(figure))
}

/// The records of an experiment for which these texts were chosen.
fn of<'a>(
	document: &'a Document,
	experiment: &'a str,
	texts: &'a [(&'a str, &'a str)],
) -> impl Iterator<Item = &'a Record> {
	document.records.iter().filter(move |record| {
		record.experiment == experiment && texts.iter().all(|(name, value)| record.text(name) == Some(value))
	})
}

fn memory_axis(sizes: &[f64], ticks: Vec<f64>) -> Axis {
	let (first, last) =
		(sizes.first().map_or(1.0, |size| size.max(1.0)), sizes.last().map_or(1.0, |size| size.max(1.0)));
	Axis { title: "memory of the parent".into(), log: true, ticks, range: first / 1.2..last * 1.2, label: size_tick }
}

fn linear(title: &str, ticks: Vec<f64>, range: std::ops::Range<f64>, label: fn(f64) -> String) -> Axis {
	Axis { title: title.into(), log: false, ticks, range, label }
}

/// A share in percent, as ticks say it.
fn percent(share: f64) -> String {
	format!("{share:.0} %")
}

fn time_axis(title: &str, times: impl Iterator<Item = f64>) -> Axis {
	let ticks = decades(times);
	Axis { title: title.into(), log: true, range: ticks[0]..ticks[ticks.len() - 1], ticks, label: time_tick }
}

fn times(series: &[Series]) -> impl Iterator<Item = f64> {
	series.iter().flat_map(|series| series.points.iter().map(|&(_, time)| time))
}

fn line(name: &str, points: impl Iterator<Item = (f64, f64)>) -> Option<Series> {
	let mut points: Vec<(f64, f64)> = points.collect();
	points.sort_by(|a, b| a.0.total_cmp(&b.0));
	let line = Series { name: name.to_owned(), ink: Ink::of(name), style: Style::Line, points };
	(!line.points.is_empty()).then_some(line)
}
