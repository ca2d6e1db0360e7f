//! The worker of `bench fork`: memory of one size held in one way, cloned on request.

use std::sync::atomic::AtomicU64;

use super::{
	cycle::{Work, cycle},
	probe::{Batch, Samples},
	touch::{ParentState, Touched},
};
use crate::{
	prelude::*,
	subjects::{
		engine::{self, Sealed},
		parent::Spec,
	},
};

pub struct ForkSubject {
	method: Method,
	region: Region,
	touched: Touched,
	/// What a clone says of itself.
	time: &'static AtomicU64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Ready {
	/// The parent, idle.
	pub facts: Facts,
	/// What was sealed, for the method that seals.
	pub sealed: Option<Sealed>,
}

#[derive(Clone, Serialize, Deserialize)]
pub enum Ask {
	Batch(Batch),
	/// Bring the parent into this state.
	Become(ParentState),
	/// Check that the parent's memory still is what was filled in.
	Verify,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
	Batch(Samples),
	/// The parent in its new state, and how many of its pages are written.
	Become {
		facts: Facts,
		written_pages: usize,
	},
	/// The memory is unchanged.
	Verified,
}

impl Subject for ForkSubject {
	const NAME: &'static str = "fork";
	type Spec = Spec;
	type Ready = Ready;
	type Ask = Ask;
	type Reply = Reply;

	fn prepare(spec: Spec) -> Result<(Self, Ready)> {
		let region = spec.fill()?;
		let sealed = engine::prepare(spec.method, region.bytes())?;
		let facts = Facts::read(&region)?;
		// SAFETY: zeros are an atomic.
		let time = unsafe { memory::shared()? };
		let subject = Self { method: spec.method, region, touched: Touched::default(), time };
		Ok((subject, Ready { facts, sealed }))
	}

	fn answer(&mut self, ask: Ask) -> Result<Reply> {
		match ask {
			Ask::Batch(batch) => self.batch(&batch).map(Reply::Batch),
			Ask::Become(state) => {
				let written_pages = self.touched.advance(&self.region, state);
				if let (ParentState::WroteReadAndDropped(_), Method::Seal) = (state, self.method) {
					engine::drop_refills()?;
				}
				Ok(Reply::Become { facts: Facts::read(&self.region)?, written_pages })
			}
			Ask::Verify => self.region.verify().map(|()| Reply::Verified),
		}
	}
}

impl ForkSubject {
	fn batch(&self, batch: &Batch) -> Result<Samples> {
		if batch.probe.touches() != (0, 0) && self.region.pages() == 0 {
			return Err(unable!("a parent without memory has none for its clones to touch"));
		}
		let mut random = fastrand::Rng::with_seed(batch.seed);
		let mut one = || {
			let work = Work::random(batch.probe, &self.region, &mut random);
			cycle(self.method, &self.region, &work, self.time)
		};
		// The first clone finds caches full of the other workers' data: it is made and checked, but not counted.
		one()?;
		wait_for(batch.start);
		let mut samples = Samples::default();
		let budget = Duration::from_micros(batch.budget);
		let begin = Instant::now();
		while samples.call.len() < batch.samples && (samples.call.is_empty() || begin.elapsed() < budget) {
			let timing = one()?;
			samples.call.push(us(timing.call));
			samples.cycle.push(us(timing.cycle));
			samples.child.extend(timing.child.map(us));
		}
		Ok(samples)
	}
}

/// Spins until `start`: a sleeping process wakes up too unevenly to begin together with others.
fn wait_for(start: Option<u64>) {
	while start.is_some_and(|start| monotonic() < start) {
		std::hint::spin_loop();
	}
}

#[cfg(test)]
mod tests {
	use super::{super::probe::Probe, *};

	fn subject(size: u64) -> ForkSubject {
		ForkSubject {
			method: Method::Fork4k,
			region: Region::filled(Method::Fork4k, size).unwrap(),
			touched: Touched::default(),
			// SAFETY: zeros are an atomic.
			time: unsafe { memory::shared().unwrap() },
		}
	}

	fn batch(probe: Probe) -> Batch {
		Batch { probe, samples: 4, budget: 10_000_000, start: None, seed: 1 }
	}

	#[test]
	fn a_batch_stops_at_its_count_or_its_budget() {
		let subject = subject(1 << 20);
		let samples = subject.batch(&batch(Probe::Reads)).unwrap();
		assert_eq!((samples.call.len(), samples.cycle.len(), samples.child.len()), (4, 4, 4));
		let samples = subject.batch(&Batch { samples: usize::MAX, budget: 0, ..batch(Probe::Exit) }).unwrap();
		assert_eq!((samples.call.len(), samples.cycle.len(), samples.child.len()), (1, 1, 0));
	}

	#[test]
	fn a_batch_waits_for_its_start() {
		let start = monotonic() + 30_000_000;
		subject(0).batch(&Batch { start: Some(start), ..batch(Probe::Exit) }).unwrap();
		assert!(monotonic() >= start);
	}

	#[test]
	fn an_empty_parent_cannot_be_asked_for_touches() {
		assert!(subject(0).batch(&batch(Probe::FirstWrite)).is_err());
		assert_eq!(subject(0).batch(&batch(Probe::Exit)).unwrap().call.len(), 4);
	}
}
