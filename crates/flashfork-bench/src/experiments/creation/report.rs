//! The tables of `bench creation`.

use super::{
	EXPERIMENT,
	way::{PROGRAM, Phase, Then, Way},
};
use crate::prelude::*;

pub fn render_all(document: &Document) -> String {
	// The same for all records.
	let first = document.records.first();
	let more = |name| first.and_then(|record| record.number(name)).unwrap_or(0);
	let sizes = numbers(&document.records, "size");
	let touched = match first.and_then(|record| record.text("touch")) {
		Some("none") => {
			"The parent has mapped its memory and not touched it: there are no pages to copy entries of, and the size changes \
			 nothing. What costs is memory in use, not memory asked for."
		}
		_ => "The parent has written all its memory.",
	};
	let more = match (more("extra_fds"), more("extra_vmas")) {
		(0, 0) => String::new(),
		(fds, vmas) => format!(" It has {fds} more open files and {vmas} more mappings."),
	};
	let mut parts = vec![format!(
		"{touched}{more} Medians; ways visited in random order, parent and children on one CPU. exec: of {}.",
		PROGRAM.to_string_lossy()
	)];
	parts.extend(sizes.iter().map(|&size| of_size(document, size)));
	parts.push(against(document, &sizes));
	page(document, parts)
}

fn find(document: &Document, size: u64, way: Way, then: Then, phase: Phase) -> Option<&Record> {
	let wanted = json!({ "size": size, "then": then.as_ref(), "measure": phase.as_ref() });
	document.find(EXPERIMENT, way, wanted)
}

fn of_size(document: &Document, size: u64) -> String {
	let mut rows = Vec::new();
	for then in [Then::Exit, Then::Exec] {
		for way in Way::all() {
			let Some(cycle) = find(document, size, way, then, Phase::Cycle) else { continue };
			let Some(whole) = Summary::of(&cycle.samples) else { continue };
			let of = |phase| median_time(find(document, size, way, then, phase));
			rows.push(vec![
				way.as_ref().to_owned(),
				then.as_ref().to_owned(),
				time(whole.p50),
				spread(Some(cycle)),
				format!("{:.0}", 1e6 / whole.p50),
				of(Phase::Call),
				of(Phase::First),
				of(Phase::Exit),
				of(Phase::Reap),
			]);
		}
	}
	let headers = "way | then || whole | p10–p90 | per second | call returns | child's first | exit seen | reap";
	titled(&format!("Parent with {}", show(size)), headers, rows)
}

/// "1 GB: fork-4k takes 700 × (690–710) as long as vfork; ...".
fn against(document: &Document, sizes: &[u64]) -> String {
	let line = |size: u64, then: Then| {
		let cycle = |way| find(document, size, way, then, Phase::Cycle);
		let vfork = cycle(Way::Vfork)?;
		let parts: Vec<String> = [Way::Fork, Way::ForkThp, Way::ForkHugetlb, Way::Seal, Way::Odf]
			.into_iter()
			.filter_map(|way| Some((way, ratio_of(cycle(way), Some(vfork))?)))
			.map(|(way, found)| format!("{way} {}", found))
			.collect();
		Some(format!("{}, {}, times vfork: {}", show(size), then.as_ref(), parts.join(", ")))
	};
	let lines = sizes.iter().flat_map(|&size| [line(size, Then::Exit), line(size, Then::Exec)]).flatten();
	lines.collect::<Vec<_>>().join("\n")
}
