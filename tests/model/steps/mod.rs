//! The steps a tested process takes: each draws its arguments, makes one call, notes the effect in the model and compares.

mod access;
mod advise;
mod engine;
mod family;
mod heap;
mod lock;
mod map;
mod nonsense;
mod protect;
mod remap;
mod visit;

pub use advise::unknown as unknown_advice;

use crate::world::World;
use crate::world::check::Depth;

#[derive(Clone, Copy)]
enum Step {
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
    Exclude,
    Reap,
    Nonsense,
    Maps,
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
    (1, Step::Exclude),
    (3, Step::Reap),
    (2, Step::Nonsense),
    (2, Step::Maps),
];

impl World {
    /// Takes `count` steps, then compares everything and waits for the children.
    pub fn walk(&mut self, count: usize) -> Result<(), String> {
        for _ in 0..count {
            if self.company && self.rng.chance(8) {
                self.step_visit()?;
                continue;
            }
            match self.rng.weighted(STEPS) {
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
                Step::Exclude => self.step_exclude(),
                Step::Reap => self.step_reap(),
                Step::Nonsense => self.step_nonsense(),
                Step::Maps => self.check_maps().map(drop),
            }?;
        }
        self.reap_all()?;
        self.check_all(Depth::All)?;
        self.check_maps().map(drop)
    }
}
