//! `bench vm-jobs`: jobs in virtual machines that were booted, cloned and rolled back.
//!
//! A C program is compiled, or a Java program that loads thousands of classes and warms up estimates π. A template of
//! the first has compiled once, so its page cache has compiler and headers; one of the second waits for its first job.
//!
//! Each CPU has a machine at a time, and begins a new one as soon as a job is done. A request is the machine's claim,
//! rollback or boot, until the job's output is there and checked. The shells are driven as the daemon drives them; what
//! makes one before its claim is no part of a request, but of the throughput.
//!
//! The paper's Java job is Spark's example; this is the same estimate without Spark, whose package is 300 MB.
//!
//! References: HyperFork (2020), sections 4.2 and 4.3, figures 10 to 12.

mod found;
mod guests;
mod jobs;
mod report;

use std::fs::File;

use crate::{
	prelude::*,
	subjects::vm_host::{Host, MemoryPages, linux},
};
use found::{Cell, Method, Work};
use guests::Guests;

pub const EXPERIMENT: &str = "vm-jobs";

/// Left to the rest of the machine and to what clones write.
const RESERVE: u64 = 1 << 30;

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench vm-jobs --jobs java --quick; where KVM boots no Linux guests: \
						scripts/bench-vm-lab vm-jobs --quick")]
pub struct VmJobsOptions {
	/// Which jobs: a compilation, a Java program's, or both in turn
	#[arg(long, value_delimiter = ',', value_enum, value_name = "JOB,...", default_values_t = Work::VARIANTS.to_vec())]
	pub jobs: Vec<Work>,

	/// Rounds of interleaved batches; more rounds, tighter intervals [default: 8, with --quick 2]
	#[arg(long, value_name = "N", value_parser = count(1..=100_000))]
	pub rounds: Option<u32>,

	/// Fewer rounds
	#[arg(long)]
	pub quick: bool,
}

impl VmJobsOptions {
	/// Each once, in table order.
	pub fn works(&self) -> Vec<Work> {
		asked_of(Some(&self.jobs))
	}

	fn rounds(&self) -> usize {
		self.rounds.unwrap_or(if self.quick { 2 } else { 8 }) as usize
	}
}

impl Experiment for VmJobsOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "What jobs in virtual machines take that were booted, cloned and rolled back";
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		let host = Host::open(run.here)?;
		let works = self.works();
		let kinds = ascending(works.iter().flat_map(|work| work.kinds()).copied());
		// Templates on pages of both kinds.
		let needed = 2 * kinds.iter().map(|kind| kind.memory()).sum::<u64>() + RESERVE;
		memory::require(&memory::headroom()?, "templates and their clones".to_owned(), needed)?;
		let image = run.here.cache("bench")?.join("vm-jobs.ext4");
		let disk = File::open(&image).map_err(|error| {
			unable!("no disk for the guests at {}: {error}; make it with scripts/vm-jobs-image", image.display())
		})?;
		let guest = linux::guest(run)?;
		run.begin("templates of guests that wait for jobs", kinds.len() as u64);
		let mut guests = Guests::new(&host, guest, disk);
		for kind in kinds {
			run.go_on()?;
			let huge_fraction = guests.add(kind)?;
			if guests.template(kind, MemoryPages::Thp).is_none() {
				let why = format!("only {:.0} % of it got 2 MB pages", huge_fraction * 100.0);
				run.leave_out(format!("{}, template on 2 MB pages", kind.as_ref()), why);
			}
			run.step();
		}
		let all = works.iter().flat_map(|work| Method::ALL.map(|method| Cell { work: *work, method }));
		let cells: Vec<Cell> = all.filter(|cell| guests.can(*cell)).collect();
		let cpus = std::thread::available_parallelism().map_or(1, usize::from);
		let (stage, effort) = ("interleaved rounds of jobs", Effort::rounds(self.rounds()));
		let taken = run
			.sample(stage, effort, cells.len(), cells.len() as u64, |cell, _| jobs::batch(&guests, cells[cell], cpus));
		taken.keep(run, |cell, measure| cells[cell].row(cpus, measure))
	}
}
