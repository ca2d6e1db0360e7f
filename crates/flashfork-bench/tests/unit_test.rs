//! `bench unit-test` at a tiny size: the clones' results, the records and the refusals, not the times.

mod here;

use std::{path::Path, process::ExitCode};

use flashfork_measure::{Outcome, Record, Result, Silent};
use here::run;
use libtest_mimic::Failed;

fn measure(size: &str, jobs: u32, cache: &Path) -> Result<Outcome> {
	let command = format!("unit-test --size {size} --jobs {jobs} --rounds 3 --cache {}", cache.display());
	run(&command, &mut Silent)
}

fn records<'a>(outcome: &'a Outcome, method: &str, phase: &str) -> Vec<&'a Record> {
	let matches = |record: &&Record| record.method == method && record.chosen["phase"] == phase;
	outcome.document.records.iter().filter(matches).collect()
}

/// The run itself fails unless every clone found what its parent had counted and every checksum stayed the same.
fn every_method_runs_every_test_in_clones() -> Result<(), Failed> {
	let cache = tempfile::tempdir()?;
	let outcome = measure("4M", 1, cache.path())?;
	for method in ["fork-4k", "seal"] {
		for phase in ["clone", "test", "reap", "whole"] {
			let records = records(&outcome, method, phase);
			let tests: Vec<&str> = records.iter().filter_map(|record| record.chosen["test"].as_str()).collect();
			assert_eq!(tests, ["select", "delete", "update"], "{method} {phase}");
			assert!(records.iter().all(|record| record.n == 30 && record.min > 0.0 && record.unit == "us"));
		}
		assert_eq!(records(&outcome, method, "initialise").len(), 1);
		assert!(outcome.table.contains(method), "{}", outcome.table);
	}
	// The baseline really is on 4 KB pages, and sealing sealed most of the database.
	assert_eq!(records(&outcome, "fork-4k", "heap on huge pages before sealing")[0].max, 0.0);
	let sealed = records(&outcome, "seal", "sealed")[0];
	assert!(sealed.min > 2e6, "{} bytes sealed", sealed.min);
	assert_eq!(records(&outcome, "image", "build image").len(), 1);
	Ok(())
}

fn jobs_run_side_by_side_and_share_one_image() -> Result<(), Failed> {
	let cache = tempfile::tempdir()?;
	let first = measure("2M", 2, cache.path())?;
	assert_eq!(records(&first, "seal", "initialise")[0].n, 2);
	assert!(records(&first, "seal", "whole").iter().all(|record| record.n == 60));
	assert_eq!(std::fs::read_dir(cache.path())?.count(), 1);
	let second = measure("2M", 2, cache.path())?;
	assert!(records(&second, "image", "build image").is_empty(), "the kept image was not taken");
	Ok(())
}

fn what_does_not_fit_is_refused_before_anything_is_built() -> Result<(), Failed> {
	let cache = tempfile::tempdir()?;
	let error = measure("1024T", 1, cache.path()).unwrap_err().to_string();
	assert!(error.contains("needs") && error.contains("1024T"), "{error}");
	assert_eq!(std::fs::read_dir(cache.path())?.count(), 0);
	Ok(())
}

fn main() -> ExitCode {
	here::main(|| {
		here::trials![
			every_method_runs_every_test_in_clones,
			jobs_run_side_by_side_and_share_one_image,
			what_does_not_fit_is_refused_before_anything_is_built,
		]
	})
}
