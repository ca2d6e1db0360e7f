//! `bench fault` and `bench access-mix`: what the memory costs after the fork.
//!
//! Table 1 and figure 8 of on-demand-fork (EuroSys 2021): the first write to a page right after a fork, in the middle
//! of the memory, where a shared page table must be copied first; and the time to fork and then go through part of the
//! memory in the parent, reading and writing it in five mixes, while the child lives.

mod mix;
mod report;
mod rounds;
mod subject;

pub use mix::MIXES;
pub use subject::AccessSubject;

use crate::prelude::*;

pub const FAULT: &str = "fault";
pub const ACCESS_MIX: &str = "access-mix";
/// Memory of the parents in `bench all`, in a quick run and a full one.
const TOUCHED: [u64; 2] = [128 << 20, 512 << 20];

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench fault --size 256M")]
pub struct FaultOptions {
	/// Size of the parent's memory, at least 4M
	#[arg(long, value_name = "SIZE", default_value = "1G", value_parser = some_tables)]
	pub size: Size,

	/// Fewer samples
	#[arg(long)]
	pub quick: bool,
}

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench access-mix --size 512M")]
pub struct AccessMixOptions {
	/// Size of the parent's memory, at least 4M; all parents and one parent's copied pages must fit
	#[arg(long, value_name = "SIZE", default_value = "512M", value_parser = some_tables)]
	pub size: Size,

	/// Fewer shares and samples: half a minute instead of four
	#[arg(long)]
	pub quick: bool,
}

impl FaultOptions {
	fn effort(&self) -> Effort {
		if self.quick { Effort::precise(0.05, 6..=30, 8) } else { Effort::precise(0.02, 20..=200, 60) }
	}
}

impl AccessMixOptions {
	fn effort(&self) -> Effort {
		if self.quick {
			Effort { warm_up: 0, ..Effort::precise(0.05, 6..=8, 25) }
		} else {
			Effort::precise(0.03, 6..=30, 240)
		}
	}
}

/// At least two page tables' worth.
fn some_tables(text: &str) -> Result<Size, String> {
	size_that(text, |bytes| bytes >= 4 << 20 && bytes.is_multiple_of(2 << 20), "is not a multiple of 2M from 4M on")
}

impl Experiment for FaultOptions {
	const NAME: &'static str = FAULT;
	const ABOUT: &'static str = "The first write after a fork, where it costs most";
	const WORKERS: &'static [Registered] = &[Registered::of::<AccessSubject>()];
	const PAGE: fn(&Document) -> String = report::fault;

	fn measure(&self, run: &mut Run) -> Result {
		rounds::fault(self, run)
	}

	fn in_all(quick: bool) -> Option<(Self, u64)> {
		let options = Self { size: Size(TOUCHED[usize::from(!quick)]), quick };
		Some((options, if quick { 10 } else { 70 }))
	}
}

impl Experiment for AccessMixOptions {
	const NAME: &'static str = ACCESS_MIX;
	const ABOUT: &'static str = "Fork and go through the memory, reading and writing it in five mixes";
	const WORKERS: &'static [Registered] = &[Registered::of::<AccessSubject>()];
	const PAGE: fn(&Document) -> String = report::access_mix;

	fn measure(&self, run: &mut Run) -> Result {
		rounds::access_mix(self, run)
	}

	fn in_all(quick: bool) -> Option<(Self, u64)> {
		let options = Self { size: Size(TOUCHED[usize::from(!quick)]), quick };
		Some((options, if quick { 30 } else { 260 }))
	}
}
