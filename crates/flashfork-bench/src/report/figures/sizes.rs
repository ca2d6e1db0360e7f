//! The fork call by the parent's memory, one line for each engine.

use super::{line, memory_axis, of, time_axis, times};
use crate::{experiments::fork::EXPERIMENT, prelude::*};
use flashfork_measure::{
	plot::{Plot, Series},
	report::Figure,
};

pub fn figure(document: &Document) -> Result<Option<Figure>> {
	let wanted = [("measure", "call"), ("parent", "idle")];
	let calls = || {
		of(document, EXPERIMENT, &wanted)
			.filter(|record| record.float("concurrent") == Some(1.0) && record.p50 > 0.0)
			.filter_map(|record| Some((record, record.float("size")?)))
			.filter(|&(_, size)| size > 0.0)
	};
	let sizes = ascending(calls().map(|(_, size)| size));
	if sizes.is_empty() {
		return Ok(None);
	}
	let of_method = |method: Method| {
		let found = calls().filter(|(record, _)| record.method == method.as_ref());
		line(method.as_ref(), found.map(|(record, size)| (size, record.p50)))
	};
	let series: Vec<Series> = Method::all().filter_map(of_method).collect();
	let plot = Plot {
		title: String::new(),
		x: memory_axis(&sizes, sizes.clone()),
		y: time_axis("the fork call", times(&series)),
		series,
		size: (760, 400),
		names: 100,
	};
	super::figure(
		"sizes",
		"What a fork call costs by engine",
		"Medians, the parent idle since it was prepared. Huge pages are the baseline to beat: they divide the page \
		 tables by 512; sealed memory has none to copy.",
		[plot],
	)
}
