//! `bench fault` and `bench access-mix`: what the memory costs after the fork.
//!
//! Table 1 and figure 8 of on-demand-fork (EuroSys 2021): the first write to a page right after a fork, in the middle
//! of the memory, where a shared page table must be copied first; and the time to fork and then go through a part of
//! the memory in the parent, reading and writing it in five mixes, while the child lives.

mod mix;
mod options;
mod report;
mod rounds;
mod subject;

pub use mix::{MIXES, SHARES};
pub use options::{AccessMixOptions, FaultOptions};
pub(crate) use subject::AccessSubject;

use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::worker::Registered;
use flashfork_measure::{BenchError, Progress};
use flashfork_terminal::size::Size;

/// The name of the experiment `bench fault` in records.
pub const FAULT: &str = "fault";
/// The name of the experiment `bench access-mix` in records.
pub const ACCESS_MIX: &str = "access-mix";
/// Memory of the parents in `bench all`, in a quick run and a full one.
const TOUCHED: [u64; 2] = [128 << 20, 512 << 20];

impl Experiment for FaultOptions {
    const NAME: &'static str = FAULT;
    const ABOUT: &'static str = "The first write after a fork, where it costs most";
    const WORKERS: &'static [Registered] = &[Registered::of::<AccessSubject>()];

    fn measure(&self, _: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        rounds::fault(self, results, progress)
    }

    fn page(document: &Document) -> String {
        report::fault(document)
    }

    fn in_all(quick: bool) -> Option<(Self, u64)> {
        let options = Self { size: Size(TOUCHED[usize::from(!quick)]), quick };
        Some((options, if quick { 10 } else { 70 }))
    }
}

impl Experiment for AccessMixOptions {
    const NAME: &'static str = ACCESS_MIX;
    const ABOUT: &'static str = "Fork and go through the memory, reading and writing it in five mixes";
    const WORKERS: &'static [Registered] = &[Registered::of::<AccessSubject>()];

    fn measure(&self, _: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        rounds::access_mix(self, results, progress)
    }

    fn page(document: &Document) -> String {
        report::access_mix(document)
    }

    fn in_all(quick: bool) -> Option<(Self, u64)> {
        let options = Self { size: Size(TOUCHED[usize::from(!quick)]), quick };
        Some((options, if quick { 30 } else { 260 }))
    }
}
