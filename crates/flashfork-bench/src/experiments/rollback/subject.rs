//! The worker of `bench rollback`: a process that goes back as a whole.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use flashfork::{SnapshotOptions, discard_snapshot, restore, snapshot};

use super::Measure;
use crate::{
	prelude::*,
	subjects::{engine, parent::Spec},
};

const MOST: usize = 64;

pub struct RollbackSubject {
	region: Region,
	outside: &'static Outside,
}

/// What restores don't touch: shared memory. Times in nanoseconds.
struct Outside {
	begun: AtomicU64,
	write: [AtomicU64; MOST],
	back: [AtomicU64; MOST],
}

/// A snapshot and so many restores, before each of which so many random pages are written.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Ask {
	pub written: usize,
	pub turns: usize,
	pub seed: u64,
}

impl Subject for RollbackSubject {
	const NAME: &'static str = "rollback";
	type Spec = Spec;
	type Ready = ();
	type Ask = Ask;
	type Reply = Visit<Measure>;

	fn prepare(spec: Spec) -> Result<(Self, ())> {
		// SAFETY: zeros are atomics.
		let outside = unsafe { memory::shared()? };
		engine::trust_own_code()?;
		Ok((Self { region: spec.fill()?, outside }, ()))
	}

	fn answer(&mut self, ask: Ask) -> Result<Self::Reply> {
		let unable = |error: flashfork::SnapshotError| BenchError::Unable(error.to_string());
		let Outside { begun, write, back } = self.outside;
		// One turn more, the first, is made and checked, but not counted.
		let turns = ask.turns.min(MOST - 1) + 1;
		let turn = snapshot(&SnapshotOptions::default()).map_err(unable)? as usize;
		let now = monotonic();
		if turn > 0 {
			back[turn - 1].store(now - begun.load(SeqCst), SeqCst);
			self.check(ask, turn - 1)?;
		}
		if turn < turns {
			let start = monotonic();
			for index in self.chosen(ask, turn) {
				self.region.write(index, !word(index));
			}
			let end = monotonic();
			write[turn].store(end - start, SeqCst);
			begun.store(monotonic(), SeqCst);
			// SAFETY: nothing outside memory is used but the clock and the shared page.
			return Err(unable(unsafe { restore(turn as u64 + 1) }));
		}
		discard_snapshot().map_err(unable)?;
		let taken = |times: &[AtomicU64; MOST]| times[1..turns].iter().map(|ns| ns.load(SeqCst) as f64 / 1e3).collect();
		Ok(vec![(Measure::Rollback, taken(back)), (Measure::Write, taken(write))])
	}
}

impl RollbackSubject {
	/// The words, one a page, that are written in a turn.
	fn chosen(&self, ask: Ask, turn: usize) -> impl Iterator<Item = usize> {
		let mut random = fastrand::Rng::with_seed(ask.seed ^ ((turn as u64) << 32));
		let pages = self.region.pages();
		(0..ask.written).map(move |_| random.usize(..pages) * WORDS_PER_PAGE)
	}

	fn check(&self, ask: Ask, turn: usize) -> Result {
		match self.chosen(ask, turn).find(|index| self.region.read(*index) != word(*index)) {
			Some(index) => Err(BenchError::Void(format!("the word at {} was not restored", index * 8))),
			None => Ok(()),
		}
	}
}
