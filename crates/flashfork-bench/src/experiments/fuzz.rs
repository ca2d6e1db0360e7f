//! `bench fuzz`: AFL++ on SQLite with a large database in memory, plain and with the shim.
//!
//! Section 5.3.1 and figure 9 of on-demand fork (EuroSys 2021): the fuzzed program loads its database, and AFL's
//! deferred fork server clones it for every input. The methods take turns in slices on one CPU, each slice from the
//! same seeds with the same random seed. A faster method sees more inputs; so each is also run for as many executions
//! as the slowest managed, and the coverage compared. With `--targets` it is about small libraries: see `targets.rs`.

mod afl_stats;
mod campaign;
mod corpus;
mod found;
mod process;
mod report;
mod slices;
mod target;
mod targets;

pub use targets::Target;

use crate::{
	prelude::*,
	subjects::database::{self, Image},
};
use flashfork_terminal::size;
use process::Setup;

pub const EXPERIMENT: &str = "fuzz";

/// Left to AFL and the rest of the machine.
const RESERVE: u64 = 512 << 20;

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench fuzz --size 256M --seconds 30")]
pub struct FuzzOptions {
	/// Size of the database, in bytes or with K, M, G
	#[arg(long, value_name = "SIZE", default_value = "1G")]
	pub size: Size,

	/// Fuzz these libraries instead, with and without AddressSanitizer, by forks and in loops [default without a value:
	/// all]
	#[arg(
		long,
		value_name = "TARGETS",
		value_delimiter = ',',
		num_args = 0..=1,
		default_missing_values = ["libpng", "libxml2", "sqlite", "cjson"],
		conflicts_with = "size"
	)]
	pub targets: Vec<Target>,

	/// Seconds of fuzzing per method, loading and sealing not counted
	#[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = count(1..=86_400))]
	pub seconds: u32,

	/// Into how many slices each method's time is cut; the methods take turns. Each slice starts from the seeds again
	#[arg(long, value_name = "N", default_value_t = 3, value_parser = count(2..=1000))]
	pub slices: u32,

	/// The shim, libflashfork_preload.so [default: the one installed with this command]
	#[arg(long, value_name = "FILE")]
	pub preload: Option<PathBuf>,

	/// Where the database image and the fuzz target are kept between runs [default: the user's cache directory]
	#[arg(long, value_name = "DIR")]
	pub cache: Option<PathBuf>,
}

impl Experiment for FuzzOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "Real AFL++ on SQLite with a warmed database, plain against the shim";
	const PAGE: fn(&Document) -> String =
		|document| targets::render(document).unwrap_or_else(|| report::render_all(document));

	fn measure(&self, run: &mut Run) -> Result {
		if !self.targets.is_empty() {
			return targets::measure(&self.targets, self, run);
		}
		let shim = self.shim(run.here)?;
		// SQLite and malloc need about a tenth more than the database; the methods run one at a time.
		let needed = Method::Seal.memory_needed(self.size.0 + self.size.0 / 8) + RESERVE;
		memory::require(&memory::headroom()?, format!("fuzzing with a database of {}", self.size), needed)?;
		let cache = self.cache.clone().map_or_else(|| run.here.cache("bench"), Ok)?;
		let work = WorkDir::new(Some(&cache))?;
		let target = target::obtain(&cache, work.path(), run)?;
		run.begin(&format!("database of {}", self.size), 1);
		let image = Image::obtain(self.size.0, &cache, work.path())?;
		run.step();
		let setup = Setup {
			target,
			seeds: work.path().join("seeds"),
			dictionary: work.path().join("dictionary"),
			shim,
			cpu: pin::chosen_cpu()?,
			image: image.path,
		};
		corpus::write_seeds(&setup.seeds)?;
		corpus::write_dictionary(&setup.dictionary, &database::names(&database::open(&setup.image)?)?)?;
		if let Some(took) = image.built_in {
			run.progress.note(&format!(
				"kept for later runs: the database image ({}, built in {:.0} s) and the fuzz target, in {}",
				size::show(image.bytes),
				took.as_secs_f64(),
				cache.display()
			));
		}
		slices::Runs { options: self, setup: &setup, database_bytes: image.bytes, run }.measure(work.path())
	}
}

impl FuzzOptions {
	fn shim(&self, here: &dyn Places) -> Result<PathBuf> {
		let path = self.preload.clone().map_or_else(|| here.shim(), Ok)?;
		// AFL changes into its own directories.
		path.canonicalize().or_cant(format_args!("find the shim {}", path.display()))
	}
}
