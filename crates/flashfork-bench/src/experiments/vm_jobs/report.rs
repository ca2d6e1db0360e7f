//! The tables of `bench vm-jobs`.

use super::found::{Cell, Measure, Method, Work};
use crate::{prelude::*, subjects::vm_host::MemoryPages};
use flashfork_measure::stats::quantile;

const CLONE: Method = Method::Clone(MemoryPages::Thp);

/// What a row of ratios is of: a measure's median, or the latency that so much of the jobs don't exceed.
#[derive(Clone, Copy)]
enum Of {
	Median(Measure),
	Latency(f64),
}

/// What the paper gives, as ratios of clones to cold boots.
const PAPER: [(Work, &str, Of, &str); 10] = [
	(Work::Java, "jobs a second", Of::Median(Measure::Throughput), "6.02 ×"),
	(Work::Java, "system time of a job", Of::Median(Measure::System), "0.16 ×"),
	(Work::Java, "latency, 95 %", Of::Latency(0.95), "0.167 ×"),
	(Work::Java, "job after readiness", Of::Median(Measure::Job), "4 KB: 1.15 ×, 2 MB: 1.055 ×"),
	(Work::Gcc, "jobs a second", Of::Median(Measure::Throughput), "1.46 ×"),
	(Work::Gcc, "system time of a job", Of::Median(Measure::System), "0.62 ×"),
	(Work::Gcc, "latency, 95 %", Of::Latency(0.95), "0.659 ×"),
	(Work::Gcc, "job after readiness", Of::Median(Measure::Job), "about 1 ×"),
	(Work::Mixed, "jobs a second", Of::Median(Measure::Throughput), ""),
	(Work::Mixed, "latency, 95 %", Of::Latency(0.95), ""),
];

pub fn render_all(document: &Document) -> String {
	let title = "Jobs in Linux guests, one machine for each CPU, a new one as soon as one has done its job. From the request until it is\n\
				 ready (booted, and the Java program loaded and warm), the job, both together; medians. 4k, thp (2 MB pages where half\n\
				 of one is there, as the monitor makes them): what the template's memory is made of. Templates for gcc have compiled once.";
	let headers = "jobs | method || ready | job | latency, median | 95 % | 99 % | n | jobs/s | system time of a job";
	let jobs = titled(title, headers, cells(document).map(|cell| overview(document, cell)));
	page(document, [jobs, comparison(document), promises(&targets(document))])
}

fn cells(document: &Document) -> impl Iterator<Item = Cell> {
	let all = Work::all().flat_map(|work| Method::ALL.map(|method| Cell { work, method }));
	all.filter(|cell| cell.find(document, Measure::Latency).is_some())
}

fn overview(document: &Document, cell: Cell) -> Vec<String> {
	let of = |measure, show: &dyn Fn(&Record) -> String| shown(cell.find(document, measure).map(show));
	let median = |measure| median_time(cell.find(document, measure));
	let latency = |q| of(Measure::Latency, &|record| time(share_of(record, q)));
	vec![
		cell.work.as_ref().to_owned(),
		cell.method.name(),
		median(Measure::Ready),
		median(Measure::Job),
		latency(0.5),
		latency(0.95),
		latency(0.99),
		of(Measure::Latency, &|record| record.n.to_string()),
		of(Measure::Throughput, &|record| three_figures(record.p50)),
		median(Measure::System),
	]
}

fn share_of(record: &Record, q: f64) -> f64 {
	let mut samples = record.samples.clone();
	samples.sort_unstable_by(f64::total_cmp);
	quantile(&samples, q)
}

/// Each method's figures as multiples of a boot's, beside the paper's.
fn comparison(document: &Document) -> String {
	let ratio = |work, method, of| -> Option<f64> {
		let cell = Cell { work, method };
		match of {
			Of::Median(measure) => cell.beside_boot(document, measure).map(|found| found.value),
			Of::Latency(q) => {
				let of = |cell: Cell| cell.find(document, Measure::Latency).map(|record| share_of(record, q));
				Some(of(cell)? / of(Cell { method: Method::Boot, ..cell })?)
			}
		}
	};
	let methods = &Method::ALL[1..];
	let row = |&(work, what, of, paper): &(Work, &str, Of, &str)| {
		let found: Vec<Option<f64>> = methods.iter().map(|method| ratio(work, *method, of)).collect();
		found.iter().any(Option::is_some).then(|| {
			let times = found.into_iter().map(|ratio| shown(ratio.map(|ratio| format!("{} ×", three_figures(ratio)))));
			[work.as_ref(), what, paper].map(str::to_owned).into_iter().chain(times).collect::<Vec<_>>()
		})
	};
	let names: Vec<String> = methods.iter().map(|method| method.name()).collect();
	let headers = format!("jobs | ÷ cold boot || HyperFork | {}", names.join(" | "));
	titled("Beside cold boots (HyperFork: 96 processors, Spark's π)", &headers, PAPER.iter().filter_map(row))
}

/// The promises, with what the records say about them.
fn targets(document: &Document) -> [Target; 2] {
	[(Work::Java, 6.0), (Work::Gcc, 1.5)].map(|(work, least)| {
		// What the monitor makes where it can.
		let ratio = |method| Cell { work, method }.beside_boot(document, Measure::Throughput);
		let found = ratio(CLONE).or_else(|| ratio(Method::Clone(MemoryPages::Small)));
		Target::at_least(format!("{}, jobs a second: clone ÷ cold boot", work.as_ref()), least, found)
	})
}
