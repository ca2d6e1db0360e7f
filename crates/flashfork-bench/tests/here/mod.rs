//! Where tests find the parts of flashfork, and how they run an experiment.

use std::path::{Path, PathBuf};

use flashfork_measure::{BenchError, Experiment, Outcome, Places, Progress, experiment};

/// What cargo has built, and a cache that stays between runs, because compiling SQLite takes a minute.
pub struct Here;

impl Places for Here {
    fn command(&self) -> Result<PathBuf, BenchError> {
        Ok(built("flashfork"))
    }

    fn shim(&self) -> Result<PathBuf, BenchError> {
        Ok(flashfork_tests::shim::path().to_path_buf())
    }

    fn shell(&self) -> Result<PathBuf, BenchError> {
        Ok(built("flashfork-shell"))
    }

    fn agent(&self) -> Result<PathBuf, BenchError> {
        Ok(built("flashfork-agent"))
    }

    fn cache(&self, name: &str) -> Result<PathBuf, BenchError> {
        Ok(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }
}

/// Runs an experiment here.
#[allow(dead_code, reason = "not every test that has this module runs one whose options it knows")]
pub fn run(experiment: &impl Experiment, progress: &mut dyn Progress) -> Result<Outcome, BenchError> {
    experiment::run(experiment, &Here, progress)
}

/// A program that cargo puts beside the directory of this test.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    test.ancestors().nth(2).unwrap_or(Path::new("/")).join(name)
}
