//! Memory whose pages an input reads and writes.

use crate::{prelude::*, subjects::engine};

/// Pages read and pages written in a cycle.
const READ: usize = 25;
const WRITTEN: usize = 25;
/// Pages accessed again and again, where accesses are hot. Reads go to those behind them, too.
const HOT: usize = 64;
const NEAR: usize = 8;

/// Where accesses go.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Accesses {
	/// To the same few pages.
	Hot,
	/// Anywhere.
	Scattered,
}

/// What one input accesses.
#[derive(Clone, Copy)]
pub struct Input {
	read: [usize; READ],
	pub written: [usize; WRITTEN],
}

/// Pages that one thread uses; each begins with its number, and is [`super::FILL`] from there on.
pub struct Pages {
	start: usize,
	count: usize,
	accesses: Accesses,
	hot: [usize; HOT],
}

impl Pages {
	/// The pages of `len` bytes at `start`, which are there while this is.
	pub fn new(start: usize, len: usize, accesses: Accesses) -> Self {
		let count = len / PAGE;
		let mut random = fastrand::Rng::with_seed(len as u64);
		Self { start, count, accesses, hot: [0; HOT].map(|_| random.usize(..count)) }
	}

	fn byte(&self, page: usize, at: usize) -> *mut u8 {
		assert!(page < self.count && at < PAGE);
		(self.start + page * PAGE + at) as *mut u8
	}

	pub fn choose(&self, random: &mut fastrand::Rng) -> Input {
		let mut any = |near: usize| match self.accesses {
			Accesses::Hot => (self.hot[random.usize(..HOT)] + random.usize(..near)) % self.count,
			Accesses::Scattered => random.usize(..self.count),
		};
		Input { read: [0; READ].map(|_| any(NEAR)), written: [0; WRITTEN].map(|_| any(1)) }
	}

	pub fn access(&self, input: &Input) {
		for (read, written) in input.read.iter().zip(&input.written) {
			// SAFETY: inside the memory, which this process's one thread uses by such pointers only.
			unsafe {
				self.byte(*read, 64).read_volatile();
				let byte = self.byte(*written, 128);
				byte.write_volatile(!byte.read_volatile());
			}
		}
	}

	/// Has a clone do `work`, and waits for its end; how long that took, in microseconds.
	pub fn in_clone(&self, work: impl FnOnce(&Self)) -> Result<f64> {
		// SAFETY: the child works and ends.
		let cloned = unsafe {
			engine::in_clone(Method::Seal, || {
				work(self);
				0
			})
		}?;
		cloned.check(|| "accessing pages".to_owned(), &[])?;
		Ok(us(cloned.whole))
	}

	/// Looks at pages that have been written.
	pub fn check(&self, pages: &[usize]) -> Result {
		let wrong = pages.iter().find(|page| {
			// SAFETY: inside the memory, and aligned.
			let number = unsafe { self.byte(**page, 0).cast::<usize>().read_volatile() };
			// SAFETY: as above.
			number != **page || unsafe { self.byte(**page, 128).read_volatile() } != super::FILL
		});
		wrong.map_or(Ok(()), |page| Err(BenchError::Void(format!("page {page} did not go back"))))
	}
}
