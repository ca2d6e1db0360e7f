//! `bench rollback`: what it costs to go back, by how many pages were written.
//!
//! A region, on 2 MB pages and on 4 KB pages, is sealed and rolled back by dropping, again and again after so many
//! random pages were written. The writes are timed too: the first to a page after a rollback is a fault. Every page
//! written is looked at after the rollback. Beside that a process with memory of that size goes back as a whole
//! ([`flashfork::restore`]).
//!
//! What a harness pays is a whole cycle, from one input's accesses to the next one's. So cycles of 25 reads and 25
//! writes are timed: with a region that drops, one that copies, one that chooses, and with a clone for each input
//! ([`cycle`]); and with a whole process, in which an input uses the heap, too ([`process`]).

mod cycle;
mod pages;
mod process;
mod subject;

pub use cycle::CycleSubject;
pub use process::ProcessSubject;
pub use subject::RollbackSubject;

use flashfork_core::{
	Pages,
	region::{self, Region, Way},
};

use crate::{
	prelude::*,
	subjects::parent::{RESERVE, Spec},
};
use cycle::{CycleSpec, Kept};
use pages::Accesses;
use subject::Ask;

pub const EXPERIMENT: &str = "rollback";

/// How many pages are written between two rollbacks.
const WRITTEN: [usize; 4] = [1, 10, 100, 1000];
/// The two ways a region is made, and what they are called.
const WAYS: [(&str, Pages); 2] = [("region-2m", Pages::Auto), ("region-4k", Pages::Small)];
/// A process that goes back as a whole.
const PROCESS: &str = "process";
/// What SPECIFICATION.md promises: pages written, microseconds at 1 GB.
const TARGETS: [(usize, f64); 2] = [(1, 5.0), (100, 100.0)];
/// Turns a visit.
const TURNS: usize = 20;
const PAGE: usize = 4096;
const FILL: u8 = 0xa5;
/// Sizes of regions whose cycles are timed, beside the size asked for.
const SIZES: [u64; 2] = [16 << 20, 128 << 20];
/// Sizes of processes whose cycles are timed, beside the size asked for or the largest.
const PROCESS_SIZES: [u64; 3] = [1 << 20, 16 << 20, 64 << 20];
const LARGEST_PROCESS: u64 = 256 << 20;
/// With what the names of their methods begin.
const WHOLE: &str = "process-";
/// What SPECIFICATION.md promises of cycles with hot pages: size, how often as fast as a clone.
const TIMES_FASTER: [(u64, f64); 3] = [(16 << 20, 6.0), (128 << 20, 5.0), (1 << 30, 2.5)];
/// How much more than the better way a region that chooses may cost.
const AT_MOST: f64 = 1.2;

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench rollback --size 256M")]
pub struct RollbackOptions {
	/// Size of the region; twice that must fit
	#[arg(long, value_name = "SIZE", default_value = "1G")]
	pub size: Size,

	/// Fewer samples
	#[arg(long)]
	pub quick: bool,
}

/// What is measured, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
	/// Going back.
	Rollback,
	/// Writing the pages before that.
	Write,
	/// An input's accesses, and all that keeps the next input from seeing them.
	Cycle,
}

