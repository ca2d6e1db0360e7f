//! `bench fault` and `bench access-mix`: what the memory costs after the fork.
//!
//! Table 1 and figure 8 of on-demand-fork (EuroSys 2021): the first write to a page right after a fork, in the middle of the
//! memory, where a shared page table must be copied first; and the time to fork and then go through a part of the memory in
//! the parent, reading and writing it in five mixes, while the child lives.

mod mix;
mod options;
mod report;
mod rounds;
mod subject;

pub use mix::{MIXES, SHARES};
pub use options::{AccessMixOptions, FaultOptions};
pub(crate) use subject::AccessSubject;

use crate::{BenchError, Outcome, Progress, experiment};

/// The name of the experiment `bench fault` in records.
pub const FAULT: &str = "fault";
/// The name of the experiment `bench access-mix` in records.
pub const ACCESS_MIX: &str = "access-mix";

/// Runs `bench fault`: waits for the machine-wide lock, refuses a size that doesn't fit before allocating anything, measures.
pub fn fault(options: &FaultOptions, progress: &mut dyn Progress) -> Result<Outcome, BenchError> {
    experiment::run(FAULT, progress, |results, progress| rounds::fault(options, results, progress), report::fault)
}

/// Runs `bench access-mix`, in the same way.
pub fn access_mix(options: &AccessMixOptions, progress: &mut dyn Progress) -> Result<Outcome, BenchError> {
    let measure = |results: &mut _, progress: &mut dyn Progress| rounds::access_mix(options, results, progress);
    experiment::run(ACCESS_MIX, progress, measure, report::access_mix)
}
