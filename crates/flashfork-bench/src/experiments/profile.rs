//! `bench profile`: where the time of a plain fork goes, function by function of the kernel.
//!
//! Figure 3 of on-demand-fork (EuroSys 2021) found it in the counting of references to pages. `perf` samples a parent
//! that forks again and again; what its children spend on exiting is theirs and not in it.

mod perf;

use crate::{
	experiments::fork::{Ask, Batch, ForkSubject, Probe},
	prelude::*,
	subjects::parent::Spec,
};
use perf::Recording;

pub const EXPERIMENT: &str = "profile";

const KEPT: usize = 25;

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench profile --size 1G")]
pub struct ProfileOptions {
	/// Size of the parent's memory, on 4 KB pages
	#[arg(long, value_name = "SIZE", default_value = "512M")]
	pub size: Size,

	/// How long the parent forks, in seconds
	#[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
	pub seconds: u64,
}

impl Experiment for ProfileOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "Where the time of a plain fork goes in the kernel, by perf";
	const PAGE: fn(&Document) -> String = text;

	fn measure(&self, run: &mut Run) -> Result {
		let (method, size) = (Method::Fork4k, self.size.0);
		memory::require(&memory::headroom()?, format!("{}", self.size), method.memory_needed(size))?;
		let dir = WorkDir::new(None)?;
		let file = dir.path().join("perf.data");
		run.begin("filling memory", 1);
		let mut worker = Spec::here(method, size)?.start::<ForkSubject>()?;
		run.step();
		run.begin("forking under perf", self.seconds);
		let recording = Recording::start(worker.pid(), &file)?;
		let (begin, mut shown) = (Instant::now(), 0);
		while begin.elapsed() < Duration::from_secs(self.seconds) && !run.interrupted() {
			let batch = Batch { probe: Probe::Exit, samples: usize::MAX, budget: 200_000, start: None, seed: 1 };
			worker.ask(&Ask::Batch(batch))?;
			while shown < begin.elapsed().as_secs().min(self.seconds) {
				run.step();
				shown += 1;
			}
		}
		recording.stop()?;
		let shares = perf::shares(&file)?;
		for (symbol, share) in shares.iter().take(KEPT) {
			let chosen = json!({ "measure": "share_of_time", "size": size, "function": symbol });
			run.keep(Row::of(method.as_ref(), "ratio", chosen), vec![*share])?;
		}
		Ok(())
	}
}

fn text(document: &Document) -> String {
	let size = document.records.first().and_then(|record| record.number("size")).unwrap_or(0);
	let rows = document.records.iter().map(|record| {
		let function = record.text("function").unwrap_or_default();
		vec![function.to_owned(), format!("{} %", three_figures(record.p50 * 100.0))]
	});
	let title = format!(
		"Where the time of a parent goes that forks {} on 4 KB pages again and again ([k]: the kernel)",
		Size(size)
	);
	page(document, [titled(&title, "function || of the time", rows)])
}