impl Experiment for RollbackOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "Going back to a state: a region's rollback, by pages written since, and whole cycles";
	const WORKERS: &'static [Registered] =
		&[Registered::of::<RollbackSubject>(), Registered::of::<CycleSubject>(), Registered::of::<ProcessSubject>()];
	const PAGE: fn(&Document) -> String = report;

	fn measure(&self, run: &mut Run) -> Result {
		let size = self.size.0;
		memory::require(&memory::headroom()?, format!("two regions of {}", show(size)), 2 * size + RESERVE)?;
		pin::pin(pin::chosen_cpu()?)?;
		run.begin("preparing regions", WAYS.len() as u64);
		let mut regions = Vec::new();
		for (name, pages) in WAYS {
			let region = prepare(size, pages)?;
			run.step();
			if pages == Pages::Auto && region.huge() < region.range().len() {
				run.leave_out(name, "the kernel gave no 2 MB pages for all of it");
			} else {
				regions.push((name, region));
			}
		}
		let cells: Vec<(usize, usize)> = (0..regions.len()).flat_map(|r| WRITTEN.map(|written| (r, written))).collect();
		let effort = if self.quick { Effort::precise(0.05, 5..=20, 10) } else { Effort::precise(0.02, 20..=100, 60) };
		let mut random = fastrand::Rng::with_seed(size);
		let taken = run.sample("rollbacks", effort, cells.len(), size, |cell, _| {
			let (region, written) = cells[cell];
			visit(&mut regions[region].1, written, &mut random)
		});
		taken.keep(run, |cell, measure| {
			let (region, written) = cells[cell];
			Row::of(regions[region].0, "us", json!({ "measure": measure, "size": size, "pages_written": written }))
		})?;
		drop(regions);
		run.go_on()?;
		measure_process(self, run)?;
		run.go_on()?;
		measure_cycles::<CycleSubject>("", &SIZES, size, self, run)?;
		run.go_on()?;
		measure_cycles::<ProcessSubject>(WHOLE, &PROCESS_SIZES, size.min(LARGEST_PROCESS), self, run)
	}
}

/// Whole cycles, each kind in its own worker: what a region has found out by timing stays there. `of`: with what the
/// names of methods begin.
fn measure_cycles<S: Subject<Spec = CycleSpec, Ready = bool, Ask = (), Reply = Visit<Measure>>>(
	of: &str,
	sizes: &[u64],
	most: u64,
	options: &RollbackOptions,
	run: &mut Run,
) -> Result {
	let hot = sizes.iter().copied().filter(|size| *size < most).chain([most]).map(|size| (size, Accesses::Hot));
	for (size, accesses) in hot.chain([(most, Accesses::Scattered)]) {
		let cell = format!("{of}cycles of {} {}", show(size), accesses.as_ref());
		let needed = Kept::VARIANTS.len() as u64 * size + RESERVE;
		if let Err(e) = memory::require(&memory::headroom()?, format!("{} regions", Kept::VARIANTS.len()), needed) {
			run.leave_out(cell, e.to_string());
			continue;
		}
		run.begin(&format!("preparing {cell}"), Kept::VARIANTS.len() as u64);
		let mut workers = Vec::new();
		for kept in Kept::all() {
			let spec = CycleSpec { size, accesses, kept, cpu: pin::chosen_cpu()? };
			let worker = Worker::<S>::start(format!("{cell} {}", kept.as_ref()), &spec)?;
			run.step();
			if *worker.ready() {
				workers.push((kept, worker));
			} else {
				run.leave_out(format!("{cell} {}", kept.as_ref()), "nothing can be copied back here");
			}
		}
		let effort = match options.quick {
			true => Effort::precise(0.05, 2..=10, 5),
			false => Effort { warm_up: 2, ..Effort::precise(0.02, 20..=100, 30) },
		};
		let taken = run.sample(&cell, effort, workers.len(), size, |cell, _| workers[cell].1.ask(&()));
		taken.keep(run, |cell, measure| {
			let chosen = json!({ "measure": measure, "size": size, "accesses": accesses.as_ref() });
			Row::of(format!("{of}{}", workers[cell].0.as_ref()), "us", chosen)
		})?;
		run.go_on()?;
	}
	Ok(())
}

/// A whole process, in a worker: this one has threads.
fn measure_process(options: &RollbackOptions, run: &mut Run) -> Result {
	let size = options.size.0;
	let mut worker = Spec::here(Method::Seal, size)?.start::<RollbackSubject>()?;
	// Each visit takes a snapshot, which costs as much as a seal.
	let (least, seconds) = if options.quick { (2, 20) } else { (5, 120) };
	let effort = Effort { warm_up: 0, ..Effort::precise(0.05, least..=2 * least, seconds) };
	let taken = run.sample("restores of a process", effort, WRITTEN.len(), size, |cell, round| {
		worker.ask(&Ask { written: WRITTEN[cell], turns: TURNS, seed: round as u64 })
	});
	taken.keep(run, |cell, measure| {
		Row::of(PROCESS, "us", json!({ "measure": measure, "size": size, "pages_written": WRITTEN[cell] }))
	})
}

