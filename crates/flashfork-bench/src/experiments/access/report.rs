//! The tables of `bench fault` and `bench access-mix`, from the records.

use super::{ACCESS_MIX, FAULT, mix::MIXES};
use crate::prelude::*;

/// The paper's table 1, in microseconds, on its machine: plain fork, with huge pages, on demand.
const PAPER: [(&str, f64); 3] = [("Fork", 2.3), ("Fork with huge pages", 198.4), ("On-demand fork", 12.2)];

/// Everything about first writes, for people.
pub fn fault(document: &Document) -> String {
	let of = |method: Method, measure: &str| document.find(FAULT, method, json!({ "measure": measure }));
	let mut rows = Vec::new();
	for method in Method::all() {
		let (Some(first), Some(next)) = (of(method, "first_write"), of(method, "next_write")) else { continue };
		let against = ratio_of(Some(first), of(Method::Fork4k, "first_write"));
		rows.push(vec![
			method.as_ref().to_owned(),
			time(first.p50),
			spread(Some(first)),
			shown(against),
			time(next.p50),
		]);
	}
	let title = format!("The child's first write after the fork, in the middle of {}", size(document));
	let paper = PAPER.iter().map(|&(how, us)| vec![how.to_owned(), time(us)]);
	let parts = [
		titled(&title, "method || first write | p10–p90 | ÷ fork-4k | write to the next page", rows),
		titled("On-demand-fork (EuroSys 2021), table 1, another machine", "how || worst fault", paper),
	];
	page(document, parts)
}

/// Everything about walks, for people.
pub fn access_mix(document: &Document) -> String {
	let shares = numbers(&document.records, "accessed_percent");
	let mut parts = Vec::new();
	for read in MIXES {
		let of = |method: Method, share: u64| {
			let read = if share == 0 { MIXES[0] } else { read };
			let wanted = json!({ "measure": "fork_and_access", "accessed_percent": share, "read_percent": read });
			document.find(ACCESS_MIX, method, wanted)
		};
		let mut rows = Vec::new();
		for method in Method::all() {
			let cells: Vec<Option<&Record>> = shares.iter().map(|&share| of(method, share)).collect();
			if cells.iter().all(Option::is_none) {
				continue;
			}
			let cell = |(record, &share): (&Option<&Record>, &u64)| {
				let Some(record) = record else { return String::new() };
				let base = of(Method::Fork4k, share).filter(|_| method != Method::Fork4k);
				let less = base.map(|base| (1.0 - record.p50 / base.p50) * 100.0);
				less.map_or(time(record.p50), |less| format!("{} ({less:+.0} % saved)", time(record.p50)))
			};
			let row = [method.as_ref().to_owned()].into_iter().chain(cells.iter().zip(&shares).map(cell)).collect();
			rows.push(row);
		}
		let columns: Vec<String> = shares.iter().map(|share| format!("{share} % accessed")).collect();
		let title = format!("{read} % read, {} % written", 100 - read);
		parts.push(titled(&title, &format!("method || {}", columns.join(" | ")), rows));
	}
	let head = format!(
		"Fork, then go through a part of the parent's {} while the child lives (sealed memory: sealed anew before, not counted)",
		size(document)
	);
	page(document, [head].into_iter().chain(parts))
}

fn size(document: &Document) -> String {
	document.records.iter().find_map(|record| record.number("size")).map_or("no memory".to_owned(), show)
}
