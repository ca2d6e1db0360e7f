//! `bench vm-fork`: how long a clone of a virtual machine stands still when it is forked while it runs, by size of its
//! memory, and how long claims of its clones take, by how many forks lie between them and the template that booted.
//!
//! 1. A clone writes 1 % of its memory and reads all of it, so that all is mapped. Then it writes a page, always
//!    another one, every so many ticks of its time stamp counter, and is forked a few times. The monitor tells each
//!    pause, a counter in the guest's memory what was written meanwhile. Guests are of two kinds: on 4 KB pages, with
//!    writes all over them, and on 2 MB pages, with writes that lie together.
//! 2. A guest writes to some pages and is forked, its clone writes to some others, half of them the same, and is
//!    forked, and so on. Clones of these templates are timed from before the request is encoded and sent to a waiting
//!    shell, primed or not, until the client has read of the guest's first exit. Each adds up what all levels have
//!    written, and is believed only if that is right.
//!
//! Shells are driven as the daemon drives them. The guests run a few bytes of code without a kernel or an agent.

mod claims;
mod code;
mod found;
mod pauses;
mod report;

use crate::{
	prelude::*,
	subjects::vm_host::{Host, size},
};
use found::Guest;

pub const EXPERIMENT: &str = "vm-fork";

/// Left to the rest of the machine.
const RESERVE: u64 = 512 << 20;

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench vm-fork --sizes 256M,1G --written 5")]
pub struct VmForkOptions {
	/// Sizes of the guests' memory: multiples of 2M from 16M to 3G; clones of clones have the smallest
	#[arg(long, value_delimiter = ',', value_name = "SIZE,...", default_value = "256M,1G,2G", value_parser = size)]
	pub sizes: Vec<Size>,

	/// What a guest that is forked writes of its memory, in percent a second: 0.1 to 50
	#[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
	pub written: f64,

	/// Pages that each level of clones of clones writes: even numbers up to 512
	#[arg(long, value_name = "N", default_value_t = 64, value_parser = pages)]
	pub pages: u32,

	/// Rounds of interleaved forks, and as many of claims; more rounds, tighter intervals [default: 20, with --quick 5]
	#[arg(long, value_name = "N", value_parser = count(1..=100_000))]
	pub rounds: Option<u32>,

	/// Fewer rounds
	#[arg(long)]
	pub quick: bool,
}

impl VmForkOptions {
	/// Ascending, each once, in bytes.
	pub fn sizes(&self) -> Vec<u64> {
		ascending(self.sizes.iter().map(|size| size.0))
	}

	fn rounds(&self) -> usize {
		self.rounds.unwrap_or(if self.quick { 5 } else { 20 }) as usize
	}
}

fn percent(text: &str) -> Result<f64, String> {
	match text.parse() {
		Ok(percent) if (0.1..=50.0).contains(&percent) => Ok(percent),
		_ => Err(format!("{text} is no number from 0.1 to 50")),
	}
}

fn pages(text: &str) -> Result<u32, String> {
	match text.parse() {
		Ok(pages) if (2..=512).contains(&pages) && pages % 2 == 0 => Ok(pages),
		_ => Err(format!("{text} is no even number from 2 to 512")),
	}
}

impl Experiment for VmForkOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "What it costs to fork a virtual machine while it runs, and to clone what that gives";
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		let host = Host::open(run.here)?;
		let sizes = self.sizes();
		let (smallest, largest) = (sizes[0], sizes[sizes.len() - 1]);
		let names: Vec<String> = sizes.iter().map(|size| Size(*size).to_string()).collect();
		// A clone and the copy that a fork makes of it have no more than all its memory.
		let needed = Guest::VARIANTS.len() as u64 * sizes.iter().sum::<u64>() + 2 * largest + RESERVE;
		memory::require(&memory::headroom()?, format!("templates of {} and a fork", names.join(", ")), needed)?;
		pauses::measure(&host, &sizes, self, run)?;
		run.go_on()?;
		claims::measure(&host, smallest, self, run)
	}
}
