//! The tables of `bench vm-fork`.

use super::found::{DEPTHS, Guest, Part, Step, claims, part, pauses, sizes, step};
use crate::prelude::*;

pub fn render_all(document: &Document) -> String {
	let mut parts = Vec::new();
	parts.extend(of_pauses(document));
	if let Some(record) = DEPTHS.into_iter().find_map(|depth| step(document, false, depth, Step::FirstExit)) {
		parts.push(of_claims(document, record));
		parts.push(promises(&targets(document)));
	}
	page(document, parts)
}

/// How long guests of each kind and size stood still.
fn of_pauses(document: &Document) -> Option<String> {
	let cells: Vec<_> = Guest::all().map(|guest| (guest, sizes(document, guest))).collect();
	let cells: Vec<_> =
		cells.iter().flat_map(|(guest, sizes)| sizes.iter().map(|size| (*guest, *size, sizes[0]))).collect();
	let &(guest, size, _) = cells.first()?;
	let first = part(document, guest, size, Part::Pause)?;
	let percent = first.float("written_percent").unwrap_or(0.0);
	let mut lines = vec![format!(
		"Clones that have written 1 % of their memory and read all of it, forked while they write {percent} % a second: medians.\n\
		 written: pages since it could be forked, or was forked last; left: pages that were copied in the pause."
	)];
	if first.observed.get("tracked").and_then(Value::as_bool) == Some(false) {
		lines.push(
			"This kernel (before Linux 6.7) can't tell what is written meanwhile: all is copied in the pause.".into(),
		);
	}
	let row = |&(guest, size, smallest): &(Guest, u64, u64)| {
		let of = |wanted, show: fn(&Record) -> String| shown(part(document, guest, size, wanted).map(show));
		let median = |wanted| of(wanted, |record| time(record.p50));
		let count = |wanted| of(wanted, |record| record.p50.to_string());
		vec![
			guest.as_ref().to_owned(),
			Size(size).to_string(),
			median(Part::Before),
			count(Part::Written),
			count(Part::Left),
			median(Part::Pause),
			of(Part::Pause, |record| time_range(record.min, record.p90)),
			median(Part::Stop),
			median(Part::Copy),
			median(Part::Save),
			shown(pauses(document, guest, size, smallest)),
			of(Part::Pause, |record| record.n.to_string()),
		]
	};
	let headers = "guest || size | copied before | written | left | pause | least–90 % | stop | copy | save | \
				   ÷ smallest | n";
	lines.push(table(headers, cells.iter().map(row)));
	Some(lines.join("\n"))
}

/// What claims of clones of clones took. `any`: one of their records.
fn of_claims(document: &Document, any: &Record) -> String {
	let number = |name: &str| any.number(name).unwrap_or(0);
	let heading = format!(
		"Claims of clones of clones: guests of {}, of which each level has written {} pages, half of them those of the level before.",
		show(number("size")),
		number("pages")
	);
	let row = |depth: u32| {
		let first_exit = step(document, false, depth, Step::FirstExit)?;
		let median = |primed, of| median_time(step(document, primed, depth, of));
		let ratio = |primed, of| shown(claims(document, primed, depth, 1, of));
		let observed = |name: &str| shown(first_exit.observed.get(name));
		Some(vec![
			depth.to_string(),
			observed("files"),
			observed("extents"),
			median(false, Step::FirstExit),
			time_range(first_exit.min, first_exit.p90),
			ratio(false, Step::FirstExit),
			median(false, Step::Shell),
			median(false, Step::Map),
			median(true, Step::FirstExit),
			ratio(true, Step::FirstExit),
			first_exit.n.to_string(),
		])
	};
	let headers = "depth || files | extents | first exit | least–90 % | ÷ depth 1 | in the shell | map | \
				   primed: first exit | ÷ depth 1 | n";
	titled(&heading, headers, DEPTHS.into_iter().filter_map(row))
}

fn targets(document: &Document) -> [Target; 2] {
	let claims =
		|what: &str, primed| Target::at_most(what, 1.3, Unit::Times, claims(document, primed, 8, 1, Step::FirstExit));
	[
		claims("claim until the first exit: template forked at depth 8 ÷ at depth 1", false),
		claims("the same of a primed shell", true),
	]
}
