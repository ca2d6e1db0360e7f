//! The worker of `bench cow-model`: a parent whose children write some pages and exit.

use crate::{
	prelude::*,
	subjects::{cpu::cpu_time, engine, parent::Spec},
};

pub struct CowSubject {
	region: Region,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum Ask {
	/// Children one by one, each writing so many pages, timed one by one, until there are `samples` or `budget`
	/// microseconds are over; one more before, not counted.
	Each { written: u64, samples: usize, budget: u64 },
	/// So many children, timed together.
	Together { written: u64, forks: u32 },
	/// Copies of so many bytes from one warm buffer to another.
	Copy { bytes: u64, samples: usize },
	/// Check that the parent's memory still is what was written.
	Verify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum Measure {
	/// One child, from before the fork until it is reaped, in microseconds.
	Cycle,
	/// All children together, in microseconds: real time, and that of the processor in user and system mode.
	Real,
	User,
	System,
	/// Bytes per microsecond copied.
	#[strum(serialize = "copy_rate")]
	Copy,
}

impl Measure {
	/// The unit in records.
	pub fn unit(self) -> &'static str {
		if self == Self::Copy { "MB/s" } else { "us" }
	}
}

impl Subject for CowSubject {
	const NAME: &'static str = "cow-model";
	type Spec = Spec;
	type Ready = Facts;
	type Ask = Ask;
	type Reply = Visit<Measure>;

	fn prepare(spec: Spec) -> Result<(Self, Facts)> {
		let region = spec.fill()?;
		let facts = Facts::read(&region)?;
		Ok((Self { region }, facts))
	}

	fn answer(&mut self, ask: Ask) -> Result<Self::Reply> {
		match ask {
			Ask::Each { written, samples, budget } => self.each(written, samples, budget),
			Ask::Together { written, forks } => self.together(written, forks),
			Ask::Copy { bytes, samples } => copy(bytes, samples),
			Ask::Verify => self.region.verify().map(|()| Vec::new()),
		}
	}
}

impl CowSubject {
	fn each(&self, written: u64, samples: usize, budget: u64) -> Result<Visit<Measure>> {
		self.child(written)?;
		let (begin, mut times) = (Instant::now(), Vec::new());
		while times.is_empty() || (times.len() < samples && begin.elapsed().as_micros() < u128::from(budget)) {
			let before = Instant::now();
			self.child(written)?;
			times.push(micros(before));
		}
		Ok(vec![(Measure::Cycle, times)])
	}

	fn together(&self, written: u64, forks: u32) -> Result<Visit<Measure>> {
		let (user, system) = cpu_time();
		let begin = Instant::now();
		for _ in 0..forks {
			self.child(written)?;
		}
		let real = micros(begin);
		let (user_after, system_after) = cpu_time();
		Ok(vec![
			(Measure::Real, vec![real]),
			(Measure::User, vec![user_after - user]),
			(Measure::System, vec![system_after - system]),
		])
	}

	/// Forks a child that writes one word in each of the first `written` pages, and checks that it did.
	fn child(&self, written: u64) -> Result {
		// SAFETY: the child writes to the region.
		let cloned = unsafe {
			engine::in_clone(Method::Fork4k, || {
				for page in 0..written as usize {
					let index = page * WORDS_PER_PAGE;
					self.region.write(index, !word(index));
				}
				0
			})
		}?;
		cloned.check(|| format!("writing {written} pages"), &[])
	}
}

/// The rate of `memcpy(3)`, in bytes per microsecond: megabytes (10⁶) per second.
fn copy(bytes: u64, samples: usize) -> Result<Visit<Measure>> {
	let bytes = bytes as usize;
	let source: Vec<u8> = (0..bytes).map(|index| word(index / 8) as u8).collect();
	let mut target = vec![1_u8; bytes];
	let mut rates = Vec::new();
	// Small copies are repeated: the clock's step must not show.
	let times = (4_000_000 / bytes).max(1);
	for _ in 0..=samples {
		let begin = Instant::now();
		for _ in 0..times {
			std::hint::black_box(&mut target).copy_from_slice(std::hint::black_box(&source));
		}
		rates.push((times * bytes) as f64 / (micros(begin)));
	}
	if target != source {
		return Err(BenchError::Void("a copy differs from its source".into()));
	}
	// The first one found cold buffers.
	rates.remove(0);
	Ok(vec![(Measure::Copy, rates)])
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn children_write_their_own_pages_and_the_parents_stay() {
		let mut subject = CowSubject { region: Region::filled(Method::Fork4k, 1 << 20).unwrap() };
		let each = subject.answer(Ask::Each { written: 256, samples: 3, budget: 600_000_000 }).unwrap();
		assert_eq!((each[0].0, each[0].1.len()), (Measure::Cycle, 3));
		let together = subject.answer(Ask::Together { written: 128, forks: 5 }).unwrap();
		let of = |wanted| together.iter().find(|(measure, _)| *measure == wanted).unwrap().1[0];
		assert!(of(Measure::Real) > 0.0 && of(Measure::User) >= 0.0 && of(Measure::System) >= 0.0, "{together:?}");
		subject.answer(Ask::Verify).unwrap();
	}
}
