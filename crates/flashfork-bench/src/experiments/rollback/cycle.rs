//! The worker whose region goes back, or which forks instead, after each input's accesses.

use flashfork_core::{
	Pages as PageSize,
	region::{Region, Way},
};

use super::{
	Measure,
	pages::{Accesses, Pages},
	unable,
};
use crate::{prelude::*, subjects::engine};

/// Cycles of a visit, and those before them that aren't counted: caches are full of the other workers' data.
const CYCLES: usize = 60;
const UNCOUNTED: usize = 4;

/// How one input's writes are kept from the next.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr, strum::VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Kept {
	/// The region drops them.
	Dropping,
	/// It copies them back.
	Copying,
	/// Whichever it finds cheaper.
	Automatic,
	/// A clone makes them.
	Fork,
}

/// What a worker prepares.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct CycleSpec {
	pub size: u64,
	pub accesses: Accesses,
	pub kept: Kept,
	pub cpu: usize,
}

/// A sealed region.
pub struct CycleSubject {
	spec: CycleSpec,
	region: Region,
	pages: Pages,
	random: fastrand::Rng,
}

impl Subject for CycleSubject {
	const NAME: &'static str = "rollback-cycle";
	type Spec = CycleSpec;
	/// Whether it goes back as asked for.
	type Ready = bool;
	type Ask = ();
	type Reply = Visit<Measure>;

	fn prepare(spec: CycleSpec) -> Result<(Self, bool)> {
		pin::pin(spec.cpu)?;
		engine::trust_own_code()?;
		let mut region = super::prepare(spec.size, PageSize::Auto)?;
		if spec.kept == Kept::Fork {
			engine::seal(engine::Pages::Auto, 0)?;
		}
		let way = match spec.kept {
			Kept::Dropping | Kept::Fork => Some(Way::Drop),
			Kept::Copying => Some(Way::Copy),
			Kept::Automatic => None,
		};
		region.go_back_by(way);
		region.rollback().map_err(unable)?;
		let is_so = spec.kept != Kept::Copying || region.next_way() == Way::Copy;
		let pages = Pages::new(region.range().start, region.range().len(), spec.accesses);
		Ok((Self { spec, region, pages, random: fastrand::Rng::with_seed(spec.size) }, is_so))
	}

	fn answer(&mut self, (): ()) -> Result<Visit<Measure>> {
		let (mut taken, mut all) = (Vec::new(), Vec::new());
		for cycle in 0..CYCLES + UNCOUNTED {
			let input = self.pages.choose(&mut self.random);
			let took = match self.spec.kept {
				Kept::Fork => self.pages.in_clone(|pages| pages.access(&input))?,
				_ => {
					let begin = Instant::now();
					self.pages.access(&input);
					self.region.rollback().map_err(unable)?;
					micros(begin)
				}
			};
			if cycle >= UNCOUNTED {
				taken.push(took);
			}
			all.extend(input.written);
		}
		self.pages.check(&all)?;
		// What the check has read would be in the first cycle's way.
		self.region.rollback().map_err(unable)?;
		Ok(vec![(Measure::Cycle, taken)])
	}
}
