//! Fork and go through the memory: one small diagram for each mix of reads and writes.

use super::{line, linear, of, percent, time_axis};
use crate::{
	experiments::access::{ACCESS_MIX, MIXES},
	prelude::*,
};
use flashfork_measure::{plot::Plot, report::Figure};

pub fn figure(document: &Document) -> Result<Option<Figure>> {
	let wanted = [("measure", "fork_and_access")];
	let walks = || of(document, ACCESS_MIX, &wanted).filter(|record| record.p50 > 0.0);
	let shares = ascending(walks().filter_map(|record| record.float("accessed_percent")));
	if shares.is_empty() {
		return Ok(None);
	}
	let mut plots = Vec::new();
	for mix in MIXES {
		let of_method = |method: Method| {
			let of_mix = walks().filter(|record| {
				// Where nothing is accessed one mix stands for all.
				let same = record.float("read_percent") == Some(f64::from(mix));
				record.method == method.as_ref() && (same || record.float("accessed_percent") == Some(0.0))
			});
			line(method.as_ref(), of_mix.filter_map(|record| Some((record.float("accessed_percent")?, record.p50))))
		};
		plots.push(Plot {
			title: format!("{mix} % read, {} % written", 100 - mix),
			x: linear("part of the memory gone through", shares.clone(), -4.0..104.0, percent),
			y: time_axis("", walks().map(|record| record.p50)),
			series: Method::all().filter_map(of_method).collect(),
			size: (370, 260),
			names: 74,
		});
	}
	super::figure(
		"mixes",
		"Fork, then use the memory",
		"Time from before the fork until the parent has gone through a part of its memory, the child alive. What a cheap \
		 fork saves is spent again page by page where the parent writes.",
		plots,
	)
}
