//! The worker of `bench fault` and `bench access-mix`: a parent that forks and whose memory is then touched.

use std::{
	io::{PipeReader, PipeWriter, Read, pipe},
	sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::mix::{BLOCK, Piece, Walk};
use crate::{
	prelude::*,
	subjects::{
		engine::{self, Side, WRONG_DATA},
		parent::Spec,
	},
};

pub struct AccessSubject {
	method: Method,
	region: Region,
	buffer: Vec<u64>,
	/// Of a child's writes, in nanoseconds.
	times: &'static [AtomicU64; 2],
	/// Whether the parent has written since the last seal.
	dirty: bool,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum Ask {
	/// Forks; each child times its first write in the middle of the memory, one to the next page, and one far away.
	Faults { samples: usize },
	/// Forks once and goes through the memory while the child lives. Sealed memory written before is sealed anew first.
	Walk(Walk),
}

/// What is measured, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
	/// The child's first write, to a page in the middle of the memory.
	FirstWrite,
	/// Its second write, to the page beside.
	NextWrite,
	/// From before the fork until the parent has gone through its part of the memory.
	ForkAndAccess,
	/// Sealing anew before that, which is not part of it.
	Reseal,
}

impl Subject for AccessSubject {
	const NAME: &'static str = "access";
	type Spec = Spec;
	type Ready = Facts;
	type Ask = Ask;
	type Reply = Visit<Measure>;

	fn prepare(spec: Spec) -> Result<(Self, Facts)> {
		// Before the seal: what comes after it is written once and for all.
		let buffer = vec![1; BLOCK / 8];
		let region = spec.fill()?;
		// SAFETY: zeros are atomics.
		let times = unsafe { memory::shared()? };
		engine::prepare(spec.method, region.bytes())?;
		let facts = Facts::read(&region)?;
		Ok((Self { method: spec.method, region, buffer, times, dirty: false }, facts))
	}

	fn answer(&mut self, ask: Ask) -> Result<Self::Reply> {
		match ask {
			Ask::Faults { samples } => self.faults(samples),
			Ask::Walk(walk) => self.walk(walk),
		}
	}
}

impl AccessSubject {
	fn faults(&self, samples: usize) -> Result<Visit<Measure>> {
		let (mut first, mut next) = (Vec::new(), Vec::new());
		// The first child finds caches full of other workers' data: it is made and checked, but not counted.
		for made in 0..=samples {
			let [a, b] = self.fault()?;
			if made > 0 {
				first.push(a);
				next.push(b);
			}
		}
		Ok(vec![(Measure::FirstWrite, first), (Measure::NextWrite, next)])
	}

	/// One child that writes twice and hands back both times.
	fn fault(&self) -> Result<[f64; 2]> {
		let page = self.region.pages() / 2 * WORDS_PER_PAGE;
		// SAFETY: the child writes to the region and to shared memory.
		let cloned = unsafe {
			engine::in_clone(self.method, || {
				let mut times = [0_u64; 2];
				// The first look at the clock and the first write to the stack fault: before the clock starts.
				std::hint::black_box(&mut times)[0] = Instant::now().elapsed().as_nanos() as u64;
				for (time, index) in times.iter_mut().zip([page, page + WORDS_PER_PAGE]) {
					let begin = Instant::now();
					self.region.write(index, !word(index));
					*time = begin.elapsed().as_nanos() as u64;
				}
				self.times.iter().zip(times).for_each(|(shared, time)| shared.store(time, Relaxed));
				if self.region.read(page) == !word(page) { 0 } else { WRONG_DATA.0 }
			})
		}?;
		cloned.check(|| "looking at its memory".to_owned(), &[WRONG_DATA])?;
		if self.region.read(page) != word(page) {
			return Err(BenchError::Void("a child's write reached its parent".into()));
		}
		Ok([0, 1].map(|write| self.times[write].load(Relaxed) as f64 / 1e3))
	}

	fn walk(&mut self, walk: Walk) -> Result<Visit<Measure>> {
		let mut reseal = Vec::new();
		if self.method == Method::Seal && self.dirty {
			let begin = Instant::now();
			engine::seal(engine::Pages::Auto, 0)?;
			reseal.push(micros(begin));
			self.dirty = false;
		}
		let (reader, writer) = pipe().or_cant("talk to a child")?;
		let witness = self.region.pages() / 3 * WORDS_PER_PAGE;
		let expected = self.region.read(witness);
		let begin = Instant::now();
		// SAFETY: the child waits, reads the region and ends in `_exit`.
		let pid = match unsafe { engine::fork(self.method) } {
			Ok(Side::Child) => self.wait(reader, writer, witness, expected),
			Ok(Side::Parent(pid)) => pid,
			Err(error) => return Err(BenchError::system("fork", error)),
		};
		let pieces: Vec<Piece> = walk.pieces(self.region.bytes() as usize).collect();
		for piece in pieces {
			self.copy(piece);
			self.dirty |= piece.write;
		}
		let took = micros(begin);
		// The child goes on when all ends it doesn't hold are closed.
		drop((reader, writer));
		engine::check(engine::reap(pid)?, || "looking at its memory".to_owned(), &[WRONG_DATA])?;
		let mut measured = vec![(Measure::ForkAndAccess, vec![took])];
		if !reseal.is_empty() {
			measured.push((Measure::Reseal, reseal));
		}
		Ok(measured)
	}

	/// The child: sleeps until the parent is done, then looks whether its memory still is what it was.
	fn wait(&self, mut reader: PipeReader, writer: PipeWriter, witness: usize, expected: u64) -> ! {
		drop(writer);
		let ended = reader.read(&mut [0]).is_ok();
		let right = ended && self.region.read(witness) == expected;
		// SAFETY: ends the process without running anything of the parent's.
		unsafe { libc::_exit(if right { 0 } else { WRONG_DATA.0 }) }
	}

	/// Copies a piece into the buffer, or the buffer into it.
	fn copy(&mut self, piece: Piece) {
		let words = piece.begin / 8..piece.end / 8;
		let length = words.len().min(self.buffer.len());
		if piece.write {
			// Other values each time: what is written must differ from what the child sees.
			self.buffer[..length].iter_mut().step_by(PAGE / 8).for_each(|word| *word = word.wrapping_add(1));
			self.region.copy_in(words.start, &self.buffer[..length]);
		} else {
			self.region.copy_out(words.start, &mut self.buffer[..length]);
			std::hint::black_box(&mut self.buffer);
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	fn subject() -> AccessSubject {
		let region = Region::filled(Method::Fork4k, 8 << 20).unwrap();
		// SAFETY: zeros are atomics.
		let times = unsafe { memory::shared().unwrap() };
		AccessSubject { method: Method::Fork4k, region, buffer: vec![1; BLOCK / 8], times, dirty: false }
	}

	#[test]
	fn a_child_keeps_what_its_parent_overwrites() {
		let mut subject = subject();
		for walk in [Walk { share: 100, read: 0 }, Walk { share: 100, read: 50 }, Walk { share: 0, read: 100 }] {
			let measured = subject.walk(walk).unwrap();
			assert_eq!((measured.len(), measured[0].1.len()), (1, 1));
		}
		assert!(subject.dirty && subject.region.verify().is_err(), "the parent has written its memory");
		let mut reader = AccessSubject { buffer: vec![0; BLOCK / 8], ..super::tests::subject() };
		reader.walk(Walk { share: 100, read: 100 }).unwrap();
		reader.region.verify().unwrap();
		assert_eq!(reader.buffer[..3], [word(0), word(1), word(2)]);
	}
}
