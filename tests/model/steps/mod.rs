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

use crate::mode::Mode;
use crate::world::World;
use crate::world::check::Depth;

/// One thing to do.
#[derive(Clone, Copy)]
pub enum Step {
    Map,
    Unmap,
    Protect,
    Remap,
    Advise,
    Heap,
    Write,
    Read,
    Probe,
    Lock,
    Fork,
    Seal,
    Unseal,
    DropRefills,
    Exclude,
    Reap,
    Nonsense,
    Maps,
    /// Something with a block of the allocator.
    Blocks,
    /// Another process writes while the engine works.
    Written,
    /// Memory whose mapping can't be changed any more.
    Immutable,
    /// Memory whose faults another process handles.
    Faults,
    /// Some more libraries.
    Libraries,
}

const STEPS: &[(usize, Step)] = &[
    (12, Step::Map),
    (4, Step::Unmap),
    (7, Step::Protect),
    (12, Step::Remap),
    (22, Step::Advise),
    (5, Step::Heap),
    (24, Step::Write),
    (7, Step::Read),
    (4, Step::Probe),
    (4, Step::Lock),
    (5, Step::Fork),
    (6, Step::Seal),
    (1, Step::Unseal),
    (2, Step::DropRefills),
    (1, Step::Exclude),
    (3, Step::Reap),
    (2, Step::Nonsense),
    (2, Step::Maps),
];

/// What a thread does beside others: no forks, no seals, no break.
pub const OF_OTHER_THREADS: &[(usize, Step)] = &[
    (12, Step::Map),
    (4, Step::Unmap),
    (7, Step::Protect),
    (12, Step::Remap),
    (22, Step::Advise),
    (24, Step::Write),
    (7, Step::Read),
    (4, Step::Probe),
    (4, Step::Lock),
    (2, Step::Nonsense),
    (20, Step::Blocks),
];

/// What the first of several threads does between their rounds: all but the break, which is the allocator's.
const OF_FIRST_THREAD: &[(usize, Step)] = &[
    (12, Step::Map),
    (4, Step::Unmap),
    (7, Step::Protect),
    (12, Step::Remap),
    (22, Step::Advise),
    (24, Step::Write),
    (7, Step::Read),
    (4, Step::Lock),
    (5, Step::Fork),
    (6, Step::Seal),
    (1, Step::Unseal),
    (2, Step::DropRefills),
    (3, Step::Reap),
    (2, Step::Nonsense),
    (20, Step::Blocks),
];

const WITH_BLOCKS: &[(usize, Step)] = &[
    (5, Step::Map),
    (2, Step::Unmap),
    (3, Step::Remap),
    (5, Step::Advise),
    (6, Step::Write),
    (80, Step::Blocks),
    (4, Step::Fork),
    (8, Step::Seal),
    (2, Step::Unseal),
    (4, Step::DropRefills),
    (3, Step::Reap),
    (1, Step::Maps),
];

const WITH_WRITERS: &[(usize, Step)] = &[
    (12, Step::Map),
    (3, Step::Unmap),
    (4, Step::Protect),
    (5, Step::Remap),
    (8, Step::Advise),
    (24, Step::Write),
    (4, Step::Read),
    (3, Step::Fork),
    (4, Step::Seal),
    (1, Step::Unseal),
    (2, Step::DropRefills),
    (3, Step::Reap),
    (12, Step::Written),
];

const PAST_SHIM: &[(usize, Step)] = &[
    (12, Step::Map),
    (4, Step::Unmap),
    (5, Step::Protect),
    (20, Step::Remap),
    (26, Step::Advise),
    (24, Step::Write),
    (6, Step::Read),
    (6, Step::Lock),
    (4, Step::Fork),
    (8, Step::Seal),
    (1, Step::Unseal),
    (2, Step::DropRefills),
    (3, Step::Reap),
    (2, Step::Nonsense),
    (2, Step::Maps),
    (14, Step::Blocks),
];

const WITH_FLAGS: &[(usize, Step)] = &[
    (10, Step::Map),
    (3, Step::Unmap),
    (5, Step::Protect),
    (10, Step::Remap),
    (45, Step::Advise),
    (24, Step::Write),
    (4, Step::Read),
    (3, Step::Probe),
    (12, Step::Lock),
    (6, Step::Fork),
    (10, Step::Seal),
    (2, Step::Unseal),
    (4, Step::DropRefills),
    (3, Step::Reap),
    (4, Step::Maps),
    (5, Step::Immutable),
    (5, Step::Faults),
];

const WITH_LIBRARIES: &[(usize, Step)] = &[
    (5, Step::Map),
    (3, Step::Unmap),
    (7, Step::Protect),
    (10, Step::Remap),
    (30, Step::Advise),
    (24, Step::Write),
    (5, Step::Read),
    (3, Step::Probe),
    (5, Step::Lock),
    (5, Step::Fork),
    (12, Step::Seal),
    (2, Step::Unseal),
    (2, Step::DropRefills),
    (1, Step::Exclude),
    (3, Step::Reap),
    (2, Step::Nonsense),
    (3, Step::Maps),
    (8, Step::Libraries),
];

/// The steps of a mode's first thread.
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
    pub fn walk(&mut self, count: usize) -> Result<(), String> {
        self.take(count)?;
        self.settle()
    }

    /// Waits for the children and compares everything.
    pub fn settle(&mut self) -> Result<(), String> {
        self.reap_all()?;
        self.check_all(Depth::All)?;
        self.check_blocks()?;
        self.check_immutable()?;
        self.check_maps().map(drop)
    }

    /// Takes `count` steps.
    pub fn take(&mut self, count: usize) -> Result<(), String> {
        for _ in 0..count {
            if self.company && self.rng.chance(8) {
                self.step_visit()?;
                continue;
            }
            match self.rng.weighted(self.steps) {
                Step::Map => self.step_map(),
                Step::Unmap => self.step_unmap(),
                Step::Protect => self.step_protect(),
                Step::Remap => self.step_remap(),
                Step::Advise => self.step_advise(),
                Step::Heap => self.step_heap(),
                Step::Write => self.step_write(),
                Step::Read => self.step_read(),
                Step::Probe => self.step_probe(),
                Step::Lock => self.step_lock(),
                Step::Fork => self.step_fork(),
                Step::Seal => self.step_seal(),
                Step::Unseal => self.step_unseal(),
                Step::DropRefills => self.step_drop_refills(),
                Step::Exclude => self.step_exclude(),
                Step::Reap => self.step_reap(),
                Step::Nonsense => self.step_nonsense(),
                Step::Maps => self.check_maps().map(drop),
                Step::Blocks => self.step_blocks(),
                Step::Written => self.step_written(),
                Step::Immutable => self.step_immutable(),
                Step::Faults => self.step_faults(),
                Step::Libraries => self.step_libraries(),
            }?;
        }
        Ok(())
    }
}
