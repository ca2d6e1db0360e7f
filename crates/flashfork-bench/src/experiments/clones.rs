//! `bench clones`: many clones of one parent alive at once: how long until all are, and what each holds, the kernel's
//! share included.
//!
//! Each clone writes its own few pages, says that it is alive, and waits. Memory is what the parent's memory cgroup is
//! charged with more than before (page tables, stacks and task structures among it), where one can be made; else what
//! the machine no longer has. Plain forks take so long and so much that fewer are made of them.

mod subject;

pub use subject::ClonesSubject;

use crate::{
	prelude::*,
	subjects::{
		held::Counter,
		parent::{self, RESERVE, Spec},
	},
};
use flashfork_measure::worker::unexpected;
use subject::{Ask, Reply};

pub const EXPERIMENT: &str = "clones";

/// What SPECIFICATION.md promises of 1,000 sealed clones at 1 GB: seconds for all, bytes for each.
const TARGETS: (f64, f64) = (1.0, 300.0 * 1024.0);

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench clones --count 1000 --size 1G")]
pub struct ClonesOptions {
	/// How many sealed clones live at once
	#[arg(long, value_name = "N", default_value_t = 1000, value_parser = count(1..=20_000))]
	pub count: u32,

	/// How many clones of each other method
	#[arg(long, value_name = "N", default_value_t = 100, value_parser = count(1..=20_000))]
	pub others: u32,

	/// Size of the parent's memory
	#[arg(long, value_name = "SIZE", default_value = "1G")]
	pub size: Size,

	/// Random pages that each clone writes
	#[arg(long, value_name = "N", default_value_t = 16)]
	pub pages: u32,

	/// How often all are made
	#[arg(long, value_name = "N", default_value_t = 5, value_parser = count(1..=1000))]
	pub rounds: u32,
}

impl Experiment for ClonesOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "Many clones alive at once: how long until all are, and what each holds";
	const WORKERS: &'static [Registered] = &[Registered::of::<ClonesSubject>()];
	const PAGE: fn(&Document) -> String = report;

	fn measure(&self, run: &mut Run) -> Result {
		let size = self.size.0;
		let methods = parent::of_any_size(run);
		run.begin("clones", methods.len() as u64 * u64::from(self.rounds));
		// One after the other: a thousand clones of one method would disturb the others.
		for method in methods {
			run.go_on()?;
			if run.no_time_for(method.as_ref()) {
				continue;
			}
			let count = if method == Method::Seal { self.count } else { self.others };
			let each =
				(u64::from(self.pages) << 12) + (256 << 10) + if method == Method::Seal { 0 } else { size / 256 };
			let needed = method.memory_needed(size) + u64::from(count) * each + RESERVE;
			memory::require(
				&memory::headroom()?,
				format!("{count} clones of {}, method {method},", show(size)),
				needed,
			)?;
			let counter = Counter::new();
			let mut worker = Spec::here(method, size)?.start::<ClonesSubject>()?;
			let mut samples = Samples::default();
			let done = run.rounds(self.rounds, |_, round| {
				let ask = Ask::Make { count, pages: self.pages, seed: round as u64 };
				samples.take(&mut worker, &ask, count, &counter)
			});
			let Samples { seconds, forks, bytes } = samples;
			for (measure, unit, samples) in
				[("alive", "s", seconds), ("forks", "s", forks), ("memory_each", "bytes", bytes)]
			{
				let chosen = json!({
					"measure": measure,
					"size": size,
					"count": count,
					"pages_written": self.pages,
					"counted_by": counter.name(),
				});
				run.keep(Row::of(method.as_ref(), unit, chosen), samples)?;
			}
			done?;
		}
		Ok(())
	}
}

#[derive(Default)]
struct Samples {
	seconds: Vec<f64>,
	forks: Vec<f64>,
	bytes: Vec<f64>,
}

impl Samples {
	/// Makes `count` clones, counts what they hold, and has them end.
	fn take(&mut self, worker: &mut Worker<ClonesSubject>, make: &Ask, count: u32, counter: &Counter) -> Result {
		let before = counter.used()?;
		let (seconds, forks) = match worker.ask(make)? {
			Reply::Made { seconds, forks } => (seconds, forks),
			other => return Err(unexpected(&other)),
		};
		self.bytes.push((counter.used()? - before) / f64::from(count));
		self.seconds.push(seconds);
		self.forks.push(forks);
		worker.ask(&Ask::End).map(drop)
	}
}

fn report(document: &Document) -> String {
	let mut rows = Vec::new();
	for method in Method::all() {
		let of = |measure: &str| document.find(EXPERIMENT, method, json!({ "measure": measure }));
		let (Some(alive), Some(forks), Some(memory)) = (of("alive"), of("forks"), of("memory_each")) else { continue };
		let count = alive.number("count").unwrap_or(0);
		let size = alive.number("size");
		rows.push(vec![
			method.as_ref().to_owned(),
			count.to_string(),
			time(alive.p50 * 1e6),
			time(alive.max * 1e6),
			time(forks.p50 / count as f64 * 1e6),
			show(memory.p50.max(0.0) as u64),
			if method == Method::Seal { verdict(count, size, alive.p50, memory.p50) } else { String::new() },
		]);
	}
	let first = document.records.first();
	let number = |name: &str| first.and_then(|record| record.number(name)).unwrap_or(0);
	let headers = "method || clones | until all live | slowest round | a fork | memory of each | target";
	let head = format!(
		"Clones of {} that live at once, each having written {} pages; memory by {}",
		show(number("size")),
		number("pages_written"),
		first.and_then(|record| record.text("counted_by")).unwrap_or("nothing"),
	);
	page(document, [titled(&head, headers, rows)])
}

/// The promise is about 1,000 clones of 1 GB.
fn verdict(count: u64, size: Option<u64>, seconds: f64, bytes: f64) -> String {
	if (count, size) != (1000, Some(1 << 30)) {
		return String::new();
	}
	format!("≤ 1 s: {}; ≤ 300 KB: {}", met(seconds <= TARGETS.0), met(bytes <= TARGETS.1))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_verdict_is_about_a_thousand_clones_of_a_gigabyte() {
		assert_eq!(verdict(1000, Some(1 << 30), 0.4, 200e3), "≤ 1 s: met; ≤ 300 KB: met");
		assert_eq!(verdict(1000, Some(1 << 30), 1.4, 400e3), "≤ 1 s: missed; ≤ 300 KB: missed");
		assert_eq!(verdict(10, Some(1 << 30), 0.4, 200e3) + &verdict(1000, None, 0.1, 1.0), "");
	}
}
