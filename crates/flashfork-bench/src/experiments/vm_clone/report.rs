//! The tables of `bench vm-clone`.

use super::{
	GuestKind,
	found::{
		ALIVE, ALL, BOOT_STEPS, CYCLE, FIRST_EXIT, FIRST_REPLY, Method, PREPARE, READY, STEPS, USER, WAITING, cells,
		counted, find, rounds, sizes,
	},
	targets,
};
use crate::{prelude::*, subjects::vm_host::MemoryPages};

pub fn render_all(document: &Document) -> String {
	let mut parts = Vec::new();
	let has = |guest| !sizes(document, guest).is_empty();
	if has(GuestKind::Tiny) {
		parts.push(
			"Tiny guests: from the request until the client knows of the first exit; clones checked what they inherited.\n\
			 A clone claims a shell that waits for any template of its shape; primed: for this one, with its memory and CPU.\n\
			 All memory of a template is there. 4k, thp (made of 4 KB pages by MADV_COLLAPSE) and hugetlb are what it is made of."
				.into(),
		);
		parts.push(overview(document, GuestKind::Tiny));
		parts.push(comparisons(document, GuestKind::Tiny, FIRST_EXIT));
		parts.push(steps(document, GuestKind::Tiny));
		parts.push(density(document));
	}
	if has(GuestKind::Linux) {
		parts.push(
			"Linux guests: a cold boot begins with an empty process; clones run on, as their clocks show. thp: the template as the monitor\n\
			 makes it, on 2 MB pages where half of one is there; 4k: the same on 4 KB pages, all of them there."
				.into(),
		);
		parts.push(overview(document, GuestKind::Linux));
		parts.push(comparisons(document, GuestKind::Linux, FIRST_REPLY));
		parts.push(steps(document, GuestKind::Linux));
	}
	let guests = [GuestKind::Tiny, GuestKind::Linux].into_iter().filter(|guest| has(*guest));
	let targets: Vec<_> = guests.flat_map(|guest| targets::check(document, guest)).collect();
	parts.push(promises(&targets));
	page(document, parts)
}

fn overview(document: &Document, guest: GuestKind) -> String {
	let (main, others) = match guest {
		GuestKind::Tiny => (FIRST_EXIT, [CYCLE, PREPARE]),
		GuestKind::Linux => (FIRST_REPLY, [FIRST_EXIT, READY]),
	};
	let row = |(size, method): (u64, Method)| {
		let record = |measure| find(document, guest, method, size, measure);
		let mut row = vec![Size(size).to_string(), method.name()];
		match record(main) {
			Some(r) => row.extend([r.p50, r.p90, r.p99, r.max].map(time).into_iter().chain([r.n.to_string()])),
			None => row.extend(std::iter::repeat_n(String::new(), 5)),
		}
		row.extend(others.iter().map(|measure| median_time(record(measure))));
		row
	};
	let headers = format!("size | method || {main}, median | 90 % | 99 % | max | n | {}", others.join(" | "));
	table(&headers, cells(document, guest, main).into_iter().map(row))
}

/// Clones against boots of the same size, and the largest clones against the smallest.
fn comparisons(document: &Document, guest: GuestKind, measure: &str) -> String {
	let cells = cells(document, guest, measure);
	let mut lines = Vec::new();
	for &(size, method) in &cells {
		let Some(pages) = method.claimed() else { continue };
		// What would have been booted instead.
		let booted = if pages == MemoryPages::Hugetlb { pages } else { MemoryPages::Small };
		let of = |method| rounds(document, guest, method, size, measure);
		if let (Some(boot), Some(clone)) = (of(Method::ColdBoot(booted)), of(method))
			&& let Some(found) = ratio_of_medians(&boot, &clone)
		{
			lines.push(format!("{}: {} is {} as fast as booting", Size(size), method.name(), found));
		}
	}
	for method in MemoryPages::all().flat_map(Method::claims) {
		let mut own = cells.iter().filter(|(_, other)| *other == method).map(|(size, _)| *size);
		let of = |size| rounds(document, guest, method, size, FIRST_EXIT);
		if let (Some(least), Some(most)) = (own.next(), own.next_back())
			&& let (Some(small), Some(large)) = (of(least), of(most))
			&& let Some(found) = ratio_of_medians(&large, &small)
		{
			let (least, most) = (Size(least), Size(most));
			lines.push(format!("{}: first exit at {most} ÷ at {least}: {}", method.name(), found));
		}
	}
	lines.join("\n")
}

fn steps(document: &Document, guest: GuestKind) -> String {
	let part = |title: &str, names: &[&str], wanted: fn(Method) -> bool| {
		let cells = cells(document, guest, names[0]).into_iter().filter(|(_, method)| wanted(*method));
		let row = |(size, method): (u64, Method)| -> Vec<String> {
			let median = |name: &&str| median_time(find(document, guest, method, size, name));
			[Size(size).to_string(), method.name()].into_iter().chain(names.iter().map(median)).collect()
		};
		titled(title, &format!("size | method || {}", names.join(" | ")), cells.map(row))
	};
	[
		part("Steps of a clone, medians", &STEPS, |method| method.claimed().is_some()),
		part("Steps of a cold boot, medians", &BOOT_STEPS, |method| matches!(method, Method::ColdBoot(_))),
	]
	.join("\n\n")
}

fn density(document: &Document) -> String {
	let shown = |values: Vec<f64>| {
		let mut values = values;
		match (!values.is_empty()).then(|| median(&mut values)) {
			Some(bytes) if bytes > 0.0 => show(bytes as u64),
			// Others took and gave back more meanwhile.
			_ => "lost in the noise".to_owned(),
		}
	};
	let (mut rows, mut source) = (Vec::new(), None);
	for size in sizes(document, GuestKind::Tiny) {
		let samples = |what, part| counted(document, what, part, size).map(|record| record.samples.clone());
		let (Some(waiting), Some(all), Some(user)) = (samples(WAITING, ALL), samples(ALIVE, ALL), samples(ALIVE, USER))
		else {
			continue;
		};
		let record = counted(document, ALIVE, ALL, size);
		source = source.or(record.map(|record| record.text("source").unwrap_or("")));
		let count = record.and_then(|record| record.number("count")).unwrap_or(0);
		let kernel = all.iter().zip(&user).map(|(all, user)| all - user).collect();
		let mut row = vec![Size(size).to_string(), count.to_string()];
		row.extend([waiting, all, user, kernel].map(shown));
		rows.push(row);
	}
	let Some(source) = source else { return String::new() };
	let headers = "size || at a time | a shell that waits | a clone alive | of it the process | of it the kernel";
	titled(&format!("Memory by {source}; clones on 4 KB pages"), headers, rows)
}
