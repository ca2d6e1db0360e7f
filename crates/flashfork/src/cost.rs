//! What a clone costs on this host: the model of 1988, with today's prices.
//!
//! J. M. Smith and G. Q. Maguire ("Effects of copy-on-write memory management on the response time of UNIX fork
//! operations", 1988) found that a fork with copy-on-write takes
//!
//! > r(new process) + r(page-table entry) · pages + r(copy of one page) · pages · share written
//!
//! where the three prices belong to the host and can be measured in advance, and the rest to the program. That still
//! holds. Three mechanisms have changed which entries there are: huge pages (one entry for 2 MB), sealing (none, until
//! pages are written again) and forks on demand (one for 2 MB, until it is written), and each piece of memory written
//! has its own price besides that of its pages.

mod cache;
mod calibrate;
mod fit;

pub use cache::CostError;

use crate::{HostId, Pages};
use serde::{Deserialize, Serialize};
use std::time::Duration;

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;

/// How a clone is made, and from which memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
	/// A plain fork of anonymous memory on 4 KB pages.
	Fork,
	/// A plain fork of anonymous memory on transparent huge pages.
	ForkThp,
	/// A fork of sealed memory, on 2 MB pages where the host has them.
	Seal,
	/// A fork on demand ([`odf`](crate::odf)) of anonymous memory on 4 KB pages.
	Odf,
}

/// The memory of a process that is to be cloned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
	/// Populated private memory in bytes; sealed, for [`Engine::Seal`].
	pub bytes: u64,
	/// Mappings beyond those of a small program. A seal may make some.
	pub vmas: u64,
	/// Pages of 4 KB written since the seal. Counts for [`Engine::Seal`] only.
	pub dirty_pages: u64,
	/// Regions of 2 MB, the size of a page table, which these pages lie in.
	pub dirty_regions: u64,
}

impl Memory {
	/// Memory not written since its seal, in one mapping.
	pub fn clean(bytes: u64) -> Memory {
		Memory { bytes, ..Memory::default() }
	}
}

/// What a clone writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
	/// Pages of 4 KB written for the first time.
	pub pages: u64,
	/// Regions of 2 MB these pages lie in.
	pub regions: u64,
}

/// The prices of a fork, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForkPrices {
	/// A process with next to no memory.
	pub process: f64,
	/// Each 4 KB page of anonymous memory.
	pub page: f64,
	/// Each 2 MB page of anonymous memory.
	pub huge_page: f64,
	/// Each mapping.
	pub vma: f64,
	/// Each region of 2 MB of sealed memory in which pages were written since.
	pub dirty_region: f64,
	/// Each of these pages.
	pub dirty_page: f64,
	/// Each page table, of 2 MB of anonymous memory, shared by a fork on demand; 0 where there was none to measure.
	pub shared_table: f64,
	/// The largest relative error these prices leave among the samples they come from: 0.1 is 10 %.
	pub residual: f64,
}

/// The prices of a clone's writes, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WritePrices {
	/// Each 2 MB region written to: splitting a huge page, a page table.
	pub region: f64,
	/// Each 4 KB page written for the first time: a fault and a copy.
	pub page: f64,
	/// As in [`ForkPrices`].
	pub residual: f64,
}

/// The price of a seal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SealPrice {
	/// Nanoseconds for looking at the process.
	pub look: f64,
	/// Nanoseconds for each GB (2³⁰ bytes) sealed.
	pub gb: f64,
	/// As in [`ForkPrices`].
	pub residual: f64,
}

