//! The worker of `bench creation`: a parent of one kind and size, which makes children on request.

use std::os::fd::OwnedFd;

use super::{
	cycle::{Moments, cycle},
	extras,
	way::{Phase, Then, Way},
};
use crate::{
	prelude::*,
	subjects::{engine, parent},
};

pub struct CreationSubject {
	region: Region,
	touched: bool,
	moments: &'static Moments,
	/// Kept open.
	_files: Vec<OwnedFd>,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Spec {
	pub parent: parent::Spec,
	/// Whether its memory is written before.
	pub touch: bool,
	/// More open files.
	pub fds: u32,
	/// More mappings.
	pub vmas: u32,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Ready {
	/// The parent.
	pub facts: Facts,
	/// Bytes sealed.
	pub sealed: u64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum Ask {
	/// Children, after one that isn't counted; until there are `samples` of them or `budget` microseconds are over.
	Batch { way: Way, then: Then, samples: usize, budget: u64 },
	/// Check that the memory still is what was written.
	Verify,
}

impl Subject for CreationSubject {
	const NAME: &'static str = "creation";
	type Spec = Spec;
	type Ready = Ready;
	type Ask = Ask;
	type Reply = Visit<Phase>;

	fn prepare(spec: Spec) -> Result<(Self, Ready)> {
		let parent::Spec { method, size, cpu } = spec.parent;
		pin::pin(cpu)?;
		let files = extras::open_files(spec.fds)?;
		extras::map_pages(spec.vmas)?;
		let region = if spec.touch { Region::filled(method, size)? } else { Region::mapped(method, size)? };
		// SAFETY: zeros are atomics.
		let moments = unsafe { memory::shared()? };
		// A parent too small for a seal is found out by the bytes sealed.
		let sealed = engine::prepare(method, 0)?.map_or(0, |sealed| sealed.bytes);
		let facts = Facts::read(&region)?;
		Ok((Self { region, touched: spec.touch, moments, _files: files }, Ready { facts, sealed }))
	}

	fn answer(&mut self, ask: Ask) -> Result<Self::Reply> {
		match ask {
			Ask::Batch { way, then, samples, budget } => self.batch(way, then, samples, Duration::from_micros(budget)),
			Ask::Verify if self.touched => self.region.verify().map(|()| Vec::new()),
			Ask::Verify => Ok(Vec::new()),
		}
	}
}

impl CreationSubject {
	fn batch(&self, way: Way, then: Then, samples: usize, budget: Duration) -> Result<Visit<Phase>> {
		// The first child finds caches full of the other ways' data: it is made and checked, but not counted.
		cycle(way, then, self.moments)?;
		let mut taken = Vec::new();
		let begin = Instant::now();
		for made in 0..samples.max(1) {
			if made > 0 && begin.elapsed() >= budget {
				break;
			}
			taken.extend(cycle(way, then, self.moments)?);
		}
		Ok(by_measure(taken))
	}
}
