//! Every experiment there is: command line, `bench all`, workers and man pages follow from [`ALL`].

pub mod access;
pub mod check;
pub mod clones;
pub mod cow_model;
pub mod creation;
pub mod forecasts;
pub mod fork;
pub mod fuzz;
pub mod libraries;
pub mod policy;
pub mod profile;
pub mod pytest;
pub mod redis;
pub mod rollback;
pub mod seal_threads;
pub mod threads;
pub mod unit_test;
pub mod vm_clone;
pub mod vm_fork;
pub mod vm_fuzz;
pub mod vm_jobs;
pub mod vm_memory;
pub mod warm;
pub mod write_fraction;

use flashfork_measure::BenchError;
use flashfork_measure::experiment::Entry;
use flashfork_measure::record::Document;
use flashfork_measure::worker::Registered;

use access::{AccessMixOptions, FaultOptions};
use check::CheckOptions;
use clones::ClonesOptions;
use cow_model::CowModelOptions;
use creation::CreationOptions;
use forecasts::AdviseOptions;
use fork::ForkOptions;
use fuzz::FuzzOptions;
use libraries::LibrariesOptions;
use policy::PolicyOptions;
use profile::ProfileOptions;
use pytest::PytestOptions;
use redis::RedisOptions;
use rollback::RollbackOptions;
use seal_threads::SealThreadsOptions;
use threads::ThreadsOptions;
use unit_test::UnitTestOptions;
use vm_clone::VmCloneOptions;
use vm_fork::VmForkOptions;
use vm_fuzz::VmFuzzOptions;
use vm_jobs::VmJobsOptions;
use vm_memory::VmMemoryOptions;
use warm::WarmOptions;
use write_fraction::WriteFractionOptions;

/// In the order of the command's help. A new experiment is a line here.
pub const ALL: [Entry; 25] = [
    Entry::of::<ForkOptions>(),
    Entry::of::<CreationOptions>(),
    Entry::of::<CowModelOptions>(),
    Entry::of::<PolicyOptions>(),
    Entry::of::<FaultOptions>(),
    Entry::of::<AccessMixOptions>(),
    Entry::of::<ProfileOptions>(),
    Entry::of::<AdviseOptions>(),
    Entry::of::<CheckOptions>(),
    Entry::of::<WriteFractionOptions>(),
    Entry::of::<RollbackOptions>(),
    Entry::of::<ClonesOptions>(),
    Entry::of::<LibrariesOptions>(),
    Entry::of::<SealThreadsOptions>(),
    Entry::of::<RedisOptions>(),
    Entry::of::<WarmOptions>(),
    Entry::of::<ThreadsOptions>(),
    Entry::of::<PytestOptions>(),
    Entry::of::<UnitTestOptions>(),
    Entry::of::<FuzzOptions>(),
    Entry::of::<VmCloneOptions>(),
    Entry::of::<VmMemoryOptions>(),
    Entry::of::<VmForkOptions>(),
    Entry::of::<VmFuzzOptions>(),
    Entry::of::<VmJobsOptions>(),
];

/// The subjects of all workers.
pub fn workers() -> impl Iterator<Item = Registered> {
    ALL.iter().flat_map(|entry| entry.workers.iter().copied())
}

/// The figure of `document`: that of the first experiment which has one and records in it.
pub fn figure(document: &Document) -> Result<String, BenchError> {
    ALL.iter().find_map(|entry| entry.figure(document)).unwrap_or_else(|| {
        Err(BenchError::Unable("there are no records in it of an experiment that has a figure".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashfork_measure::all::TIME;
    use std::collections::HashSet;
    use std::time::Duration;

    #[test]
    fn all_of_them_keep_to_its_time() {
        // No clock is read: what `bench all` may take is shared out in seconds, and these must not be more.
        for quick in [true, false] {
            let seconds: u64 = ALL.iter().filter_map(|entry| Some(entry.in_all(quick)?.1)).sum();
            assert!(seconds > 0 && Duration::from_secs(seconds) <= TIME[usize::from(!quick)], "{seconds}");
        }
    }

    #[test]
    fn names_are_told_apart_and_help_has_an_example() {
        let names: HashSet<&str> = ALL.iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), ALL.len());
        for entry in ALL {
            let help = entry.command().render_long_help().to_string();
            let example = format!("Example: flashfork bench {}", entry.name);
            let told = entry.command().get_about().is_some_and(|about| about.to_string() == entry.about);
            assert!(help.contains(&example) && told, "{help}");
        }
    }
}
