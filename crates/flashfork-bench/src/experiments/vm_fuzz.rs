//! `bench vm-fuzz`: what one execution of a target costs that needs its own machine, by how that comes to be, as in
//! On-demand-fork (EuroSys 2021), section 5.3.4 and figure 10.
//!
//! The target writes to so many pages, spread over all of a tiny guest's memory in pairs. Before each execution its
//! guest is
//! - taken back to its template, by copying what was written or by dropping it. These machines are in this process: the
//!   way through a shell's socket is the same for both. The guest has no page tables, so it can be copied back whatever
//!   KVM's paging is;
//! - made anew, a clone of the template in its own shell, which is started, claimed and ended;
//! - booted, in such a shell.
//!
//! With `--qemu` it is about the paper's machine instead: see `qemu.rs`.

mod code;
mod execution;
mod qemu;
mod report;

use crate::{
	prelude::*,
	subjects::vm_host::{Host, size},
};
use code::MOST;

pub const EXPERIMENT: &str = "vm-fuzz";

/// Left to the rest of the machine and to the clones.
const RESERVE: u64 = 512 << 20;

/// What comes before an execution.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
enum Way {
	#[strum(serialize = "rollback, copying")]
	Copy,
	#[strum(serialize = "rollback, dropping")]
	Drop,
	Clone,
	Boot,
}

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench vm-fuzz --size 256M --pages 200")]
pub struct VmFuzzOptions {
	/// Fork a QEMU that runs Linux, as the paper does, and have its children make system calls; it takes --size, too
	#[arg(long, conflicts_with = "pages")]
	pub qemu: bool,

	/// With --qemu: keep that machine in this directory, for afl-fuzz (docs/FUZZING.md); one that is there is used
	#[arg(long, requires = "qemu", value_name = "DIR")]
	pub keep: Option<PathBuf>,

	/// The guest's memory: a multiple of 2M from 16M to 3G
	#[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
	pub size: Size,

	/// Pages that an execution writes: even numbers up to 2000
	#[arg(long, value_delimiter = ',', value_name = "N,...", default_values_t = [20, 200, 2000], value_parser = pages)]
	pub pages: Vec<u32>,

	/// Rounds of interleaved executions; more rounds, tighter intervals [default: 20, with --quick 6]
	#[arg(long, value_name = "N", value_parser = count(1..=100_000))]
	pub rounds: Option<u32>,

	/// Fewer rounds
	#[arg(long)]
	pub quick: bool,
}

impl VmFuzzOptions {
	fn rounds(&self) -> usize {
		self.rounds.unwrap_or(if self.quick { 6 } else { 20 }) as usize
	}
}

/// So many can be written.
fn pages(text: &str) -> Result<u32, String> {
	match text.parse() {
		Ok(pages) if (2..=MOST).contains(&pages) && pages % 2 == 0 => Ok(pages),
		_ => Err(format!("{text} is no even number from 2 to {MOST}")),
	}
}

impl Experiment for VmFuzzOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str =
		"What fuzzing takes in virtual machines that are taken back, cloned or booted each time";
	const PAGE: fn(&Document) -> String =
		|document| qemu::render(document).unwrap_or_else(|| report::render_all(document));

	fn measure(&self, run: &mut Run) -> Result {
		if self.qemu {
			return qemu::measure(self, run);
		}
		let host = Host::open(run.here)?;
		memory::require(&memory::headroom()?, format!("a template of {}", self.size), 2 * self.size.0 + RESERVE)?;
		execution::measure(&host, self, run)
	}
}
