//! `bench fork`: what it costs to clone a process with so much memory, by each method.
//!
//! For each size, one worker per method holds that much memory, filled with bytes that are neither zero nor
//! compressible. The workers of a size, and an empty process beside them, are asked in turn for batches of clones of
//! four kinds ([`probe::Probe`]) while the parent is in one state after another ([`touch::ParentState`]). Sealing
//! itself is measured in workers of its own, and `--concurrent` adds several workers that clone at the same time.
//!
//! References: on-demand-fork (EuroSys 2021), section 5.2, whose kinds of measurement these are.

mod concurrent;
mod cycle;
mod footprint;
mod found;
mod plan;
mod probe;
mod report;
mod rounds;
mod sealing;
mod subject;
mod targets;
mod tmpfs;
mod touch;

pub use probe::{Batch, Probe};
pub use sealing::SealingSubject;
pub use subject::{Ask, ForkSubject};

use crate::{prelude::*, subjects::parent};
use plan::Plan;

pub const EXPERIMENT: &str = "fork";

#[derive(Clone, Default, clap::Args)]
#[command(after_help = "Example: flashfork bench fork --sizes 0,256M,1G --concurrent 3")]
pub struct ForkOptions {
	/// Sizes of the parent's memory: 0 or multiples of 2M (whole huge pages); a size that doesn't fit is refused.
	/// Without this flag: 0, 64M, 256M, 1G, 4G and 8G as far as they fit
	#[arg(long, value_delimiter = ',', value_name = "SIZE,...", value_parser = whole_huge_pages)]
	pub sizes: Option<Vec<Size>>,

	/// Sizes from 512M to this one in steps of 512M, as in the figures of on-demand-fork
	#[arg(long, value_name = "SIZE", conflicts_with = "sizes", value_parser = steps)]
	pub up_to: Option<Size>,

	/// Also measure this many processes of each size that clone themselves at the same time
	#[arg(long, value_name = "N", value_parser = count(2..=256))]
	pub concurrent: Option<u32>,

	/// Rounds of interleaved batches; more rounds, tighter intervals [default: 20, with --quick 6]
	#[arg(long, value_name = "N", value_parser = count(1..=100_000))]
	pub rounds: Option<u32>,

	/// Fewer rounds, sizes up to 1G and fewer states of the parent: about a minute instead of ten
	#[arg(long)]
	pub quick: bool,
}

const STEP: u64 = 512 << 20;

impl ForkOptions {
	/// The sizes asked for, in whichever way.
	pub fn asked(&self) -> Option<Vec<u64>> {
		let listed = self.sizes.as_ref().map(|sizes| sizes.iter().map(|size| size.0).collect());
		listed.or_else(|| self.up_to.map(|last| (1..=last.0 / STEP).map(|step| step * STEP).collect()))
	}
}

/// At least one step.
fn steps(text: &str) -> Result<Size, String> {
	size_that(text, |bytes| bytes >= STEP, "is less than one step of 512M")
}

/// A size that all methods can hold in the same way.
fn whole_huge_pages(text: &str) -> Result<Size, String> {
	size_that(text, |bytes| bytes.is_multiple_of(2 << 20), "is not a multiple of 2M")
}

impl Experiment for ForkOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "What a clone costs by size of the parent: 4 KB pages, THP, sealed";
	const WORKERS: &'static [Registered] = &[Registered::of::<ForkSubject>(), Registered::of::<SealingSubject>()];
	const PAGE: fn(&Document) -> String = report::render_all;

	/// The clones of every size, several at once where that was asked for, then the seals.
	fn measure(&self, run: &mut Run) -> Result {
		let plan = Plan::new(self, parent::methods(run)?)?;
		plan.missing.iter().for_each(|(cell, why)| run.leave_out(cell, why));
		for (index, &size) in plan.sizes.iter().enumerate() {
			run.go_on()?;
			if run.no_time_for(Size(size).to_string()) {
				continue;
			}
			// Each size takes as much as another, the seals as much as one; what one leaves the next ones have.
			let deadline = run.deadline().part(1.0 / (plan.sizes.len() - index + 1) as f64);
			let mut at_size = AtSize { plan: &plan, size, deadline, run: &mut *run };
			rounds::measure(&mut at_size)?;
			if plan.concurrent > 1 {
				concurrent::measure(&mut at_size)?;
			}
		}
		sealing::measure(&plan, run)
	}

	fn figure(document: &Document) -> Option<Result<String>> {
		let own: Vec<_> = document.of(EXPERIMENT).collect();
		(!own.is_empty()).then(|| crate::figure::of_forks(&own, &document.host))
	}

	fn in_all(quick: bool) -> Option<(Self, u64)> {
		Some((Self { quick, ..Self::default() }, if quick { 70 } else { 1200 }))
	}
}

struct AtSize<'a, 'b> {
	plan: &'a Plan,
	/// Bytes of memory of each parent.
	size: u64,
	deadline: Deadline,
	run: &'a mut Run<'b>,
}
