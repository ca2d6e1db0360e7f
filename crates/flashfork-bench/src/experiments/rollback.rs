//! `bench rollback`: what it costs to go back, by how many pages were written.
//!
//! A region of the size asked for, once on 2 MB pages and once on 4 KB pages, is filled, sealed and rolled back again
//! and again after so many random pages were written. The writes are timed too: the first to a page after a rollback is
//! a fault that copies it. Every page written is looked at after the rollback. Beside that a process with memory of
//! that size goes back as a whole ([`flashfork::restore`]).

mod subject;

pub(crate) use subject::RollbackSubject;

use std::time::Instant;

use flashfork::{Pages, Region};
use serde_json::json;

use crate::subjects::Method;
use crate::subjects::memory;
use crate::subjects::parent::{RESERVE, Spec};
use flashfork_measure::experiment::{Experiment, Places, Results, page};
use flashfork_measure::record::Document;
use flashfork_measure::sampling::{Effort, Visit, sample};
use flashfork_measure::stats::Summary;
use flashfork_measure::worker::Registered;
use flashfork_measure::{BenchError, Progress, pin};
use flashfork_terminal::size::{Size, show};
use flashfork_terminal::table::{render, time, time_range};
use std::time::Duration;
use subject::Ask;

/// The name of this experiment in records.
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

/// Options of `bench rollback`.
#[derive(Debug, Clone, clap::Args)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    /// Going back.
    Rollback,
    /// Writing the pages before that.
    Write,
}

impl Measure {
    fn name(self) -> &'static str {
        match self {
            Self::Rollback => "rollback",
            Self::Write => "write",
        }
    }
}

impl Experiment for RollbackOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str = "Going back to a state: a region's rollback, by pages written since";
    const WORKERS: &'static [Registered] = &[Registered::of::<RollbackSubject>()];

    fn measure(&self, _: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        measure(self, results, progress)
    }

    fn page(document: &Document) -> String {
        report(document)
    }
}

fn measure(options: &RollbackOptions, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
    let size = options.size.0;
    memory::require(&memory::headroom()?, format!("two regions of {}", show(size)), 2 * size + RESERVE)?;
    pin::pin(pin::chosen_cpu()?)?;
    progress.begin("preparing regions", WAYS.len() as u64);
    let mut regions = Vec::new();
    for (name, pages) in WAYS {
        let region = prepare(size, pages)?;
        progress.step();
        if pages == Pages::Auto && region.huge_bytes() < region.len() {
            results.leave_out(name, "the kernel gave no 2 MB pages for all of it", progress);
        } else {
            regions.push((name, region));
        }
    }
    let cells: Vec<(usize, usize)> = (0..regions.len()).flat_map(|r| WRITTEN.map(|written| (r, written))).collect();
    let effort = match options.quick {
        true => Effort { warm_up: 1, least: 5, most: 20, precision: 0.05, cap: Duration::from_secs(10) },
        false => Effort { warm_up: 1, least: 20, most: 100, precision: 0.02, cap: Duration::from_secs(60) },
    };
    let effort = effort.until(progress.deadline());
    progress.begin("rollbacks", effort.steps());
    let mut random = fastrand::Rng::with_seed(size);
    let (sampled, done) = sample(cells.len(), &effort, size, progress, |cell, _| {
        let (region, written) = cells[cell];
        visit(&mut regions[region].1, written, &mut random)
    });
    for (&(region, written), series) in cells.iter().zip(&sampled.cells) {
        for series in series {
            let chosen =
                [("measure", json!(series.measure.name())), ("size", json!(size)), ("pages_written", json!(written))];
            results.keep(regions[region].0, chosen, [], "us", series, sampled.ended)?;
        }
    }
    done?;
    drop(regions);
    if progress.interrupted() {
        return Ok(());
    }
    measure_process(options, results, progress)
}

