//! One clone: fork, let it work, reap it, and look at its exit status every time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::probe::Probe;
use crate::{
	prelude::*,
	subjects::engine::{self, WRONG_DATA},
};

/// What one clone took.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
	/// The fork call in the parent.
	pub call: Duration,
	/// From before the fork until the clone was reaped.
	pub cycle: Duration,
	/// The work in the clone, when it was timed there.
	pub child: Option<Duration>,
}

/// The words a clone touches. Reads use even words and writes odd ones, so that they never meet.
pub struct Work {
	probe: Probe,
	reads: [usize; 100],
	writes: [usize; 25],
	expected: u64,
}

impl Work {
	/// Random words of `region` for `probe`.
	pub fn random(probe: Probe, region: &Region, random: &mut fastrand::Rng) -> Self {
		let mut work = Self { probe, reads: [0; 100], writes: [0; 25], expected: 0 };
		let (reads, writes) = probe.touches();
		let mut pick =
			|odd| random.usize(..region.pages()) * WORDS_PER_PAGE + 2 * random.usize(..WORDS_PER_PAGE / 2) + odd;
		work.reads[..reads].fill_with(|| pick(0));
		work.writes[..writes].fill_with(|| pick(1));
		work.expected = work.reads[..reads].iter().fold(0, |sum, &index| sum ^ word(index));
		work
	}

	/// Touches the words and returns whether what was read is what was filled in. Neither allocates nor locks.
	#[inline(never)]
	fn perform(&self, region: &Region) -> bool {
		let (reads, writes) = self.probe.touches();
		let mut found = 0;
		for turn in 0..reads.max(writes) {
			if turn < reads {
				found ^= region.read(self.reads[turn]);
			}
			if turn < writes {
				region.write(self.writes[turn], !word(self.writes[turn]));
			}
		}
		found == self.expected
	}
}

/// Makes one clone that performs `work`. In `time`, which they share, it says how long it took.
pub fn cycle(method: Method, region: &Region, work: &Work, time: &'static AtomicU64) -> Result<Timing> {
	time.store(0, Relaxed);
	// SAFETY: the child calls async-signal-safe functions only: it neither allocates nor locks.
	let cloned = unsafe { engine::in_clone(method, || if child(region, work, time) { 0 } else { WRONG_DATA.0 }) }?;
	cloned.check(|| format!("doing '{:?}'", work.probe), &[WRONG_DATA])?;
	let child = work.probe.timed_in_child().then_some(Duration::from_nanos(time.load(Relaxed)));
	Ok(Timing { call: cloned.call, cycle: cloned.whole, child })
}

fn child(region: &Region, work: &Work, time: &AtomicU64) -> bool {
	if !work.probe.timed_in_child() {
		return work.perform(region);
	}
	// The first look at the clock and the first touch of the shared page fault: before the clock starts.
	time.store(Instant::now().elapsed().as_nanos() as u64, Relaxed);
	let begin = Instant::now();
	let right = work.perform(region);
	time.store(begin.elapsed().as_nanos() as u64, Relaxed);
	right
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_clone_of_each_kind_finds_its_data_and_leaves_the_parents_alone() {
		let region = Region::filled(Method::Fork4k, 1 << 20).unwrap();
		// SAFETY: zeros are an atomic.
		let time = unsafe { memory::shared().unwrap() };
		let mut random = fastrand::Rng::with_seed(1);
		for probe in Probe::all() {
			let work = Work::random(probe, &region, &mut random);
			let timing = cycle(Method::Fork4k, &region, &work, time).unwrap();
			assert!(timing.cycle >= timing.call && timing.call > Duration::ZERO, "{timing:?}");
			assert_eq!(timing.child.is_some(), probe.timed_in_child());
			assert!(timing.child.is_none_or(|child| !child.is_zero() && child < timing.cycle), "{timing:?}");
		}
		region.verify().unwrap();
	}

	#[test]
	fn a_clone_that_finds_other_bytes_is_an_error() {
		let region = Region::filled(Method::Fork4k, 1 << 20).unwrap();
		let mut work = Work::random(Probe::Reads, &region, &mut fastrand::Rng::with_seed(2));
		work.expected ^= 1;
		// SAFETY: zeros are an atomic.
		let time = unsafe { memory::shared().unwrap() };
		let error = cycle(Method::Fork4k, &region, &work, time).unwrap_err();
		assert!(error.to_string().contains("other bytes"), "{error}");
	}

	#[test]
	fn reads_and_writes_never_meet() {
		let region = Region::filled(Method::Fork4k, 8192).unwrap();
		let work = Work::random(Probe::Mixed, &region, &mut fastrand::Rng::with_seed(3));
		assert!(work.reads[..25].iter().all(|index| index % 2 == 0));
		assert!(work.writes.iter().all(|index| index % 2 == 1));
		assert!(work.reads.iter().chain(&work.writes).all(|&index| index < 1024));
	}
}
