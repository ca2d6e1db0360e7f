//! What a fork of a surveyed process costs by each engine.

use std::time::Duration;

use flashfork::{
	CostModel, Pages,
	cost::{Engine as Priced, Writes},
};
use serde::Serialize;

use crate::survey::{Dirtied, Survey};

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;

/// A way the process could be forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
	/// As it is.
	Now,
	/// With its anonymous memory on transparent huge pages as far as they fit.
	Thp,
	/// With its memory sealed as far as it can be.
	Seal,
	/// With page tables shared on demand.
	Odf,
}

/// The forecast for one engine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlook {
	/// The engine.
	pub engine: Engine,
	/// Why it is not to be had; the times are missing then.
	pub unavailable: Option<String>,
	/// The fork call, in microseconds.
	pub fork_us: Option<f64>,
	/// What the writes between two forks cost more because of the fork, in microseconds.
	pub writes_us: Option<f64>,
}

/// The forecast for all engines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
	/// In the order of [`Engine`].
	pub outlooks: Vec<Outlook>,
	/// What is written between forks.
	pub dirtied: Dirtied,
	/// What the seal takes, once, in microseconds; missing where there is nothing to seal.
	pub seal_us: Option<f64>,
}

impl Outlook {
	/// Fork call and writes together, in microseconds.
	pub fn total_us(&self) -> Option<f64> {
		Some(self.fork_us? + self.writes_us?)
	}
}

impl Forecast {
	/// Prices `survey` by `model`.
	pub fn make(survey: &Survey, model: &CostModel, dirtied: Dirtied) -> Self {
		let prices = &model.fork;
		let own = procfs::process::Process::myself().and_then(|process| process.maps());
		// The price of a process contains those of a small program's mappings: ours, which it was measured in.
		let vmas = survey.vmas.saturating_sub(own.map_or(0, |maps| maps.iter().count() as u64)) as f64;
		let base = prices.process + prices.vma * vmas;
		let entries = |small: u64, huge: u64| {
			base + prices.page * (small / PAGE) as f64 + prices.huge_page * (huge as f64 / HUGE as f64)
		};
		let outlook = |engine, nanoseconds: f64, priced| {
			let writes = Writes { pages: dirtied.pages, regions: dirtied.regions };
			let writes = model.write_time(priced, writes).unwrap_or(Duration::ZERO);
			Outlook {
				engine,
				unavailable: None,
				fork_us: Some(nanoseconds / 1e3),
				writes_us: Some(writes.as_nanos() as f64 / 1e3),
			}
		};
		let without = |engine, why: String| Outlook { engine, unavailable: Some(why), fork_us: None, writes_us: None };

		let small = survey.small_bytes + survey.beside_bytes;
		let mostly_huge = survey.huge_bytes > survey.small_bytes && model.write_fork_thp.is_some();
		let as_it_is = if mostly_huge { Priced::ForkThp } else { Priced::Fork };
		let now = outlook(Engine::Now, entries(small, survey.huge_bytes), as_it_is);

		let possible = survey.huge_possible_bytes.max(survey.huge_bytes);
		let still_small = (survey.small_bytes + survey.huge_bytes).saturating_sub(possible) + survey.beside_bytes;
		let thp = match model.write_fork_thp {
			Some(_) => outlook(Engine::Thp, entries(still_small, possible), Priced::ForkThp),
			None => without(Engine::Thp, "this host gives anonymous memory no huge pages".to_owned()),
		};

		let seal = match &survey.refused {
			Some(what) => without(Engine::Seal, format!("{what} is not sealed")),
			None if survey.sealable_bytes == 0 => without(Engine::Seal, "there is nothing to seal".to_owned()),
			None => {
				let left = (survey.small_bytes + survey.huge_bytes).saturating_sub(survey.sealable_bytes);
				let dirty = prices.dirty_region * dirtied.regions as f64 + prices.dirty_page * dirtied.pages as f64;
				outlook(Engine::Seal, entries(left + survey.beside_bytes, 0) + dirty, Priced::Seal)
			}
		};

		let regions = (survey.small_bytes + survey.beside_bytes).div_ceil(HUGE);
		let odf = match model.write_odf {
			Some(_) => {
				outlook(Engine::Odf, entries(0, survey.huge_bytes) + prices.shared_table * regions as f64, Priced::Odf)
			}
			None => without(Engine::Odf, "this kernel is not patched for it".to_owned()),
		};
		let seal_time = model.seal_time(Pages::Auto, survey.sealable_bytes).as_nanos() as f64 / 1e3;
		let seal_us = seal.unavailable.is_none().then_some(seal_time);
		Self { outlooks: vec![now, thp, seal, odf], dirtied, seal_us }
	}

	/// How many forks a seal needs to have paid, compared with `instead`. `None`: never, or there is no such engine
	/// here.
	pub fn seal_pays_after(&self, instead: Engine) -> Option<u64> {
		let total = |engine| self.of(engine).and_then(Outlook::total_us);
		let gain = total(instead)? - total(Engine::Seal)?;
		(gain > 0.0).then_some((self.seal_us? / gain).ceil().max(1.0) as u64)
	}

	/// The forecast for `engine`, if it is to be had.
	pub fn of(&self, engine: Engine) -> Option<&Outlook> {
		self.outlooks.iter().find(|outlook| outlook.engine == engine && outlook.unavailable.is_none())
	}
}