/// The prices of one host. See the module for the formula.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostModel {
	/// The host they were measured on.
	pub host: HostId,
	/// The fork call.
	pub fork: ForkPrices,
	/// The whole cycle: fork, end of the clone, reaping it.
	pub cycle: ForkPrices,
	/// Writes of a clone after [`Engine::Fork`].
	pub write_fork: WritePrices,
	/// Writes of a clone after [`Engine::ForkThp`]. `None`: this host gives anonymous memory no huge pages.
	pub write_fork_thp: Option<WritePrices>,
	/// Writes of a clone after [`Engine::Seal`].
	pub write_seal: WritePrices,
	/// Writes of a clone after [`Engine::Odf`]. `None`: forks on demand were not to be had.
	pub write_odf: Option<WritePrices>,
	/// Sealing onto 2 MB pages where possible ([`Pages::Auto`]).
	pub seal: SealPrice,
	/// Sealing onto 4 KB pages ([`Pages::Small`]).
	pub seal_small: SealPrice,
	/// How long the calibration took, in seconds.
	pub calibration_seconds: f64,
}

impl CostModel {
	/// How long the fork call takes. `None` for [`Engine::ForkThp`] on a host without huge pages, and for
	/// [`Engine::Odf`] where forks on demand were not to be had.
	pub fn fork_time(&self, engine: Engine, memory: Memory) -> Option<Duration> {
		self.price(&self.fork, engine, memory).map(nanoseconds)
	}

	/// How long fork, the end of a clone that does nothing, and reaping it take together.
	pub fn cycle_time(&self, engine: Engine, memory: Memory) -> Option<Duration> {
		self.price(&self.cycle, engine, memory).map(nanoseconds)
	}

	/// How much longer a clone takes for its writes.
	pub fn write_time(&self, engine: Engine, writes: Writes) -> Option<Duration> {
		self.write_price(engine, writes).map(nanoseconds)
	}

	/// How long sealing takes.
	pub fn seal_time(&self, pages: Pages, bytes: u64) -> Duration {
		nanoseconds(self.seal_price(pages, bytes))
	}

	/// The number of clones from which on a seal has paid, compared with plain forks by `instead`: the seal and that
	/// many cycles with their writes take less time than the plain ones. `None`: never, sealed clones aren't faster
	/// here.
	pub fn break_even_forks(&self, instead: Engine, memory: Memory, writes: Writes) -> Option<u64> {
		let cycle = |engine| Some(self.price(&self.cycle, engine, memory)? + self.write_price(engine, writes)?);
		let gain = cycle(instead)? - cycle(Engine::Seal)?;
		// Below one in a thousand the gain is the model's error.
		if gain <= cycle(instead)? / 1000.0 {
			return None;
		}
		Some((self.seal_price(Pages::Auto, memory.bytes) / gain).ceil().max(1.0) as u64)
	}

	fn price(&self, p: &ForkPrices, engine: Engine, m: Memory) -> Option<f64> {
		let n = |n: u64| n as f64;
		let base = p.process + p.vma * n(m.vmas);
		match engine {
			Engine::Fork => Some(base + p.page * n(m.bytes.div_ceil(PAGE))),
			Engine::ForkThp => self.write_fork_thp.map(|_| base + p.huge_page * n(m.bytes.div_ceil(HUGE))),
			Engine::Odf => self.write_odf.map(|_| base + p.shared_table * n(m.bytes.div_ceil(HUGE))),
			Engine::Seal => Some(base + p.dirty_region * n(m.dirty_regions) + p.dirty_page * n(m.dirty_pages)),
		}
	}

	fn write_price(&self, engine: Engine, writes: Writes) -> Option<f64> {
		let p = match engine {
			Engine::Fork => self.write_fork,
			Engine::ForkThp => self.write_fork_thp?,
			Engine::Seal => self.write_seal,
			Engine::Odf => self.write_odf?,
		};
		Some(p.region * writes.regions as f64 + p.page * writes.pages as f64)
	}

	fn seal_price(&self, pages: Pages, bytes: u64) -> f64 {
		let p = match pages {
			Pages::Auto => self.seal,
			Pages::Small => self.seal_small,
		};
		p.look + p.gb * bytes as f64 / f64::from(1 << 30)
	}
}

fn nanoseconds(n: f64) -> Duration {
	Duration::from_nanos(n.max(0.0).round() as u64)
}

#[cfg(test)]
pub(crate) mod tests {
	use super::*;

