//! The samples behind the headlines: for each, how many were at most so long.

use super::{linear, of, percent, time_axis};
use crate::prelude::*;
use flashfork_measure::{
	plot::{Ink, Plot, Series, Style},
	report::Figure,
};

pub fn figure(document: &Document) -> Result<Option<Figure>> {
	let size = |record: &Record| record.float("size").unwrap_or(0.0);
	let largest = |records: Vec<&Record>| records.iter().map(|record| size(record)).fold(0.0, f64::max);
	let mut plots = Vec::new();
	let calls: Vec<&Record> =
		of(document, crate::experiments::fork::EXPERIMENT, &[("measure", "call"), ("parent", "idle")])
			.filter(|record| record.float("concurrent") == Some(1.0))
			.collect();
	let made: Vec<&Record> =
		of(document, crate::experiments::creation::EXPERIMENT, &[("measure", "cycle"), ("then", "exit")]).collect();
	let faults: Vec<&Record> = of(document, crate::experiments::access::FAULT, &[("measure", "first_write")]).collect();
	for (what, records) in [("fork call", calls), ("made, ended, reaped", made), ("first write after a fork", faults)] {
		let most = largest(records.clone());
		let records = records.into_iter().filter(|record| size(record) == most && record.min > 0.0);
		plots.extend(plot(format!("{what}, {}", show(most as u64)), records.collect()));
	}
	super::figure(
		"samples",
		"The samples behind the headlines",
		"Each curve holds every sample of its cell: at a height of 50 % lies the median, and a long way to the right \
		 at the top are the slow ones. None is left out.",
		plots,
	)
}

fn plot(title: String, records: Vec<&Record>) -> Option<Plot> {
	let series: Vec<Series> = records
		.iter()
		.map(|record| {
			let mut sorted = record.samples.clone();
			sorted.sort_by(f64::total_cmp);
			let share = 100.0 / sorted.len() as f64;
			let points = sorted.iter().enumerate().map(|(rank, &time)| (time, share * (rank as f64 + 1.0))).collect();
			Series { name: record.method.clone(), ink: Ink::of(&record.method), style: Style::Curve, points }
		})
		.collect();
	if series.is_empty() {
		return None;
	}
	Some(Plot {
		title,
		x: time_axis("", records.iter().flat_map(|record| [record.min, record.max])),
		y: linear("samples", vec![0.0, 50.0, 90.0, 100.0], 0.0..102.0, percent),
		series,
		size: (420, 300),
		names: 110,
	})
}
