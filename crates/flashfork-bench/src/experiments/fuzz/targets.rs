//! `bench fuzz --targets`: libraries that many people fuzz, each built for AFL++ with and without AddressSanitizer, and
//! fuzzed in every way there is, in turns.

mod build;
mod campaign;
mod found;
mod report;
mod source;
mod target;
mod way;

use std::path::Path;
use std::time::Duration;

use flashfork_measure::experiment::{Places, Results};
use flashfork_measure::order::shuffled_rounds;
use flashfork_measure::workdir::WorkDir;
use flashfork_measure::{BenchError, Progress, pin};

use super::FuzzOptions;
use build::{Builder, Built};
use found::{Build, Slice};

pub(super) use report::render;
pub use target::Target;
use way::Way;

/// Added to the number of a slice for AFL's random seed: the same inputs for every way, others in every slice.
const SEED: u64 = 9;

/// Measures the targets in turn.
pub(super) fn measure(
    targets: &[Target],
    options: &FuzzOptions,
    here: &dyn Places,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let shim = super::shim(options, here)?;
    let cache = options.cache.clone().map_or_else(|| here.cache("bench"), Ok)?;
    let work = WorkDir::new(Some(&cache))?;
    let builder = Builder::new(&cache, &shim)?;
    let cpu = pin::chosen_cpu()?;
    for &target in targets {
        let source = match source::obtain(target, &cache, progress) {
            Ok(source) => source,
            Err(error) => {
                results.leave_out(target.name(), error.to_string(), progress);
                continue;
            }
        };
        let seeds = work.path().join(format!("{}-seeds", target.name()));
        target.write_seeds(&source, &seeds)?;
        for sanitized in [false, true] {
            let build = Build { target, sanitized };
            if progress.interrupted() {
                return Ok(());
            }
            if progress.deadline().passed() {
                results.no_time_for(build.name(), progress);
                continue;
            }
            let built = match builder.build(build, &source, work.path(), progress) {
                Ok(built) => built,
                Err(error) => {
                    results.leave_out(build.name(), error.to_string(), progress);
                    continue;
                }
            };
            let run = Run { options, build, built: &built, seeds: &seeds, shim: &shim, cpu };
            run.measure(work.path(), results, progress)?;
        }
    }
    Ok(())
}

/// What is fuzzed in one build of one target.
struct Run<'a> {
    options: &'a FuzzOptions,
    build: Build,
    built: &'a Built,
    seeds: &'a Path,
    shim: &'a Path,
    cpu: usize,
}

impl Run<'_> {
    /// The ways in turn, slice by slice; and what an input, a fork and a round take, over inputs that AFL has kept.
    fn measure(&self, work: &Path, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        let number = self.options.slices as usize;
        let seconds = (self.options.seconds / self.options.slices).max(1);
        let mut slices: Vec<Slice> = Vec::new();
        let corpus = work.join(format!("{}-corpus", self.build.name()));
        for (slice, order) in shuffled_rounds(number, Way::ALL.len(), SEED).into_iter().enumerate() {
            for way in order.into_iter().map(|index| Way::ALL[index]) {
                if progress.interrupted() || progress.deadline().passed() {
                    break;
                }
                progress.begin(&format!("slice {} of {number}, {}, {way}", slice + 1, self.build.name()), 1);
                let dir = work.join(format!("{}-{slice}-{}", self.build.name(), way.name().replace(' ', "-")));
                let time = Duration::from_secs(seconds.into());
                let Some(afl) = campaign::run(self, way, SEED + slice as u64, time, &dir, progress)? else { break };
                slices.push(Slice { way, afl });
                progress.step();
                if way == Way::ForkServer && !corpus.exists() {
                    let queue = dir.join("out/default/queue");
                    std::fs::rename(&queue, &corpus).map_err(|e| BenchError::system("keep AFL's corpus", e))?;
                }
                // Its directory has a file for every input that was kept.
                let _ = std::fs::remove_dir_all(&dir);
            }
        }
        for way in Way::ALL {
            results.records.extend(self.build.rates(way, self.cpu, &slices)?);
        }
        if corpus.exists() && !progress.interrupted() {
            progress.begin(&format!("single inputs, {}", self.build.name()), 1);
            let times = campaign::single_inputs(self.built, &corpus, self.cpu)?;
            results.records.extend(self.build.times(times)?);
            progress.step();
        }
        Ok(())
    }
}