/// A sealed region; each page begins with its number.
fn prepare(size: u64, pages: Pages) -> Result<Region> {
	let size = usize::try_from(size).map_err(|_| unable!("{size} bytes can't be addressed"))?;
	let mut region = Region::map(size, pages).map_err(unable)?;
	region.go_back_by(Some(Way::Drop));
	for (number, page) in bytes(&mut region).chunks_exact_mut(PAGE).enumerate() {
		page.fill(FILL);
		page[..8].copy_from_slice(&number.to_ne_bytes());
	}
	region.seal().map_err(unable)?;
	Ok(region)
}

fn unable(error: region::Error) -> BenchError {
	BenchError::Unable(flashfork::RegionError::from(error).to_string())
}

fn bytes(region: &mut Region) -> &mut [u8] {
	let range = region.range();
	// SAFETY: mapped while the region is borrowed.
	unsafe { std::slice::from_raw_parts_mut(range.start as *mut u8, range.len()) }
}

fn visit(region: &mut Region, written: usize, random: &mut fastrand::Rng) -> Result<Visit<Measure>> {
	let (mut back, mut write) = (Vec::new(), Vec::new());
	// The first turn finds caches full of the other cells' data: it is made and checked, but not counted.
	for turn in 0..=TURNS {
		let pages: Vec<usize> = (0..written).map(|_| random.usize(..region.range().len() / PAGE)).collect();
		let bytes = bytes(region);
		let begin = Instant::now();
		for page in &pages {
			bytes[page * PAGE] ^= 0xff;
		}
		let wrote = begin.elapsed();
		let begin = Instant::now();
		let result = region.rollback();
		let took = begin.elapsed();
		result.map_err(unable)?;
		let bytes = self::bytes(region);
		if let Some(page) = pages.iter().find(|page| bytes[**page * PAGE..][..8] != page.to_ne_bytes()) {
			return Err(BenchError::Void(format!("page {page} was not rolled back")));
		}
		if turn > 0 {
			back.push(took.as_nanos() as f64 / 1e3);
			write.push(wrote.as_nanos() as f64 / 1e3);
		}
		// What the check has read would be dropped by the next rollback: it is dropped now.
		region.rollback().map_err(unable)?;
	}
	Ok(vec![(Measure::Rollback, back), (Measure::Write, write)])
}

fn report(document: &Document) -> String {
	let mut rows = Vec::new();
	for name in [WAYS[0].0, WAYS[1].0, PROCESS] {
		for written in WRITTEN {
			let of = |measure: &str| {
				document.find(EXPERIMENT, name, json!({ "measure": measure, "pages_written": written }))
			};
			let (Some(back), Some(write)) = (of("rollback"), of("write")) else { continue };
			let Some(summary) = Summary::of(&back.samples) else { continue };
			rows.push(vec![
				name.to_owned(),
				written.to_string(),
				time(summary.p50),
				spread(Some(back)),
				time(write.p50),
				verdict(name, written, summary.p50),
			]);
		}
	}
	let of = |record: &&Record| record.method == PROCESS || WAYS.iter().any(|(name, _)| record.method == *name);
	let size = document.records.iter().filter(of).find_map(|record| record.number("size")).unwrap_or(0);
	let title = format!("A region of {} that drops, and a process with as much memory", show(size));
	let restores = titled(&title, "method || pages written | rollback | p10–p90 | writing them | target", rows);
	let parts = [
		restores,
		cycles(document, "", "Cycles of 25 reads and 25 writes"),
		cycles(document, WHOLE, "A whole process: cycles that also take 40 blocks of the heap"),
	];
	page(document, parts)
}