	pub(crate) fn model() -> CostModel {
		let fork = ForkPrices {
			process: 20_000.0,
			page: 20.0,
			huge_page: 400.0,
			vma: 200.0,
			dirty_region: 2_000.0,
			dirty_page: 25.0,
			shared_table: 60.0,
			residual: 0.1,
		};
		let write = |region, page| WritePrices { region, page, residual: 0.1 };
		let seal = |gb| SealPrice { look: 1e6, gb, residual: 0.1 };
		CostModel {
			host: HostId { kernel: "6.1".into(), cpu: "x".into(), thp: "always".into(), shmem_thp: "never".into() },
			fork,
			cycle: ForkPrices { process: 60_000.0, page: 50.0, huge_page: 700.0, vma: 400.0, ..fork },
			write_fork: write(100.0, 2_000.0),
			write_fork_thp: Some(write(4_500.0, 2_200.0)),
			write_seal: write(700.0, 2_100.0),
			write_odf: Some(write(10_000.0, 2_000.0)),
			seal: seal(0.5e9),
			seal_small: seal(0.3e9),
			calibration_seconds: 0.5,
		}
	}

	#[test]
	fn each_engine_pays_for_what_it_copies() {
		let m = model();
		let gb = Memory::clean(1 << 30);
		let us = |engine, memory| m.fork_time(engine, memory).unwrap().as_nanos() as u64;
		assert_eq!(us(Engine::Fork, gb), 20_000 + 262_144 * 20);
		assert_eq!(us(Engine::ForkThp, gb), 20_000 + 512 * 400);
		assert_eq!(us(Engine::Seal, gb), 20_000);
		assert_eq!(us(Engine::Odf, gb), 20_000 + 512 * 60);
		let dirty = Memory { dirty_pages: 100, dirty_regions: 10, vmas: 5, ..gb };
		assert_eq!(us(Engine::Seal, dirty), 20_000 + 5 * 200 + 10 * 2_000 + 100 * 25);
		assert!(m.cycle_time(Engine::Fork, gb) > m.fork_time(Engine::Fork, gb));
		let writes = Writes { pages: 10, regions: 10 };
		assert_eq!(m.write_time(Engine::ForkThp, writes).unwrap(), Duration::from_micros(67));
		assert_eq!(m.seal_time(Pages::Auto, 2 << 30), Duration::from_millis(1001));
		assert_eq!(m.seal_time(Pages::Small, 1 << 30), Duration::from_millis(301));
	}

	#[test]
	fn without_huge_pages_nothing_is_said_about_them() {
		let m = CostModel { write_fork_thp: None, ..model() };
		assert_eq!(m.fork_time(Engine::ForkThp, Memory::clean(1 << 30)), None);
		assert_eq!(m.write_time(Engine::ForkThp, Writes::default()), None);
		assert_eq!(m.break_even_forks(Engine::ForkThp, Memory::clean(1 << 30), Writes::default()), None);
	}

	#[test]
	fn without_a_kernel_for_it_nothing_is_said_about_forks_on_demand() {
		let m = CostModel { write_odf: None, ..model() };
		assert_eq!(m.fork_time(Engine::Odf, Memory::clean(1 << 30)), None);
		assert_eq!(m.write_time(Engine::Odf, Writes::default()), None);
	}

	#[test]
	fn a_seal_pays_after_the_clones_whose_gain_is_its_price() {
		let m = model();
		let gb = Memory::clean(1 << 30);
		// 501 ms against 262,144 × 50 ns a cycle.
		assert_eq!(m.break_even_forks(Engine::Fork, gb, Writes::default()), Some(39));
		let against_thp = m.break_even_forks(Engine::ForkThp, gb, Writes::default()).unwrap();
		assert_eq!(against_thp, 1398);
		let always_dirty = Memory { dirty_pages: 262_144, dirty_regions: 512, ..gb };
		assert_eq!(m.break_even_forks(Engine::ForkThp, always_dirty, Writes::default()), None);
		assert_eq!(m.break_even_forks(Engine::Fork, Memory::clean(0), Writes::default()), None);
	}
}
