//! What this host's figures say, in a few sentences.

use crate::{
	experiments::cow_model::{Model, PAPER_MERIT, copy_rate},
	prelude::*,
};

/// The findings of `document`, the most important first; as many as there are records for.
pub fn findings(document: &Document) -> Vec<String> {
	[engines(document), creation(document), merit(document), writes(document), accesses(document)]
		.into_iter()
		.flatten()
		.collect()
}

fn at_largest<'a>(document: &'a Document, experiment: &str, texts: &[(&str, &str)]) -> (u64, Vec<&'a Record>) {
	let fits = |record: &&Record| {
		record.experiment == experiment && texts.iter().all(|(name, value)| record.text(name) == Some(value))
	};
	let found: Vec<&Record> = document.records.iter().filter(fits).collect();
	let size = |record: &Record| record.float("size").unwrap_or(0.0);
	let most = found.iter().map(|record| size(record)).fold(0.0, f64::max);
	(most as u64, found.into_iter().filter(|record| size(record) == most).collect())
}

fn method<'a>(records: &[&'a Record], name: &str) -> Option<&'a Record> {
	records.iter().copied().find(|record| record.method == name)
}

fn engines(document: &Document) -> Option<String> {
	let (size, calls) =
		at_largest(document, crate::experiments::fork::EXPERIMENT, &[("measure", "call"), ("parent", "idle")]);
	let (plain, sealed) = (method(&calls, "fork-4k")?, method(&calls, "seal")?);
	let faster = ratio_of_medians(&plain.rounds(), &sealed.rounds())?;
	// A median of nothing can't be divided by.
	if ![faster.value, faster.interval.low, faster.interval.high].into_iter().all(f64::is_finite) {
		return None;
	}
	let huge = method(&calls, "fork-thp").map_or(String::new(), |huge| format!(", {} on huge pages", time(huge.p50)));
	let odf = method(&calls, "odf").map_or(String::new(), |odf| format!(", {} on demand", time(odf.p50)));
	Some(format!(
		"Forking a process with {} takes {} on 4 KB pages{huge}{odf}, and {} with its memory sealed: {} × ({}–{}) faster than on \
		 4 KB pages.",
		show(size),
		time(plain.p50),
		time(sealed.p50),
		three_figures(faster.value),
		three_figures(faster.interval.low),
		three_figures(faster.interval.high)
	))
}

fn creation(document: &Document) -> Option<String> {
	let (size, exits) =
		at_largest(document, crate::experiments::creation::EXPERIMENT, &[("measure", "cycle"), ("then", "exit")]);
	let (_, execs) =
		at_largest(document, crate::experiments::creation::EXPERIMENT, &[("measure", "cycle"), ("then", "exec")]);
	let (fork, vfork) = (method(&exits, "fork-4k")?, method(&exits, "vfork").filter(|vfork| vfork.p50 > 0.0)?);
	let started = match (method(&execs, "fork-4k"), method(&execs, "vfork")) {
		(Some(fork), Some(vfork)) if vfork.p50 > 0.0 => {
			format!(
				"; with exec it is {} × ({} and {})",
				three_figures(fork.p50 / vfork.p50),
				time(fork.p50),
				time(vfork.p50)
			)
		}
		_ => String::new(),
	};
	Some(format!(
		"From a parent with {}, fork, exit and reap take {}, vfork's {}: {} ×{started}.",
		show(size),
		time(fork.p50),
		time(vfork.p50),
		three_figures(fork.p50 / vfork.p50)
	))
}

fn merit(document: &Document) -> Option<String> {
	let model = Model::of(document, Method::Fork4k)?;
	let copied = copy_rate(document, 64 << 20)?;
	let now = [0.1, 0.5, 0.9].map(|share| model.fault_rate(share) / copied).into_iter().fold(0.0, f64::max);
	let [_, entry, page] = model.fit.coefficients;
	Some(format!(
		"Each 4 KB page costs a fork {} and each page then written {}. Of a page fault only {:.0} % is the copy; in 1988 it was \
		 {:.0} %.",
		nanoseconds(entry),
		time(page),
		now * 100.0,
		PAPER_MERIT[0].1 * 100.0
	))
}

