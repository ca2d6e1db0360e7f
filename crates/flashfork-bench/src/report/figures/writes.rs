//! How much of real programs' memory changes, counted in blocks of several sizes.

use super::{linear, percent};
use crate::{experiments::write_fraction::EXPERIMENT, prelude::*};
use flashfork_measure::{
	plot::{Ink, Plot, Series, Style},
	report::Figure,
};

const INKS: [Ink; 6] = [Ink::Fork4k, Ink::ForkThp, Ink::Seal, Ink::Odf, Ink::Spawn, Ink::Vfork];
/// Bytes in the blocks, and where they stand on the axis.
const GRANULES: [f64; 4] = [1.0, 4096.0, 65_536.0, 2_097_152.0];

pub fn figure(document: &Document) -> Result<Option<Figure>> {
	let records = || document.records.iter().filter(|record| record.experiment == EXPERIMENT);
	let mut programs: Vec<&str> = Vec::new();
	for record in records() {
		if !programs.contains(&record.method.as_str()) {
			programs.push(&record.method);
		}
	}
	if programs.is_empty() {
		return Ok(None);
	}
	let series = programs.iter().enumerate().map(|(index, program)| {
		let points = GRANULES.iter().enumerate().filter_map(|(place, granule)| {
			let found = records().find(|r| r.method == *program && r.float("granule") == Some(*granule))?;
			Some((place as f64, found.p50 * 100.0))
		});
		Series {
			name: (*program).to_owned(),
			ink: INKS[index % INKS.len()],
			style: Style::Line,
			points: points.collect(),
		}
	});
	let plot = Plot {
		title: String::new(),
		x: linear("counted in", vec![0.0, 1.0, 2.0, 3.0], -0.2..3.2, |place| {
			["bytes", "4 KB pages", "64 KB", "2 MB"][(place.round() as usize).min(3)].to_owned()
		}),
		y: linear("changed", vec![0.0, 25.0, 50.0, 75.0, 100.0], 0.0..103.0, percent),
		series: series.collect(),
		size: (760, 340),
		names: 130,
	};
	super::figure(
		"writes",
		"How much of a program's memory changes",
		"The writable private memory of real programs before and after a piece of work. The coarser the blocks that are \
		 copied on write, the more of the memory one changed byte takes along.",
		[plot],
	)
}
