//! Where tests find the parts of flashfork, and how they run an experiment.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use flashfork_bench::experiments::workers;
use flashfork_measure::{Experiment, Outcome, Places, Progress, Result, experiment, worker, worker_main};
use libtest_mimic::{Arguments, Failed, Trial};

/// What cargo has built, and a cache that stays between runs, because compiling SQLite takes a minute.
pub struct Here;

impl Places for Here {
    fn command(&self) -> Result<PathBuf> {
        Ok(built("flashfork"))
    }

    fn shim(&self) -> Result<PathBuf> {
        Ok(flashfork_tests::shim::path().to_path_buf())
    }

    fn shell(&self) -> Result<PathBuf> {
        Ok(built("flashfork-shell"))
    }

    fn agent(&self) -> Result<PathBuf> {
        Ok(built("flashfork-agent"))
    }

    fn cache(&self, name: &str) -> Result<PathBuf> {
        Ok(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }
}

#[allow(dead_code, reason = "not every test that has this module runs one whose options it knows")]
pub fn run(experiment: &impl Experiment, progress: &mut dyn Progress) -> Result<Outcome> {
    experiment::run(experiment, &Here, progress)
}

#[allow(dead_code, reason = "some have a main of their own")]
pub type Test = fn() -> Result<(), Failed>;

/// The `main` of tests whose workers are this same executable started again.
#[allow(dead_code, reason = "some have a main of their own")]
pub fn main<const N: usize>(tests: [(&str, Test); N]) -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|arg| arg == worker::ARGUMENT) {
        return worker_main(workers(), args);
    }
    let trials = tests.map(|(name, test)| Trial::test(name, test)).into_iter().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A program that cargo puts beside the directory of this test.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    test.ancestors().nth(2).unwrap_or(Path::new("/")).join(name)
}
