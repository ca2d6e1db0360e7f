//! `bench vm-memory`: what touching memory costs a guest that was booted, and a clone.
//!
//! A guest goes over its memory four times and has the monitor time each pass, as in HyperFork (2020), section 4.2 and
//! figure 9:
//! 1. unbacked: just booted, the host has no page behind any of the guest's;
//! 2. backed: the same once more;
//! 3. after the fork, in the clone: every page is shared with the template, and a write copies it;
//! 4. backed: the same once more.
//!
//! Unlike the thesis's program, which fills all memory, this one touches one word in every 4 KB: what is left is the
//! price of a page, not of writing 4 KB. Guests run a few bytes of code without a kernel, so the guest's own page
//! tables have no part in it.

mod code;
mod found;
mod passes;
mod report;

use crate::{
	prelude::*,
	subjects::vm_host::{Host, available},
};

pub const EXPERIMENT: &str = "vm-memory";

/// Left to the rest of the machine.
const RESERVE: u64 = 512 << 20;

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench vm-memory --size 1G")]
pub struct VmMemoryOptions {
	/// The guests' memory, of which all but the first 2 MB is touched: a multiple of 2M up to 3G
	#[arg(long, value_name = "SIZE", default_value = "256M", value_parser = touched)]
	pub size: Size,

	/// Rounds; in each, every kind of guest is booted and cloned once
	#[arg(long, value_name = "N", default_value_t = 10, value_parser = count(1..=100_000))]
	pub rounds: u32,
}

/// A size whose memory lies in one piece.
fn touched(text: &str) -> Result<Size, String> {
	size_that(
		text,
		|bytes| bytes.is_multiple_of(2 << 20) && ((4 << 20)..=(3 << 30)).contains(&bytes),
		"is no multiple of 2M between 4M and 3G",
	)
}

impl Experiment for VmMemoryOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "What touching memory costs in a virtual machine that was booted, and in a clone";
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		let host = Host::open(run.here)?;
		let size = self.size.0;
		// The guest, a template that is a copy of it, and a clone that has copied it all.
		let what = format!("a guest of {}, its template and its clone", self.size);
		memory::require(&memory::headroom()?, what, 3 * size + RESERVE)?;
		let (pages, short) = available(size, 2)?;
		short.into_iter().for_each(|why| run.leave_out("hugetlb", why));
		passes::measure(&host, size, &pages, self.rounds as usize, run)
	}
}
