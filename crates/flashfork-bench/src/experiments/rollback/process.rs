//! The worker that goes back as a whole, or forks instead, after each input: 25 pages are read and 25 written, and
//! blocks come and go in the heap.

use std::{
	alloc::{Layout, alloc, dealloc},
	ptr::null_mut,
	sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use flashfork::{SnapshotOptions, discard_snapshot, restore, snapshot};
use flashfork_core::snapshot::{Way, copies_back, go_back_by};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use super::{
	FILL, Measure,
	cycle::{CycleSpec, Kept},
	pages::Pages,
};
use crate::{prelude::*, subjects::engine};

/// Cycles of a visit, and those before them that aren't counted: a process that chooses has made up its mind by then.
const CYCLES: usize = 100;
const UNCOUNTED: usize = 150;
const BLOCKS: usize = 40;

pub struct ProcessSubject {
	spec: CycleSpec,
	pages: Pages,
	random: fastrand::Rng,
	outside: &'static Outside,
}

/// What restores don't touch: shared memory. Times in nanoseconds.
struct Outside {
	/// Whether what was written was copied back the last time.
	copied: AtomicU64,
	ends: [AtomicU64; CYCLES + UNCOUNTED + 1],
}

impl Subject for ProcessSubject {
	const NAME: &'static str = "rollback-process";
	type Spec = CycleSpec;
	/// Whether there is anything to measure here.
	type Ready = bool;
	type Ask = ();
	type Reply = Visit<Measure>;

	fn prepare(spec: CycleSpec) -> Result<(Self, bool)> {
		pin::pin(spec.cpu)?;
		engine::trust_own_code()?;
		// SAFETY: zeros are atomics.
		let outside = unsafe { memory::shared::<Outside>()? };
		let len = usize::try_from(spec.size).map_err(|_| unable!("that can't be addressed"))?;
		// SAFETY: a fresh mapping, never unmapped.
		let start = unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
		let start = start.or_cant("map memory")?.cast::<u8>();
		for number in 0..len / PAGE {
			// SAFETY: inside the mapping.
			unsafe {
				let page = start.add(number * PAGE);
				page.write_bytes(FILL, PAGE);
				page.cast::<usize>().write(number);
			}
		}
		if spec.kept == Kept::Fork {
			engine::seal(engine::Pages::Auto, 0)?;
		}
		let pages = Pages::new(start as usize, len, spec.accesses);
		let mut subject = Self { spec, pages, random: fastrand::Rng::with_seed(1), outside };
		let can = spec.kept != Kept::Copying || {
			subject.answer(())?;
			outside.copied.load(SeqCst) == 1
		};
		Ok((subject, can))
	}

	fn answer(&mut self, (): ()) -> Result<Visit<Measure>> {
		if self.spec.kept == Kept::Fork {
			return self.fork();
		}
		let unable = |error: flashfork::SnapshotError| BenchError::Unable(error.to_string());
		go_back_by(match self.spec.kept {
			Kept::Dropping => Some(Way::Drop),
			Kept::Copying => Some(Way::Copy),
			Kept::Automatic | Kept::Fork => None,
		});
		// Each visit begins with the same memory, so its inputs must differ by the turn.
		let seed = self.random.u64(..);
		let turn = snapshot(&SnapshotOptions::default()).map_err(unable)? as usize;
		let Outside { copied, ends } = self.outside;
		let input = |turn: usize| self.pages.choose(&mut fastrand::Rng::with_seed(seed + turn as u64));
		ends[turn].store(monotonic(), SeqCst);
		if turn < CYCLES + UNCOUNTED {
			self.work(&input(turn));
			// SAFETY: nothing outside memory is used but the clock and the shared page.
			return Err(unable(unsafe { restore(turn as u64 + 1) }));
		}
		copied.store(u64::from(copies_back()), SeqCst);
		for turn in 0..turn {
			self.pages.check(&input(turn).written)?;
		}
		discard_snapshot().map_err(unable)?;
		let took = |pair: &[AtomicU64]| (pair[1].load(SeqCst) - pair[0].load(SeqCst)) as f64 / 1e3;
		Ok(vec![(Measure::Cycle, ends[UNCOUNTED..].windows(2).map(took).collect())])
	}
}

impl ProcessSubject {
	fn work(&self, input: &super::pages::Input) {
		let layout = |block: usize| Layout::array::<u8>(100 + 7 * block).expect("a small block");
		let mut blocks = [null_mut(); BLOCKS];
		for (number, block) in blocks.iter_mut().enumerate() {
			// SAFETY: not of length 0; without memory the write below ends the process.
			unsafe {
				*block = alloc(layout(number));
				block.write_bytes(number as u8, 100);
			}
		}
		self.pages.access(input);
		for (number, block) in blocks.into_iter().enumerate().step_by(2) {
			// SAFETY: allocated above.
			unsafe { dealloc(block, layout(number)) };
		}
	}

	fn fork(&mut self) -> Result<Visit<Measure>> {
		let (mut taken, mut written) = (Vec::new(), Vec::new());
		for _ in 0..CYCLES {
			let input = self.pages.choose(&mut self.random);
			taken.push(self.pages.in_clone(|_| self.work(&input))?);
			written.extend(input.written);
		}
		self.pages.check(&written)?;
		Ok(vec![(Measure::Cycle, taken)])
	}
}
