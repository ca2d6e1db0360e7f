//! The table of `bench vm-fuzz`.

use super::{EXPERIMENT, Way};
use crate::prelude::*;

/// What the promise is about.
const PAGES: u64 = 200;
const SIZE: u64 = 1 << 30;

pub fn render_all(document: &Document) -> String {
	let Some(size) = document.of(EXPERIMENT).find_map(|record| record.number("size")) else {
		return page(document, []);
	};
	let pages = numbers(document.of(EXPERIMENT), "pages");
	let heading = format!("Executions that write so many pages of a tiny guest of {}.", show(size));
	let row = |pages: u64, way: Way| {
		let record = find(document, pages, way)?;
		Some(vec![
			pages.to_string(),
			way.as_ref().to_owned(),
			time(record.p50),
			time_range(record.min, record.p90),
			format!("{:.0}", 1e6 / record.p50),
			shown(ratio(document, pages, way)),
			record.n.to_string(),
		])
	};
	let rows = pages.iter().flat_map(|pages| Way::all().filter_map(|way| row(*pages, way)));
	let found = if size == SIZE { ratio(document, PAGES, Way::Copy) } else { None };
	let what = format!("tiny guest of 1G, {PAGES} pages written: copying ÷ dropping");
	let promise = Target::at_most(what, 0.3, Unit::Times, found);
	let headers = "pages | before each || median | least–90 % | a second | ÷ dropping | n";
	page(document, [titled(&heading, headers, rows), promises(&[promise])])
}

fn find(document: &Document, pages: u64, way: Way) -> Option<&Record> {
	document.find(EXPERIMENT, way, json!({ "pages": pages }))
}

/// As many times as long as by dropping.
fn ratio(document: &Document, pages: u64, way: Way) -> Option<Ratio> {
	ratio_of(find(document, pages, way), find(document, pages, Way::Drop))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn ways_stand_below_each_other_and_the_promise_is_about_1g() {
		let page = |size: u64| {
			let records = [(Way::Copy, 200.0), (Way::Drop, 1000.0)].map(|(way, figure)| {
				let chosen = [("pages", json!(PAGES)), ("size", json!(size))];
				Record::new(EXPERIMENT, way.as_ref(), chosen, "us", vec![figure; 6]).unwrap()
			});
			render_all(&Document::here(records.to_vec()).unwrap())
		};
		let shown = page(SIZE);
		assert!(["0.20 ×", "5000", "Promises", "yes"].iter().all(|wanted| shown.contains(wanted)), "{shown}");
		assert!(!page(SIZE / 2).contains("Promises"));
	}
}
