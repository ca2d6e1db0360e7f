//! `bench vm-clone`: what it costs to clone a virtual machine, against booting one, by size of its memory.
//!
//! Shells wait as in the daemon's pool; a clone is timed from before its request is encoded and sent to a shell's
//! socket until the client has read of the guest's first exit, and with Linux guests until the agent's first reply. All
//! memory of a template is there, so its size is real. Booting creates everything from nothing, without the process,
//! jail and socket that a shell has besides.
//!
//! References: HyperFork (2020), section 4.3, figures 7 and 8.

mod density;
mod found;
mod linux;
mod plan;
mod report;
mod targets;
mod tiny;

use crate::{prelude::*, subjects::vm_host::Host};
use plan::Plan;

pub const EXPERIMENT: &str = "vm-clone";

/// What runs in the virtual machines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum GuestKind {
	/// A few bytes of code, which run on any `/dev/kvm`.
	Tiny,
	/// Debian's cloud kernel with the agent.
	Linux,
}

#[derive(Clone, Default, clap::Args)]
#[command(after_help = "Example: flashfork bench vm-clone --guests tiny --sizes 128M,1G")]
pub struct VmCloneOptions {
	/// Sizes of the guests' memory: multiples of 2M; a size that doesn't fit is refused. Without this flag: 128M, 256M,
	/// 512M, 1G, 2G, 4G and 8G as far as they fit together, Linux guests 128M and 1G
	#[arg(long, value_delimiter = ',', value_name = "SIZE,...", value_parser = guest_memory)]
	pub sizes: Option<Vec<Size>>,

	/// What runs in the guests; Linux needs a KVM that boots it, in the lab if not here
	#[arg(long, value_delimiter = ',', value_enum, value_name = "GUEST,...", default_values_t = [GuestKind::Tiny])]
	pub guests: Vec<GuestKind>,

	/// Rounds of interleaved batches; more rounds, tighter intervals [default: 40, with --quick 5; Linux guests 5 and
	/// 2]
	#[arg(long, value_name = "N", value_parser = count(1..=100_000))]
	pub rounds: Option<u32>,

	/// Fewer rounds and sizes up to 512M: less than a minute with tiny guests
	#[arg(long)]
	pub quick: bool,
}

/// A size that guests can have on pages of every kind.
pub fn guest_memory(text: &str) -> Result<Size, String> {
	size_that(text, |bytes| bytes > 0 && bytes.is_multiple_of(2 << 20), "is no multiple of 2M above zero")
}

impl Experiment for VmCloneOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "What a clone of a virtual machine costs by size of its memory, against booting one";
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		let host = Host::open(run.here)?;
		let plan = Plan::new(self)?;
		plan.missing.iter().for_each(|(cell, why)| run.leave_out(cell, why));
		for (index, guest) in plan.guests.iter().enumerate() {
			run.go_on()?;
			if run.no_time_for(format!("{} guests", guest.as_ref())) {
				continue;
			}
			let deadline = run.deadline().part(1.0 / (plan.guests.len() - index) as f64);
			match guest {
				GuestKind::Tiny => {
					tiny::measure(&host, &plan, deadline, run)?;
					density::measure(&host, &plan, run)?;
				}
				GuestKind::Linux => linux::measure(&host, &plan, deadline, run)?,
			}
		}
		Ok(())
	}

	fn figure(document: &Document) -> Option<Result<String>> {
		let own: Vec<_> = document.of(EXPERIMENT).collect();
		(!own.is_empty()).then(|| crate::figure::of_machines(&own, &document.host))
	}
}
