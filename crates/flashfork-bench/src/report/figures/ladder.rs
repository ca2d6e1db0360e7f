//! All ways to make a process, by the parent's memory, on two logarithmic axes.

use super::{line, memory_axis, of, time_axis, times};
use crate::{
	experiments::creation::{EXPERIMENT, Then, Way},
	prelude::*,
};
use flashfork_measure::{
	plot::{Plot, Series},
	report::Figure,
};

pub fn figure(document: &Document) -> Result<Option<Figure>> {
	let mut plots = Vec::new();
	for then in [Then::Exit, Then::Exec] {
		let wanted = [("measure", "cycle"), ("then", then.as_ref())];
		let sizes = ascending(of(document, EXPERIMENT, &wanted).filter_map(|record| record.float("size")));
		if sizes.is_empty() {
			continue;
		}
		let of_way = |way: &str| {
			let found = of(document, EXPERIMENT, &wanted).filter(|record| record.method == way && record.p50 > 0.0);
			line(way, found.filter_map(|record| Some((record.float("size")?, record.p50))))
		};
		let series: Vec<Series> = Way::all().filter_map(|way| of_way(way.as_ref())).collect();
		plots.push(Plot {
			title: match then {
				Then::Exit => "the child exits".to_owned(),
				Then::Exec => "the child becomes /bin/true".to_owned(),
			},
			x: memory_axis(&sizes, apart(&sizes)),
			y: time_axis("made, ended, reaped", times(&series)),
			series,
			size: (545, 400),
			names: 120,
		});
	}
	let caption = "Medians of whole cycles. Ways that copy page tables climb with memory on 4 KB pages; those that share the \
				   parent's memory, and sealed memory, stay level. With exec the start of the program comes on top of all.";
	super::figure("ladder", "Every way to make a process", caption, plots)
}

/// Ticks that can be told apart: those at least twice the one before.
fn apart(sizes: &[f64]) -> Vec<f64> {
	let mut ticks: Vec<f64> = Vec::new();
	for &size in sizes.iter().filter(|&&size| size > 0.0) {
		if ticks.last().is_none_or(|&last| size >= 2.0 * last) {
			ticks.push(size);
		}
	}
	ticks
}
