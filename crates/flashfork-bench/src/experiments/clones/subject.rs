//! The worker of `bench clones`: a parent and its clones.

use std::{
	io,
	sync::atomic::{AtomicU32, Ordering::SeqCst},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
	prelude::*,
	subjects::{
		engine::{self, Side},
		parent::Spec,
	},
};

/// Longer than the slowest method takes.
const PATIENCE: Duration = Duration::from_secs(240);

pub struct ClonesSubject {
	method: Method,
	region: Region,
	children: Vec<Pid>,
	alive: &'static AtomicU32,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum Ask {
	/// Makes so many clones, each of which writes so many random pages, and waits until all live.
	Make {
		count: u32,
		pages: u32,
		seed: u64,
	},
	End,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Reply {
	/// Seconds until all lived, and of these, until the last fork had returned.
	Made { seconds: f64, forks: f64 },
	/// They are gone, and the parent's memory is what it was.
	Ended,
}

impl Subject for ClonesSubject {
	const NAME: &'static str = "clones";
	type Spec = Spec;
	type Ready = Facts;
	type Ask = Ask;
	type Reply = Reply;

	fn prepare(spec: Spec) -> Result<(Self, Facts)> {
		let region = spec.fill()?;
		// SAFETY: zeros are an atomic.
		let alive = unsafe { memory::shared()? };
		engine::prepare(spec.method, region.bytes())?;
		let facts = Facts::read(&region)?;
		Ok((Self { method: spec.method, region, children: Vec::new(), alive }, facts))
	}

	fn answer(&mut self, ask: Ask) -> Result<Reply> {
		match ask {
			Ask::Make { count, pages, seed } => self.make(count, pages, seed),
			Ask::End => self.end(),
		}
	}
}

impl ClonesSubject {
	fn make(&mut self, count: u32, pages: u32, seed: u64) -> Result<Reply> {
		self.alive.store(0, SeqCst);
		self.children.reserve(count as usize);
		let begin = Instant::now();
		for number in 0..count {
			// SAFETY: the clone writes to the region, counts itself and waits; it allocates nothing.
			match unsafe { engine::fork(self.method) } {
				Ok(Side::Child) => self.live(pages, seed ^ (u64::from(number) << 20)),
				Ok(Side::Parent(pid)) => self.children.push(pid),
				Err(error) => return Err(self.fail(format!("fork clone {number}"), error)),
			}
		}
		let forks = begin.elapsed();
		while self.alive.load(SeqCst) < count {
			if begin.elapsed() > PATIENCE {
				return Err(self.fail("wait for the clones".into(), io::ErrorKind::TimedOut.into()));
			}
			std::thread::sleep(Duration::from_micros(200));
		}
		Ok(Reply::Made { seconds: begin.elapsed().as_secs_f64(), forks: forks.as_secs_f64() })
	}

	fn live(&self, pages: u32, seed: u64) -> ! {
		// SAFETY: system calls without pointers; the parent's end ends the clone, also if that came before.
		unsafe {
			libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
		}
		let mut random = fastrand::Rng::with_seed(seed);
		for _ in 0..pages {
			if self.region.pages() > 0 {
				let index = random.usize(..self.region.pages()) * WORDS_PER_PAGE;
				self.region.write(index, !word(index));
			}
		}
		self.alive.fetch_add(1, SeqCst);
		loop {
			// SAFETY: waits for a signal.
			unsafe { libc::pause() };
		}
	}

	fn end(&mut self) -> Result<Reply> {
		self.kill();
		self.region.verify()?;
		Ok(Reply::Ended)
	}

	fn kill(&mut self) {
		for pid in &self.children {
			// One that is gone already is what is wanted.
			let _ = kill_process(*pid, Signal::KILL);
		}
		for pid in self.children.drain(..) {
			let _ = engine::reap(pid);
		}
	}

	fn fail(&mut self, what: String, error: io::Error) -> BenchError {
		self.kill();
		BenchError::system(what, error)
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn clones_live_and_end_and_write_nothing_of_their_parents() {
		let spec = Spec { method: Method::Fork4k, size: 1 << 20, cpu: flashfork_measure::pin::chosen_cpu().unwrap() };
		// Pinned in its own thread: the pin must not outlive the test.
		std::thread::spawn(move || {
			let (mut subject, _) = ClonesSubject::prepare(spec).unwrap();
			let Reply::Made { seconds, forks } = subject.answer(Ask::Make { count: 20, pages: 5, seed: 1 }).unwrap()
			else {
				panic!("another answer");
			};
			assert!(seconds >= forks && forks > 0.0);
			assert_eq!((subject.children.len(), subject.alive.load(SeqCst)), (20, 20));
			assert!(matches!(subject.answer(Ask::End).unwrap(), Reply::Ended));
			assert!(subject.children.is_empty());
		})
		.join()
		.unwrap();
	}
}
