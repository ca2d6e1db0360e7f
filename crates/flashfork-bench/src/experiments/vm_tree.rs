//! `bench vm-tree`: applications over one database over one kernel, as a tree of templates, against templates that each
//! began with a boot, and against machines that boot.
//!
//! - tree: a kernel is booted once; in a clone of it, which gets the database's disk, the database (Redis with some
//!   thousand keys) is started once; a fork of that clone is a template, of which each application's machine is a clone
//!   that gets the application's disk. All that by the daemon.
//! - templates: each application has a kernel and its own database, and a template of both.
//! - boots: each application's machine boots and starts the database, from one disk that has all, without the daemon.
//!
//! An application has started when it has asked the database. At the end of each way all are alive, and memory is
//! counted: all processes', what kernel and KVM hold for them, templates, and the daemon's one ready shell. Rounds take
//! the ways in turn.
//!
//! References: HyperFork (2020), section 5.2, "Virtual machine trees", which leaves this open.

mod daemon;
mod found;
mod report;
mod ways;

use crate::{
	prelude::*,
	subjects::{
		held::Counter,
		vm_host::{Host, linux},
	},
};
use flashfork_image::guest::Guest;
use found::{Found, WAYS};

pub const EXPERIMENT: &str = "vm-tree";

const MEMORY_MIB: u32 = 256;
/// The applications, each on its own disk.
const APPS: [&str; 3] = ["blog", "shop", "wiki"];
/// Left to the rest of the machine.
const RESERVE: u64 = 512 << 20;

/// After so long the kernel has freed some of what it puts off, or counted some of what it was late to count.
const QUIET: Duration = Duration::from_millis(700);
/// What memory in use may differ by from one moment to the next, in bytes, when nothing happens.
const STEADY: f64 = 1e6;
/// How often is waited for that.
const LOOKS: usize = 60;

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench vm-tree --quick; where KVM boots no Linux guests: \
						scripts/bench-vm-lab vm-tree --quick")]
pub struct VmTreeOptions {
	/// Rounds, each with all ways in turn; more rounds, tighter intervals [default: 6, with --quick 1]
	#[arg(long, value_name = "N", value_parser = count(1..=100_000))]
	pub rounds: Option<u32>,

	/// Fewer rounds
	#[arg(long)]
	pub quick: bool,
}

struct Setup<'a> {
	host: &'a Host,
	here: &'a dyn Places,
	guest: Guest,
	disks: PathBuf,
	counter: Counter,
}

impl Setup<'_> {
	/// Bytes in use, as soon as they stay the same: machines that have ended take a while to be gone.
	fn used(&self) -> Result<f64> {
		let mut last = self.counter.used()?;
		for _ in 0..LOOKS {
			std::thread::sleep(QUIET);
			let now = self.counter.used()?;
			if (now - last).abs() < STEADY {
				return Ok(now);
			}
			last = now;
		}
		let why = "memory in use doesn't stay the same; something else runs: repeat when it doesn't";
		Err(BenchError::Unable(why.into()))
	}
}

impl Experiment for VmTreeOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "What a tree of templates saves: applications over one database over one kernel";
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		let host = Host::open(run.here)?;
		let disks = run.here.cache("bench")?.join("vm-tree");
		if let Some(missing) = ["database", "whole"].iter().chain(&APPS).find(|name| !disks.join(name).is_file()) {
			let disks = disks.display();
			return Err(unable!("no disk {missing} in {disks}; make the disks with scripts/vm-tree-images"));
		}
		// Of each application a template and a machine.
		let needed = 2 * APPS.len() as u64 * (u64::from(MEMORY_MIB) << 20) + RESERVE;
		memory::require(&memory::headroom()?, "three templates and their clones", needed)?;
		let guest = linux::guest(run)?;
		let setup = Setup { host: &host, here: run.here, guest, disks, counter: Counter::new() };
		let rounds = self.rounds.unwrap_or(if self.quick { 1 } else { 6 }) as usize;
		let (stage, ways) =
			("interleaved rounds of trees, templates and boots", [ways::tree, ways::separate, ways::boots]);
		let taken = run.sample(stage, Effort::rounds(rounds), WAYS.len(), 1, |way, _| {
			let mut found = Found::default();
			ways[way](&setup, &mut found)?;
			Ok(by_measure(found.0))
		});
		taken.keep(run, |way, measure| found::row(WAYS[way], measure, setup.counter.name()))
	}
}