fn cycles(document: &Document, begin: &str, title: &str) -> String {
	let sizes = numbers(&document.records, "size");
	let mut rows = Vec::new();
	for (accesses, size) in
		[Accesses::Hot, Accesses::Scattered].into_iter().flat_map(|a| sizes.iter().map(move |s| (a, *s)))
	{
		let of = |kept: Kept| {
			let wanted = json!({ "measure": "cycle", "size": size, "accesses": accesses.as_ref() });
			Summary::of(&document.find(EXPERIMENT, format!("{begin}{}", kept.as_ref()), wanted)?.samples)
		};
		for kept in Kept::all() {
			let Some(summary) = of(kept) else { continue };
			let faster = of(Kept::Fork).map_or(String::new(), |fork| format!("{:.1}", fork.p50 / summary.p50));
			rows.push(vec![
				show(size),
				accesses.as_ref().to_owned(),
				format!("{begin}{}", kept.as_ref()),
				time(summary.p50),
				time_range(summary.p10, summary.p90),
				faster,
				if kept == Kept::Automatic {
					let better = [Kept::Dropping, Kept::Copying].into_iter().filter_map(|kept| Some(of(kept)?.p50));
					// Only of regions is it promised how often they are as fast.
					let fork = of(Kept::Fork).filter(|_| begin.is_empty());
					cycle_verdict(size, accesses, summary.p50, fork.map(|fork| fork.p50), better)
				} else {
					String::new()
				},
			]);
		}
	}
	titled(title, "size | accesses | method || cycle | p10–p90 | times as fast as a clone | target", rows)
}

/// Whether a region that chooses keeps what SPECIFICATION.md promises.
fn cycle_verdict(
	size: u64,
	accesses: Accesses,
	cycle: f64,
	fork: Option<f64>,
	better: impl Iterator<Item = f64>,
) -> String {
	let least = TIMES_FASTER.iter().find(|(of, _)| *of == size && accesses == Accesses::Hot);
	let faster = least.zip(fork).map(|((_, least), fork)| format!("≥ {least}: {}", met(fork / cycle >= *least)));
	let most = AT_MOST * better.fold(f64::INFINITY, f64::min);
	let chosen = most.is_finite().then(|| format!("≤ {}: {}", time(most), met(cycle <= most)));
	faster.into_iter().chain(chosen).collect::<Vec<_>>().join(", ")
}

fn verdict(name: &str, written: usize, p50: f64) -> String {
	let target = TARGETS.iter().find(|(pages, _)| name == WAYS[0].0 && *pages == written);
	target.map_or(String::new(), |(_, most)| format!("≤ {}: {}", time(*most), met(p50 <= *most)))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_is_written_is_rolled_back_and_timed() {
		let mut random = fastrand::Rng::with_seed(1);
		for (_, pages) in WAYS {
			let mut region = prepare(8 << 20, pages).unwrap();
			for written in [1, 100] {
				let visit = visit(&mut region, written, &mut random).unwrap();
				assert!(visit.len() == 2 && visit.iter().all(|(_, samples)| samples.len() == TURNS));
			}
		}
	}

	#[test]
	fn targets_are_for_2_mb_pages() {
		assert_eq!(verdict("region-2m", 1, 4.9), "≤ 5.00 µs: met");
		assert_eq!(verdict("region-2m", 100, 101.0), "≤ 100 µs: missed");
		let said = |cycle| cycle_verdict(16 << 20, Accesses::Hot, cycle, Some(240.0), [150.0, 20.0].into_iter());
		assert_eq!(said(20.0), "≥ 6: met, ≤ 24.0 µs: met");
		assert_eq!(said(50.0), "≥ 6: missed, ≤ 24.0 µs: missed");
		let scattered = cycle_verdict(1 << 30, Accesses::Scattered, 160.0, Some(240.0), [150.0].into_iter());
		assert_eq!(scattered, "≤ 180 µs: met");
		assert_eq!(verdict("region-4k", 1, 4.9) + &verdict("region-2m", 10, 1.0), "");
	}
}
