//! Sealing itself: time per GB on the 4 KB and the 2 MB path, and how much more memory it takes at its peak.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::EXPERIMENT;
use super::footprint::held;
use super::plan::Plan;
use crate::subjects::Method;
use crate::subjects::Region;
use crate::subjects::engine::{self, Pages, Sealed};
use crate::subjects::memory;
use flashfork_measure::experiment::Results;
use flashfork_measure::order::shuffled_rounds;
use flashfork_measure::record::{Document, Record};
use flashfork_measure::worker::{Subject, Worker};
use flashfork_measure::{BenchError, Progress, pin};
use flashfork_terminal::size::Size;

/// Sealing is measured up to this size; the time grows in proportion.
const LARGEST: u64 = 1 << 30;
/// What a seal took, for each GB.
pub(super) const TIME: &str = "seal_time";
/// Extra bytes held at the peak, by the engine's own account.
pub(super) const EXTRA_REPORTED: &str = "seal_peak_extra_reported";
/// The same as seen from outside.
pub(super) const EXTRA_SEEN: &str = "seal_peak_extra_seen";
/// The share that got 2 MB pages.
pub(super) const HUGE_FRACTION: &str = "seal_huge_fraction";
/// How often a worker's memory is looked at while it seals.
const LOOK: Duration = Duration::from_millis(1);

/// The sealings of one size on one kind of pages.
#[derive(Debug, Clone)]
struct Sealing {
    /// Bytes sealed.
    size: u64,
    /// The path.
    pages: Pages,
    /// The CPU the sealing process was pinned to.
    cpu: usize,
    /// Every sealing.
    samples: Vec<Sample>,
}

/// One sealing.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// What the engine reports.
    pub sealed: Sealed,
    /// How far the memory the process held rose above its level before, seen from outside while it sealed, in bytes.
    pub rise: u64,
}

impl Sealing {
    /// Seconds per GB, of each sealing.
    fn seconds_per_gb(&self) -> Vec<f64> {
        let per_gb = |sealed: &Sealed| sealed.seconds / (sealed.bytes as f64 / f64::from(1 << 30));
        self.samples.iter().map(|sample| per_gb(&sample.sealed)).collect()
    }

    /// One record per figure; none when nothing was sealed.
    fn records(&self) -> Result<Vec<Record>, BenchError> {
        if self.samples.is_empty() {
            return Ok(Vec::new());
        }
        let of = |get: fn(&Sample) -> f64| self.samples.iter().map(get).collect::<Vec<f64>>();
        let figures = [
            (TIME, "s/GB", self.seconds_per_gb()),
            (EXTRA_REPORTED, "bytes", of(|sample| sample.sealed.peak_extra_bytes as f64)),
            (EXTRA_SEEN, "bytes", of(|sample| sample.rise as f64)),
            (HUGE_FRACTION, "ratio", of(|sample| sample.sealed.huge_fraction())),
        ];
        figures
            .into_iter()
            .map(|(measure, unit, samples)| {
                let chosen = [("measure", json!(measure)), ("size", json!(self.size)), ("pages", json!(self.pages))];
                let record = Record::new(EXPERIMENT, Method::Seal.name(), chosen, unit, samples)?;
                Ok(record.beside([("affinity", json!(format!("cpu {}", self.cpu)))]))
            })
            .collect()
    }
}

/// Measures sealing for every planned size up to 1 GB, on both paths in turn, each time in a fresh process.
pub(super) fn measure(plan: &Plan, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
    let sizes: Vec<u64> = plan.sizes.iter().copied().filter(|size| (1..=LARGEST).contains(size)).collect();
    for (index, &size) in sizes.iter().enumerate() {
        let deadline = progress.deadline().part(1.0 / (sizes.len() - index) as f64);
        progress.begin(&format!("{}: sealing", Size(size)), 2 * plan.seals as u64);
        let mut paths =
            [Pages::Small, Pages::Auto].map(|pages| Sealing { size, pages, cpu: plan.cpu, samples: Vec::new() });
        for order in shuffled_rounds(plan.seals, paths.len(), size) {
            if progress.interrupted() || (deadline.passed() && !paths[0].samples.is_empty()) {
                break;
            }
            for index in order {
                let path = &mut paths[index];
                match sample(size, path.pages, plan.cpu) {
                    Ok(sample) => path.samples.push(sample),
                    Err(error) => {
                        keep(&paths, results)?;
                        return Err(error);
                    }
                }
                progress.step();
            }
        }
        keep(&paths, results)?;
    }
    Ok(())
}

fn keep(paths: &[Sealing], results: &mut Results) -> Result<(), BenchError> {
    for path in paths {
        results.records.extend(path.records()?);
    }
    Ok(())
}

/// The record of one figure of sealing `size` bytes on `pages`.
pub(super) fn find<'a>(document: &'a Document, figure: &str, size: u64, pages: Pages) -> Option<&'a Record> {
    let wanted = [("measure", json!(figure)), ("size", json!(size)), ("pages", json!(pages))];
    document.find(EXPERIMENT, Method::Seal.name(), &wanted)
}

fn sample(size: u64, pages: Pages, cpu: usize) -> Result<Sample, BenchError> {
    let mut worker = Worker::<SealingSubject>::start(format!("sealing {}", Size(size)), &Spec { size, cpu })?;
    let pid = worker.pid();
    let before = held(pid)?;
    let mut peak = before;
    worker.send(&Ask::Seal(pages))?;
    while !worker.answered_within(LOOK)? {
        peak = peak.max(held(pid)?);
    }
    let sealed = worker.receive()?.ok_or_else(|| BenchError::Unable("a worker did not say what it sealed".into()))?;
    // Reads everything: a seal that loses bytes is not worth timing.
    worker.ask(&Ask::Verify)?;
    Ok(Sample { sealed, rise: peak - before })
}

/// The worker that seals once.
#[derive(Debug)]
pub(crate) struct SealingSubject {
    region: Region,
}

/// What to prepare.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    size: u64,
    cpu: usize,
}

/// A request.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Seal on this path.
    Seal(Pages),
    /// Check every byte.
    Verify,
}

impl Subject for SealingSubject {
    const NAME: &'static str = "sealing";
    type Spec = Spec;
    type Ready = ();
    type Ask = Ask;
    type Reply = Option<Sealed>;

    fn prepare(spec: Spec) -> Result<(Self, ()), BenchError> {
        pin::pin(spec.cpu)?;
        memory::touch(2 * spec.size)?;
        Ok((Self { region: Region::filled(Method::Seal, spec.size)? }, ()))
    }

    fn answer(&mut self, ask: Ask) -> Result<Option<Sealed>, BenchError> {
        match ask {
            Ask::Seal(pages) => engine::seal(pages, self.region.bytes()).map(Some),
            Ask::Verify => self.region.verify().map(|()| None),
        }
    }
}