/// A whole process, in a worker: this one has threads.
fn measure_process(
    options: &RollbackOptions,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let size = options.size.0;
    let mut worker = Spec::here(Method::Seal, size)?.start::<RollbackSubject>()?;
    // Each visit takes a snapshot, which costs as much as a seal.
    let least = if options.quick { 2 } else { 5 };
    let effort = Effort {
        warm_up: 0,
        least,
        most: 2 * least,
        precision: 0.05,
        cap: Duration::from_secs(if options.quick { 20 } else { 120 }),
    };
    let effort = effort.until(progress.deadline());
    progress.begin("restores of a process", effort.steps());
    let (sampled, done) = sample(WRITTEN.len(), &effort, size, progress, |cell, round| {
        worker.ask(&Ask { written: WRITTEN[cell], turns: TURNS, seed: round as u64 })
    });
    for (&written, series) in WRITTEN.iter().zip(&sampled.cells) {
        for series in series {
            let chosen =
                [("measure", json!(series.measure.name())), ("size", json!(size)), ("pages_written", json!(written))];
            results.keep(PROCESS, chosen, [], "us", series, sampled.ended)?;
        }
    }
    done
}

/// A sealed region; each page begins with its number.
fn prepare(size: u64, pages: Pages) -> Result<Region, BenchError> {
    let unable = |e: flashfork::RegionError| BenchError::Unable(e.to_string());
    let size = usize::try_from(size).map_err(|_| BenchError::Unable(format!("{size} bytes can't be addressed")))?;
    let mut region = Region::new(size, pages).map_err(unable)?;
    for (number, page) in region.bytes().chunks_exact_mut(PAGE).enumerate() {
        page.fill(0xa5);
        page[..8].copy_from_slice(&number.to_ne_bytes());
    }
    region.seal().map_err(unable)?;
    Ok(region)
}

fn visit(region: &mut Region, written: usize, random: &mut fastrand::Rng) -> Result<Visit<Measure>, BenchError> {
    let (mut back, mut write) = (Vec::new(), Vec::new());
    // The first turn finds caches full of the other cells' data: it is made and checked, but not counted.
    for turn in 0..=TURNS {
        let pages: Vec<usize> = (0..written).map(|_| random.usize(..region.len() / PAGE)).collect();
        let bytes = region.bytes();
        let begin = Instant::now();
        for page in &pages {
            bytes[page * PAGE] ^= 0xff;
        }
        let wrote = begin.elapsed();
        let begin = Instant::now();
        let result = region.rollback();
        let took = begin.elapsed();
        result.map_err(|e| BenchError::Unable(e.to_string()))?;
        let bytes = region.bytes();
        if let Some(page) = pages.iter().find(|page| bytes[**page * PAGE..][..8] != page.to_ne_bytes()) {
            return Err(BenchError::Void(format!("page {page} was not rolled back")));
        }
        if turn > 0 {
            back.push(took.as_nanos() as f64 / 1e3);
            write.push(wrote.as_nanos() as f64 / 1e3);
        }
        // What the check has read would be dropped by the next rollback: it is dropped now.
        region.rollback().map_err(|e| BenchError::Unable(e.to_string()))?;
    }
    Ok(vec![(Measure::Rollback, back), (Measure::Write, write)])
}

fn report(document: &Document) -> String {
    let mut rows = Vec::new();
    for name in [WAYS[0].0, WAYS[1].0, PROCESS] {
        for written in WRITTEN {
            let of = |measure: &str| {
                document.find(EXPERIMENT, name, &[("measure", measure.into()), ("pages_written", written.into())])
            };
            let (Some(back), Some(write)) = (of("rollback"), of("write")) else { continue };
            let Some(summary) = Summary::of(&back.samples) else { continue };
            rows.push(vec![
                name.to_owned(),
                written.to_string(),
                time(summary.p50),
                time_range(summary.p10, summary.p90),
                time(write.p50),
                verdict(name, written, summary.p50),
            ]);
        }
    }
    let size = document.records.iter().find_map(|record| record.chosen.get("size")?.as_u64()).unwrap_or(0);
    let headers = ["method", "pages written", "rollback", "p10–p90", "writing them", "target"];
    page(
        document,
        [format!("A region of {0}, and a process with as much memory\n{1}", show(size), render(&headers, &rows, 1))],
    )
}

fn verdict(name: &str, written: usize, p50: f64) -> String {
    let target = TARGETS.iter().find(|(pages, _)| name == WAYS[0].0 && *pages == written);
    target.map_or(String::new(), |(_, most)| {
        format!("≤ {}: {}", time(*most), if p50 <= *most { "met" } else { "missed" })
    })
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
        assert_eq!(verdict("region-4k", 1, 4.9) + &verdict("region-2m", 10, 1.0), "");
    }
}