fn nanoseconds(microseconds: f64) -> String {
	if microseconds < 1.0 { format!("{:.0} ns", microseconds * 1e3) } else { time(microseconds) }
}

fn writes(document: &Document) -> Option<String> {
	let pages = |granule: f64| -> Vec<(&str, f64)> {
		let of = document.records.iter().filter(|record| {
			record.experiment == crate::experiments::write_fraction::EXPERIMENT
				&& record.float("granule") == Some(granule)
		});
		of.map(|record| (record.method.as_str(), record.p50 * 100.0)).collect()
	};
	let small = pages(4096.0);
	let list: Vec<String> = small.iter().map(|(name, percent)| format!("{name} {percent:.0} %")).collect();
	let most = pages(2_097_152.0).iter().map(|&(_, percent)| percent).fold(0.0, f64::max);
	(!list.is_empty()).then(|| {
		format!(
			"Pages of 4 KB that a piece of work changed: {}. Counted in blocks of 2 MB it is up to {most:.0} %.",
			list.join(", ")
		)
	})
}

fn accesses(document: &Document) -> Option<String> {
	let (size, walks) = at_largest(document, crate::experiments::access::ACCESS_MIX, &[("measure", "fork_and_access")]);
	let all = |name: &str, read: f64| {
		walks.iter().copied().find(|record| {
			record.method == name
				&& record.float("accessed_percent") == Some(100.0)
				&& record.float("read_percent") == Some(read)
		})
	};
	let saved = |read| {
		let saved = (1.0 - all("seal", read)?.p50 / all("fork-4k", read)?.p50) * 100.0;
		saved.is_finite().then_some(saved)
	};
	let (reads, writes) = (saved(100.0)?, saved(0.0)?);
	let said = |percent: f64| match percent {
		percent if percent >= 0.0 => format!("saves {percent:.0} %"),
		percent => format!("costs {:.0} % more", -percent),
	};
	Some(format!(
		"Where the parent goes through all of its {} after the fork, sealed memory {} against 4 KB pages when it reads and {} when \
		 it writes.",
		show(size),
		said(reads),
		said(writes)
	))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_median_of_nothing_makes_no_finding() {
		let of = |experiment: &str, method: &str, chosen: &[(&str, serde_json::Value)], figure: f64| {
			Record::new(experiment, method, chosen.iter().cloned(), "us", vec![figure; 8]).unwrap()
		};
		let call = [("measure", json!("call")), ("parent", json!("idle")), ("size", json!(1 << 30))];
		let exit = [("measure", json!("cycle")), ("then", json!("exit")), ("size", json!(1 << 30))];
		let walk = |read: u64| {
			[
				("measure", json!("fork_and_access")),
				("size", json!(1 << 30)),
				("accessed_percent", json!(100)),
				("read_percent", json!(read)),
			]
		};
		let all = |divisor: f64| {
			let records = vec![
				of(crate::experiments::fork::EXPERIMENT, "fork-4k", &call, 50.0),
				of(crate::experiments::fork::EXPERIMENT, "seal", &call, divisor),
				of(crate::experiments::creation::EXPERIMENT, "fork-4k", &exit, 50.0),
				of(crate::experiments::creation::EXPERIMENT, "vfork", &exit, divisor),
				of(crate::experiments::access::ACCESS_MIX, "seal", &walk(0), 5.0),
				of(crate::experiments::access::ACCESS_MIX, "seal", &walk(100), 5.0),
				of(crate::experiments::access::ACCESS_MIX, "fork-4k", &walk(0), divisor),
				of(crate::experiments::access::ACCESS_MIX, "fork-4k", &walk(100), divisor),
			];
			findings(&Document::here(records).unwrap())
		};
		assert_eq!(all(2.0).len(), 3);
		assert_eq!(all(0.0), Vec::<String>::new());
	}
}
