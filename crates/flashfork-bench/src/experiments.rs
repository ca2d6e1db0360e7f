//! Every experiment there is: command line, `bench all`, workers and man pages follow from [`ALL`].

use clap::{ArgMatches, Command};

use crate::access::{AccessMixOptions, FaultOptions};
use crate::check::CheckOptions;
use crate::clones::ClonesOptions;
use crate::cow_model::CowModelOptions;
use crate::creation::CreationOptions;
use crate::experiment::{self, Experiment, Places};
use crate::forecasts::AdviseOptions;
use crate::fork::ForkOptions;
use crate::fuzz::FuzzOptions;
use crate::policy::PolicyOptions;
use crate::profile::ProfileOptions;
use crate::record::Document;
use crate::redis::RedisOptions;
use crate::rollback::RollbackOptions;
use crate::seal_threads::SealThreadsOptions;
use crate::unit_test::UnitTestOptions;
use crate::vm_clone::VmCloneOptions;
use crate::vm_memory::VmMemoryOptions;
use crate::warm::WarmOptions;
use crate::worker::Registered;
use crate::write_fraction::WriteFractionOptions;
use crate::{BenchError, Outcome, Progress};

/// In the order of the command's help. A new experiment is a line here.
pub const ALL: [Entry; 19] = [
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
    Entry::of::<SealThreadsOptions>(),
    Entry::of::<RedisOptions>(),
    Entry::of::<WarmOptions>(),
    Entry::of::<UnitTestOptions>(),
    Entry::of::<FuzzOptions>(),
    Entry::of::<VmCloneOptions>(),
    Entry::of::<VmMemoryOptions>(),
];

/// A run with options that are decided.
pub type Run = Box<dyn Fn(&dyn Places, &mut dyn Progress) -> Result<Outcome, BenchError>>;

/// An [`Experiment`], its options' type forgotten.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The name, in records and on the command line.
    pub name: &'static str,
    /// What it finds out, in one line of help.
    pub about: &'static str,
    /// The subjects of its workers.
    pub workers: &'static [Registered],
    arguments: fn(Command) -> Command,
    parse: fn(&ArgMatches) -> Result<Run, clap::Error>,
    in_all: fn(bool) -> Option<(Run, u64)>,
    figure: fn(&Document) -> Option<Result<String, BenchError>>,
}

impl Entry {
    const fn of<E: Experiment + 'static>() -> Self {
        Self {
            name: E::NAME,
            about: E::ABOUT,
            workers: E::WORKERS,
            arguments: E::augment_args,
            parse: |matches| Ok(run_of(E::from_arg_matches(matches)?)),
            in_all: |quick| E::in_all(quick).map(|(options, seconds)| (run_of(options), seconds)),
            figure: E::figure,
        }
    }

    /// Its command: name, help and options.
    pub fn command(&self) -> Command {
        (self.arguments)(Command::new(self.name)).about(self.about).long_about(None)
    }

    /// The run that `matches` of its command asks for.
    pub fn parse(&self, matches: &ArgMatches) -> Result<Run, clap::Error> {
        (self.parse)(matches)
    }

    /// The run that is part of `bench all`, and its weight in time, in seconds.
    pub(crate) fn in_all(&self, quick: bool) -> Option<(Run, u64)> {
        (self.in_all)(quick)
    }
}

/// The subjects of all workers.
pub fn workers() -> impl Iterator<Item = Registered> {
    ALL.iter().flat_map(|entry| entry.workers.iter().copied())
}

/// The figure of `document`: that of the first experiment which has one and records in it.
pub fn figure(document: &Document) -> Result<String, BenchError> {
    ALL.iter().find_map(|entry| (entry.figure)(document)).unwrap_or_else(|| {
        Err(BenchError::Unable("there are no records in it of an experiment that has a figure".to_owned()))
    })
}

fn run_of<E: Experiment + 'static>(experiment: E) -> Run {
    Box::new(move |here, progress| experiment::run(&experiment, here, progress))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

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
