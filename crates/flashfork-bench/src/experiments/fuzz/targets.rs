//! `bench fuzz --targets`: libraries that many people fuzz, each built for AFL++ with and without AddressSanitizer, and
//! fuzzed in every way there is, in turns.

mod build;
mod campaign;
mod found;
mod report;
mod source;
mod target;
mod way;

use flashfork_measure::order::shuffled_rounds;

use super::FuzzOptions;
use crate::prelude::*;
use build::{Builder, Built};
use found::{Build, Slice};

pub use report::render;
pub use target::Target;
use way::Way;

/// Added to the number of a slice for AFL's random seed: the same inputs for every way, others in every slice.
const SEED: u64 = 9;

pub fn measure(targets: &[Target], options: &FuzzOptions, run: &mut Run) -> Result {
	let shim = options.shim(run.here)?;
	let cache = options.cache.clone().map_or_else(|| run.here.cache("bench"), Ok)?;
	let work = WorkDir::new(Some(&cache))?;
	let builder = Builder::new(&cache, &shim)?;
	let cpu = pin::chosen_cpu()?;
	for &target in targets {
		let source = match source::obtain(target, &cache, run) {
			Ok(source) => source,
			Err(error) => {
				run.leave_out(target.as_ref(), error.to_string());
				continue;
			}
		};
		let seeds = work.path().join(format!("{}-seeds", target.as_ref()));
		target.write_seeds(&source, &seeds)?;
		for sanitized in [false, true] {
			let build = Build { target, sanitized };
			run.go_on()?;
			if run.no_time_for(build.name()) {
				continue;
			}
			let built = match builder.build(build, &source, work.path(), run) {
				Ok(built) => built,
				Err(error) => {
					run.leave_out(build.name(), error.to_string());
					continue;
				}
			};
			let fuzzing = Fuzzing { options, build, built: &built, seeds: &seeds, shim: &shim, cpu };
			fuzzing.measure(work.path(), run)?;
		}
	}
	Ok(())
}

struct Fuzzing<'a> {
	options: &'a FuzzOptions,
	build: Build,
	built: &'a Built,
	seeds: &'a Path,
	shim: &'a Path,
	cpu: usize,
}

impl Fuzzing<'_> {
	/// The ways in turn, slice by slice; and what an input, a fork and a round take, over inputs that AFL has kept.
	fn measure(&self, work: &Path, run: &mut Run) -> Result {
		let number = self.options.slices as usize;
		let seconds = (self.options.seconds / self.options.slices).max(1);
		let mut slices: Vec<Slice> = Vec::new();
		let corpus = work.join(format!("{}-corpus", self.build.name()));
		for (slice, order) in shuffled_rounds(number, Way::VARIANTS.len(), SEED).into_iter().enumerate() {
			for way in order.into_iter().map(|index| Way::VARIANTS[index]) {
				if run.interrupted() || run.deadline().passed() {
					break;
				}
				run.begin(&format!("slice {} of {number}, {}, {way}", slice + 1, self.build.name()), 1);
				let dir = work.join(format!("{}-{slice}-{}", self.build.name(), way.as_ref().replace(' ', "-")));
				let time = Duration::from_secs(seconds.into());
				let Some(afl) = campaign::run(self, way, SEED + slice as u64, time, &dir, run.progress)? else { break };
				slices.push(Slice { way, afl });
				run.step();
				if way == Way::ForkServer && !corpus.exists() {
					let queue = dir.join("out/default/queue");
					std::fs::rename(&queue, &corpus).or_cant("keep AFL's corpus")?;
				}
				// Its directory has a file for every input that was kept.
				let _ = std::fs::remove_dir_all(&dir);
			}
		}
		for way in Way::all() {
			self.build.keep_rates(way, self.cpu, &slices, run)?;
		}
		if corpus.exists() && !run.interrupted() {
			run.begin(&format!("single inputs, {}", self.build.name()), 1);
			let times = campaign::single_inputs(self.built, &corpus, self.cpu)?;
			self.build.keep_times(times, run)?;
			run.step();
		}
		Ok(())
	}
}
