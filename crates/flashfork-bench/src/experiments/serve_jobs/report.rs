//! The tables of `bench serve-jobs`.

use super::{EXPERIMENT, Way, job::Job};
use crate::prelude::*;

pub fn render_all(document: &Document) -> String {
	let clients = numbers(document.of(EXPERIMENT), "clients").into_iter().max().unwrap_or_default();
	let what = format!(
		"Jobs of three kinds in turn, of {clients} clients, who each ask again when they are answered; from asking until \
		 the answer is there.\nEach answer was that to its own job, each clone's its first."
	);
	let rows = Job::all().flat_map(|job| ways().map(move |way| (job, way)));
	let rows = rows.filter_map(|(job, way)| {
		let record = find(document, way, job.as_ref())?;
		let times = ratio_of(Some(record), find(document, Way::Clone, job.as_ref()));
		let times = times.filter(|_| way == Way::Process);
		Some(vec![job.title().to_owned(), name(way), time(record.p50), spread_of_rounds(Some(record)), shown(times)])
	});
	let jobs = titled(&what, "job | done by || median | 10–90 % | ÷ fresh clone", rows);
	let rates = ways().filter_map(|way| {
		let record = find(document, way, "all")?;
		let times = ratio_of(find(document, Way::Clone, "all"), Some(record)).filter(|_| way == Way::Process);
		Some(vec![name(way), three_figures(record.p50), shown(times)])
	});
	let rates = titled("All of them", "done by || jobs/s | fresh clones' ÷ these", rates);
	page(document, [jobs, rates])
}

fn ways() -> impl Iterator<Item = Way> {
	[Way::Clone, Way::Process].into_iter()
}

fn name(way: Way) -> String {
	if way == Way::Clone { "fresh clone" } else { "new process" }.to_owned()
}

fn find<'a>(document: &'a Document, way: Way, job: &str) -> Option<&'a Record> {
	document.of(EXPERIMENT).find(|record| record.method == way.as_ref() && record.text("job") == Some(job))
}
