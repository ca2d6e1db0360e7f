//! The tables of `bench fuzz --targets`.

use super::{
	found::{Build, is_of_targets},
	way::Way,
};
use crate::prelude::*;

/// Inputs shorter than this, in microseconds, are promised a multiple of the fork server's rate.
const SHORT: f64 = 60.0;
/// Which.
const MULTIPLE: f64 = 3.0;
/// For longer ones the share of what forks and rounds by themselves let expect.
const SHARE: f64 = 0.8;
/// Rounds on rollback are as stable as this, in percent.
const STABLE: f64 = 99.9;

/// Everything, for people; `None` where the document has no targets.
pub fn render(document: &Document) -> Option<String> {
	is_of_targets(document).then(|| page(document, [throughput(document), promises(document)]))
}

/// The lowest stability of a way, in percent, and the most edges.
fn account(build: Build, document: &Document, way: Way) -> Option<(f64, f64, u64)> {
	let (rate, afl) = build.found(document, way)?;
	let stability = afl.iter().map(|afl| afl.stability_percent).fold(100.0, f64::min);
	Some((rate, stability, afl.iter().map(|afl| afl.edges).max()?))
}

fn throughput(document: &Document) -> String {
	let rows = |build: Build| {
		let plain = account(build, document, Way::ForkServer).map(|(rate, ..)| rate);
		Way::all().filter_map(move |way| {
			let (rate, stability, edges) = account(build, document, way)?;
			Some(vec![
				build.name(),
				way.as_ref().to_owned(),
				three_figures(rate),
				plain.map_or(String::new(), |plain| three_figures(rate / plain)),
				format!("{stability:.2} %"),
				edges.to_string(),
			])
		})
	};
	titled(
		"Executions: the median of the slices, the lowest stability, the most edges after equal time",
		"target | way || executions/s | × fork server | stability | edges",
		Build::all().flat_map(rows),
	)
}

fn promises(document: &Document) -> String {
	let row = |build: Build| {
		let times = build.found_times(document)?;
		let (plain, ..) = account(build, document, Way::ForkServer)?;
		let (rate, stability, _) = account(build, document, Way::Rollback)?;
		let (expected, got) = (times.forked / times.looped, rate / plain);
		let wanted = if times.bare <= SHORT { MULTIPLE } else { SHARE * expected };
		// What AddressSanitizer costs is reported, and nothing is promised of it.
		let verdict = match build.sanitized {
			true => "",
			false if got >= wanted && stability >= STABLE => "yes",
			false => "no",
		};
		Some(vec![
			build.name(),
			time(times.bare),
			time(times.forked),
			time(times.looped),
			three_figures(expected),
			three_figures(got),
			if build.sanitized { String::new() } else { three_figures(wanted) },
			verdict.to_owned(),
		])
	};
	titled(
		"One input of the corpus without AFL, and the loop on rollback against the fork server",
		"target || one input | forked | on rollback | forked ÷ rollback | under AFL | wanted | met?",
		Build::all().filter_map(row),
	)
}
