//! `bench unit-test`: SQLite unit tests, each in a clone of the same loaded database, as section 5.3.2 of on-demand
//! fork (EuroSys 2021) proposes.
//!
//! Each test is timed in the paper's phases: initialise, clone, test, reap. Each method has harness processes of its
//! own, asked in turn. Every clone checks what it found against what its parent had counted before, and a checksum over
//! the whole database shows afterwards that no clone changed its parent's.

mod case;
mod cycle;
mod found;
mod plan;
mod report;
mod rounds;
mod subject;

pub use subject::UnitTestSubject;

use crate::{
	prelude::*,
	subjects::{database::Image, parent},
};
use flashfork_terminal::size;

pub const EXPERIMENT: &str = "unit-test";

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench unit-test --size 256M --jobs 2")]
pub struct UnitTestOptions {
	/// Size of the database, in bytes or with K, M, G
	#[arg(long, value_name = "SIZE", default_value = "1G")]
	pub size: Size,

	/// How many test harnesses run at the same time, each with its own database
	#[arg(long, value_name = "N", default_value_t = 1, value_parser = count(1..=256))]
	pub jobs: u32,

	/// Rounds of interleaved batches of clones; more rounds, tighter intervals
	#[arg(long, value_name = "N", default_value_t = 20, value_parser = count(1..=100_000))]
	pub rounds: u32,

	/// Where the database image is kept between runs [default: the user's cache directory]
	#[arg(long, value_name = "DIR")]
	pub cache: Option<PathBuf>,
}

impl Experiment for UnitTestOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "Real SQLite: each test in a clone of one warmed database";
	const WORKERS: &'static [Registered] = &[Registered::of::<UnitTestSubject>()];
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		let methods = parent::of_any_size(run);
		let cpus = plan::cpus(self, &methods, &pin::allowed_cpus()?, &memory::headroom()?)?;
		let cache = self.cache.clone().map_or_else(|| run.here.cache("bench"), Ok)?;
		let work = WorkDir::new(Some(&cache))?;
		run.begin(&format!("database of {}", self.size), 1);
		let image = Image::obtain(self.size.0, &cache, work.path())?;
		run.step();
		if let Some(took) = image.built_in {
			run.progress.note(&format!(
				"the database image ({}, built in {:.0} s) is kept for later runs: {}",
				size::show(image.bytes),
				took.as_secs_f64(),
				image.path.display()
			));
		}
		rounds::measure(self, &methods, &cpus, &image, run)
	}
}
