//! The worker of `bench seal-threads`.

use std::{
	sync::{
		Arc, Mutex, PoisonError,
		atomic::{AtomicBool, Ordering::Relaxed},
	},
	thread,
};

use flashfork::{SealOptions, Threads};

use crate::{
	prelude::*,
	subjects::{
		engine::{Pages, own_code},
		memory::Warm,
	},
};

/// Shorter gaps are interrupts.
pub const LEAST_US: u64 = 50;
const MOST: usize = 1 << 18;
/// Share of the memory that must have been sealed: threads that write keep nothing out.
const SEALED: f64 = 0.95;

#[derive(Clone, Serialize, Deserialize)]
pub struct Spec {
	pub size: u64,
	/// Threads beside the one that seals.
	pub threads: u32,
	/// Where the thread that watches the clock stays.
	pub cpu: usize,
	/// Where the one that seals stays: what is measured is how long threads are stopped, not who gets a CPU.
	pub other_cpu: usize,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum Ask {
	/// Watch from now on.
	Watch,
	/// What was seen since.
	Gaps,
	/// Seal, and say what was seen meanwhile.
	Seal(Pages),
	/// Check every byte.
	Verify,
}

/// What was seen.
#[derive(Default, Serialize, Deserialize)]
pub struct Reply {
	/// Microseconds each.
	pub gaps: Vec<f64>,
	pub seconds: f64,
	/// How often threads were stopped, and microseconds of all and of the longest, by the engine's account.
	pub pauses: u32,
	pub total: f64,
	pub longest: f64,
}

struct Watch {
	on: AtomicBool,
	gaps: Mutex<Vec<f64>>,
}

/// A process with threads. They end with it.
pub struct SealThreadsSubject {
	region: Region,
	watch: Arc<Watch>,
}

impl Subject for SealThreadsSubject {
	const NAME: &'static str = "seal-threads";
	type Spec = Spec;
	type Ready = ();
	type Ask = Ask;
	type Reply = Reply;

	fn prepare(spec: Spec) -> Result<(Self, ())> {
		pin::pin(spec.other_cpu)?;
		let warm = Warm::hold(spec.size)?;
		let region = Region::filled(Method::Seal, spec.size)?;
		drop(warm);
		let watch = Arc::new(Watch { on: AtomicBool::new(false), gaps: Mutex::new(Vec::with_capacity(MOST)) });
		let shared = Arc::clone(&watch);
		thread::spawn(move || shared.run(spec.cpu));
		let (address, pages) = (region.address() as usize, region.pages());
		for seed in 1..spec.threads {
			thread::spawn(move || write_now_and_then(address, pages, seed));
		}
		Ok((Self { region, watch }, ()))
	}

	fn answer(&mut self, ask: Ask) -> Result<Reply> {
		match ask {
			Ask::Watch => {
				self.watch.on.store(true, Relaxed);
				Ok(Reply::default())
			}
			Ask::Gaps => Ok(Reply { gaps: self.watch.end(), ..Reply::default() }),
			Ask::Seal(pages) => self.seal(pages),
			Ask::Verify => self.region.verify().map(|()| Reply::default()),
		}
	}
}

impl SealThreadsSubject {
	fn seal(&self, pages: Pages) -> Result<Reply> {
		let pages = match pages {
			Pages::Auto => flashfork::Pages::Auto,
			Pages::Small => flashfork::Pages::Small,
		};
		self.watch.on.store(true, Relaxed);
		thread::sleep(Duration::from_millis(5));
		let sealed = flashfork::seal(&SealOptions {
			pages,
			threads: Threads::Stop,
			trust: own_code(),
			..SealOptions::default()
		});
		let gaps = self.watch.end();
		let report = sealed.map_err(BenchError::unable)?;
		if (report.sealed_bytes as f64) < SEALED * self.region.bytes() as f64 {
			let why = report.cut_short.map_or("no reason given".to_owned(), |reason| reason.to_string());
			return Err(unable!("only {} were sealed: {why}", show(report.sealed_bytes)));
		}
		let us = |time: Duration| time.as_nanos() as f64 / 1e3;
		let flashfork::Pauses { count, total, longest } = report.pauses;
		let seconds = report.elapsed.as_secs_f64();
		Ok(Reply { gaps, seconds, pauses: count, total: us(total), longest: us(longest) })
	}
}

impl Watch {
	fn run(&self, cpu: usize) {
		// Unpinned it sees more gaps, none of them shorter.
		let _ = pin::pin(cpu);
		let least = Duration::from_micros(LEAST_US);
		loop {
			while !self.on.load(Relaxed) {
				thread::sleep(Duration::from_millis(1));
			}
			let mut last = Instant::now();
			while self.on.load(Relaxed) {
				let now = Instant::now();
				let gap = now - last;
				if gap >= least {
					self.keep(gap);
					last = Instant::now();
				} else {
					last = now;
				}
			}
		}
	}

	fn keep(&self, gap: Duration) {
		let mut gaps = self.gaps.lock().unwrap_or_else(PoisonError::into_inner);
		if gaps.len() < MOST {
			gaps.push(gap.as_nanos() as f64 / 1e3);
		}
	}

	fn end(&self) -> Vec<f64> {
		self.on.store(false, Relaxed);
		let mut gaps = self.gaps.lock().unwrap_or_else(PoisonError::into_inner);
		let seen = gaps.clone();
		gaps.clear();
		seen
	}
}

/// Writes to a random page each millisecond what is there anyway.
fn write_now_and_then(address: usize, pages: usize, seed: u32) {
	let mut random = fastrand::Rng::with_seed(seed.into());
	loop {
		let index = random.usize(..pages) * WORDS_PER_PAGE;
		// SAFETY: a word of the region, which lives as long as the process; the bytes stay what they are.
		unsafe { (address as *mut u64).add(index).write_volatile(word(index)) };
		thread::sleep(Duration::from_millis(1));
	}
}
