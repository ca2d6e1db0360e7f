//! The steps a tested process takes: each draws its arguments, makes one call, notes the effect in the model and
//! compares.

mod access;
mod advise;
mod blocks;
mod engine;
mod family;
mod faults;
mod heap;
mod immutable;
mod libraries;
mod lock;
mod map;
mod nonsense;
mod protect;
mod remap;
mod visit;
mod written;

pub use advise::unknown as unknown_advice;
pub use immutable::Immutable;

use crate::{
	mode::Mode,
	world::{World, check::Depth},
};
use flashfork_tests::Result;

pub type Step = fn(&mut World) -> Result;

/// Steps, and how often each is taken beside the others.
macro_rules! steps {
	($($weight:literal $step:ident),*) => { &[$(($weight, World::$step)),*] };
}

const STEPS: &[(usize, Step)] = steps![
	12 step_map, 4 step_unmap, 7 step_protect, 12 step_remap, 22 step_advise, 5 step_heap, 24 step_write, 7 step_read,
	4 step_probe, 4 step_lock, 5 step_fork, 6 step_seal, 1 step_unseal, 2 step_drop_refills, 1 step_exclude,
	3 step_reap, 2 step_nonsense, 2 step_maps
];

/// What a thread does beside others: no forks, no seals, no break.
pub const OF_OTHER_THREADS: &[(usize, Step)] = steps![
	12 step_map, 4 step_unmap, 7 step_protect, 12 step_remap, 22 step_advise, 24 step_write, 7 step_read,
	4 step_probe, 4 step_lock, 2 step_nonsense, 20 step_blocks
];

/// What the first of several threads does between their rounds: all but the break, which is the allocator's.
const OF_FIRST_THREAD: &[(usize, Step)] = steps![
	12 step_map, 4 step_unmap, 7 step_protect, 12 step_remap, 22 step_advise, 24 step_write, 7 step_read, 4 step_lock,
	5 step_fork, 6 step_seal, 1 step_unseal, 2 step_drop_refills, 3 step_reap, 2 step_nonsense, 20 step_blocks
];

const WITH_BLOCKS: &[(usize, Step)] = steps![
	5 step_map, 2 step_unmap, 3 step_remap, 5 step_advise, 6 step_write, 80 step_blocks, 4 step_fork, 8 step_seal,
	2 step_unseal, 4 step_drop_refills, 3 step_reap, 1 step_maps
];

const WITH_WRITERS: &[(usize, Step)] = steps![
	12 step_map, 3 step_unmap, 4 step_protect, 5 step_remap, 8 step_advise, 24 step_write, 4 step_read, 3 step_fork,
	4 step_seal, 1 step_unseal, 2 step_drop_refills, 3 step_reap, 12 step_written
];

const PAST_SHIM: &[(usize, Step)] = steps![
	12 step_map, 4 step_unmap, 5 step_protect, 20 step_remap, 26 step_advise, 24 step_write, 6 step_read, 6 step_lock,
	4 step_fork, 8 step_seal, 1 step_unseal, 2 step_drop_refills, 3 step_reap, 2 step_nonsense, 2 step_maps,
	14 step_blocks
];

const WITH_FLAGS: &[(usize, Step)] = steps![
	10 step_map, 3 step_unmap, 5 step_protect, 10 step_remap, 45 step_advise, 24 step_write, 4 step_read,
	3 step_probe, 12 step_lock, 6 step_fork, 10 step_seal, 2 step_unseal, 4 step_drop_refills, 3 step_reap,
	4 step_maps, 5 step_immutable, 5 step_faults
];

const WITH_LIBRARIES: &[(usize, Step)] = steps![
	5 step_map, 3 step_unmap, 7 step_protect, 10 step_remap, 30 step_advise, 24 step_write, 5 step_read, 3 step_probe,
	5 step_lock, 5 step_fork, 12 step_seal, 2 step_unseal, 2 step_drop_refills, 1 step_exclude, 3 step_reap,
	2 step_nonsense, 3 step_maps, 8 step_libraries
];

pub fn steps_of(mode: Mode) -> &'static [(usize, Step)] {
	match mode {
		Mode::Alone | Mode::Leaderless | Mode::Rollback => STEPS,
		Mode::Threads => OF_FIRST_THREAD,
		Mode::Writers => WITH_WRITERS,
		Mode::PastShim | Mode::Raw => PAST_SHIM,
		Mode::Heap => WITH_BLOCKS,
		Mode::Flags => WITH_FLAGS,
		Mode::Libraries => WITH_LIBRARIES,
	}
}

impl World {
	/// Takes `count` steps, then compares everything and waits for the children.
	pub fn walk(&mut self, count: usize) -> Result {
		self.take(count)?;
		self.settle()
	}

	/// Waits for the children and compares everything.
	pub fn settle(&mut self) -> Result {
		self.reap_all()?;
		self.check_all(Depth::All)?;
		self.check_blocks()?;
		self.check_immutable()?;
		self.step_maps()
	}

	fn step_maps(&mut self) -> Result {
		self.check_maps().map(drop)
	}

	pub fn take(&mut self, count: usize) -> Result {
		for _ in 0..count {
			if self.company && self.rng.chance(8) {
				self.step_visit()?;
				continue;
			}
			self.rng.weighted(self.steps)(self)?;
		}
		Ok(())
	}
}
