//! The table of `bench write-fraction`.

use super::EXPERIMENT;
use crate::prelude::*;
use flashfork_advise::look::GRANULES;

/// The paper's section 4: program, machine, share changed and of what.
pub const PAPER: [(&str, f64, &str); 5] = [
	("Franz Lisp, ABSTRIPS planner (VAX-11/750)", 0.23, "pages of 512 bytes"),
	("Franz Lisp, ABSTRIPS planner (VAX-11/750)", 123_942.0 / 613_376.0, "bytes"),
	("GNU Emacs, Towers of Hanoi (VAX-11/750)", 0.35, "bytes"),
	("GNU Emacs, Towers of Hanoi (3B2)", 0.30, "bytes"),
	("GNU Emacs, Towers of Hanoi (HP 9000)", 0.48, "bytes"),
];

pub fn render_all(document: &Document) -> String {
	let percent = |share: f64| format!("{} %", three_figures(share * 100.0));
	let mut programs: Vec<&str> = document.records.iter().map(|record| record.method.as_str()).collect();
	programs.dedup();
	let row = |program: &&str| {
		let of = |granule: u64| document.find(EXPERIMENT, program, json!({ "granule": granule }));
		let bytes = of(1)?;
		let mut row = vec![
			(*program).to_owned(),
			show(middle(bytes, "in_use")?),
			show(middle(bytes, "changed")?),
			percent(bytes.p50),
		];
		row.extend(GRANULES.iter().map(|&granule| shown(of(granule).map(|record| percent(record.p50)))));
		Some(row)
	};
	let paper = PAPER.iter().map(|&(what, share, of)| vec![what.to_owned(), percent(share), of.to_owned()]);
	let headers = "program || in use | bytes changed | of the bytes | of the 4 KB pages | of 64 KB blocks | \
				   of 2 MB blocks";
	let title = "Writable private memory that differs at the second look (medians of the runs)";
	let parts = [
		titled(title, headers, programs.iter().filter_map(row)),
		titled("In 1988", "program || changed | of the", paper),
	];
	page(document, parts)
}

/// The median of what each run had.
fn middle(record: &Record, name: &str) -> Option<u64> {
	let mut counts: Vec<f64> = record.observed.get(name)?.as_array()?.iter().filter_map(Value::as_f64).collect();
	(!counts.is_empty()).then(|| median(&mut counts) as u64)
}
