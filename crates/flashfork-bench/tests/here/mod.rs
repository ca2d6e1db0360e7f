//! Where tests find the parts of flashfork, and how they run an experiment.

#![allow(dead_code, unused_imports, unused_macros, reason = "no test uses all of it")]

use std::{
	path::{Path, PathBuf},
	process::{Command, ExitCode, Stdio},
};

use flashfork_bench::experiments::{ALL, workers};
use flashfork_measure::{BenchError, Outcome, Places, Progress, Result, worker, worker_main};
use libtest_mimic::{Arguments, Trial};

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

/// Runs an experiment, with its options as on the command line.
pub fn run(command: &str, progress: &mut dyn Progress) -> Result<Outcome> {
	run_words(command.split(' '), progress)
}

/// The same of words that may have blanks.
pub fn run_words<'a>(words: impl IntoIterator<Item = &'a str>, progress: &mut dyn Progress) -> Result<Outcome> {
	let mut words = words.into_iter();
	let name = words.next();
	let entry = ALL.iter().find(|entry| Some(entry.name) == name).expect("an experiment");
	let matches = entry.command().no_binary_name(true).try_get_matches_from(words).map_err(BenchError::unable)?;
	entry.parse(&matches).map_err(BenchError::unable)?(&Here, progress)
}

#[track_caller]
pub fn has(table: &str, parts: &[&str]) {
	for part in parts {
		assert!(table.contains(part), "'{part}' is missing in\n{table}");
	}
}

/// What a script of the checkout has made, by the path that it prints.
pub fn made(script: &str, arguments: &[&str]) -> String {
	let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
	let mut make = Command::new(checkout.join("scripts").join(script));
	let made = make.args(arguments).stderr(Stdio::inherit()).output().unwrap();
	assert!(made.status.success());
	let path = checkout.join(String::from_utf8(made.stdout).unwrap().trim());
	path.to_str().expect("the checkout's path is text").to_owned()
}

/// The `main` of tests whose workers are this same executable started again.
pub fn main(tests: impl FnOnce() -> Vec<Trial>) -> ExitCode {
	let mut args = std::env::args_os().skip(1);
	if args.next().is_some_and(|arg| arg == worker::ARGUMENT) {
		return worker_main(workers(), args);
	}
	libtest_mimic::run(&Arguments::from_args(), tests()).exit_code()
}

/// Functions as tests of their names.
macro_rules! trials {
	($($test:ident),* $(,)?) => { vec![$(libtest_mimic::Trial::test(stringify!($test), $test)),*] };
}
pub(crate) use trials;

/// A program that cargo puts beside the directory of this test.
fn built(name: &str) -> PathBuf {
	let test = std::env::current_exe().unwrap_or_default();
	test.ancestors().nth(2).unwrap_or(Path::new("/")).join(name)
}
