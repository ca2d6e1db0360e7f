//! The model of 1988: the fit with its residuals, and how much of a page fault is the copy, then and now.

use super::{linear, memory_axis, time_axis, times};
use crate::{
	experiments::cow_model::{Model, PAPER_MERIT, copy_rate},
	prelude::*,
};
use flashfork_measure::{
	plot::{Ink, Plot, Series, Style},
	report::Figure,
};

/// Copies of this size don't fit into a cache.
const LARGE_COPY: u64 = 64 << 20;
const INKS: [Ink; 7] = [Ink::Seal, Ink::ForkThp, Ink::Odf, Ink::Fork4k, Ink::Vfork, Ink::Spawn, Ink::Text];

pub fn fit(document: &Document) -> Result<Option<Figure>> {
	let Some(model) = Model::of(document, Method::Fork4k) else { return Ok(None) };
	let cells = || model.cells.iter().zip(&model.fit.residuals).filter(|(cell, _)| cell.size > 0 && cell.median > 0.0);
	let shares = ascending(cells().map(|(cell, _)| cell.share));
	let sizes = ascending(cells().map(|(cell, _)| cell.size as f64));
	if sizes.is_empty() {
		return Ok(None);
	}
	let mut measured = Vec::new();
	let mut residuals = Vec::new();
	let mut fitted = Vec::new();
	for (index, &share) in shares.iter().enumerate() {
		let ink = INKS[index % INKS.len()];
		let of_share = || cells().filter(|(cell, _)| cell.share == share);
		let mut points: Vec<(f64, f64)> = of_share().map(|(cell, _)| (cell.size as f64, cell.median)).collect();
		points.sort_by(|a, b| a.0.total_cmp(&b.0));
		// The model where it is above zero: noise can make the price of a process negative.
		let mut line: Vec<(f64, f64)> = of_share()
			.map(|(cell, _)| (cell.size as f64, model.fit.predict([1.0, cell.pages, cell.written])))
			.filter(|&(_, time)| time > 0.0)
			.collect();
		line.sort_by(|a, b| a.0.total_cmp(&b.0));
		fitted.push(Series { name: String::new(), ink, style: Style::Dashed, points: line });
		measured.push(Series { name: format!("{:.0} % written", share * 100.0), ink, style: Style::Points, points });
		let points = of_share().map(|(cell, residual)| (cell.size as f64, residual * 100.0)).collect();
		residuals.push(Series { name: String::new(), ink, style: Style::Points, points });
	}
	let x = || memory_axis(&sizes, sizes.clone());
	let worst = model.fit.residuals.iter().fold(10.0_f64, |worst, residual| worst.max(residual.abs() * 100.0));
	let edge = (worst / 10.0).ceil() * 10.0;
	let above = Plot {
		title: String::new(),
		x: x(),
		y: time_axis("made, written, ended", times(&measured)),
		series: fitted.into_iter().chain(measured).collect(),
		size: (760, 380),
		names: 110,
	};
	let below = Plot {
		title: "residuals: measured above or below the model".into(),
		x: x(),
		y: linear("", vec![-edge, 0.0, edge], -edge * 1.1..edge * 1.1, |percent| format!("{percent:+.0} %")),
		series: residuals,
		size: (760, 170),
		names: 110,
	};
	let [process, entry, copied] = model.fit.coefficients;
	let [of_process, of_entry, of_copied] = model.fit.intervals;
	let caption = format!(
		"t = {process:.0} µs ({:.0} to {:.0}) + {entry:.3} µs ({:.3} to {:.3}) for each page of 4 KB + {copied:.2} µs ({:.2} to \
		 {:.2}) for each page written. Dashed: the model; points: medians.",
		of_process.low, of_process.high, of_entry.low, of_entry.high, of_copied.low, of_copied.high
	);
	super::figure("model", "The cost model of 1988, with this host's prices", caption, [above, below])
}

pub fn merit(document: &Document) -> Result<Option<Figure>> {
	let (Some(model), Some(copied)) = (Model::of(document, Method::Fork4k), copy_rate(document, LARGE_COPY)) else {
		return Ok(None);
	};
	let now = [0.1, 0.5, 0.9].map(|share| model.fault_rate(share) / copied).into_iter().fold(0.0, f64::max);
	let bars: Vec<(f64, f64, Ink)> = PAPER_MERIT
		.iter()
		.enumerate()
		.map(|(at, &(_, merit))| (at as f64 + 0.5, merit, Ink::Faint))
		.chain([(2.5, now.clamp(0.0, 1.0), Ink::Fork4k)])
		.collect();
	let plot = Plot {
		title: String::new(),
		x: linear("", vec![0.5, 1.5, 2.5], 0.0..3.0, |place| {
			["AT&T 3B2, 1988", "HP 9000, 1988", "this host"][(place as usize).min(2)].to_owned()
		}),
		y: linear("faults served ÷ bare copy", vec![0.0, 0.25, 0.5, 0.75, 1.0], 0.0..1.05, |merit| {
			format!("{merit:.2}")
		}),
		series: bars
			.iter()
			.map(|&(x, y, ink)| Series { name: String::new(), ink, style: Style::Bars, points: vec![(x, y)] })
			.collect(),
		size: (520, 300),
		names: 10,
	};
	super::figure(
		"merit",
		"How much of a page fault is the copy",
		format!(
			"Bytes of pages copied on write per second, by bytes merely copied per second: {:.3} and {:.3} in 1988, {now:.3} here. \
			 At 1 nothing but the copy costs time; the lower, the more the trap, the allocation and the page tables do.",
			PAPER_MERIT[0].1, PAPER_MERIT[1].1
		),
		[plot],
	)
}
