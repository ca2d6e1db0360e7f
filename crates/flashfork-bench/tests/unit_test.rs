//! `bench unit-test` at a tiny size: the clones' results, the records and the refusals, not the times.

mod here;

use std::{path::Path, process::ExitCode};

use flashfork_bench::experiments::unit_test::UnitTestOptions;
use flashfork_measure::{Outcome, Record, Result, Silent};
use flashfork_terminal::size::Size;
use here::run;
use libtest_mimic::Failed;

fn options(size: u64, jobs: u32, cache: Option<&Path>) -> UnitTestOptions {
    UnitTestOptions { size: Size(size), jobs, rounds: 3, cache: cache.map(Path::to_path_buf) }
}

fn records<'a>(outcome: &'a Outcome, method: &str, phase: &str) -> Vec<&'a Record> {
    let matches = |record: &&Record| record.method == method && record.chosen["phase"] == phase;
    outcome.document.records.iter().filter(matches).collect()
}

/// The run itself fails unless every clone found what its parent had counted and every checksum stayed the same.
fn every_method_runs_every_test_in_clones() -> Result<(), Failed> {
    let cache = tempfile::tempdir()?;
    let outcome = run(&options(4 << 20, 1, Some(cache.path())), &mut Silent)?;
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
    let first = run(&options(2 << 20, 2, Some(cache.path())), &mut Silent)?;
    assert_eq!(records(&first, "seal", "initialise")[0].n, 2);
    assert!(records(&first, "seal", "whole").iter().all(|record| record.n == 60));
    assert_eq!(std::fs::read_dir(cache.path())?.count(), 1);
    let second = run(&options(2 << 20, 2, Some(cache.path())), &mut Silent)?;
    assert!(records(&second, "image", "build image").is_empty(), "the kept image was not taken");
    Ok(())
}

fn what_does_not_fit_is_refused_before_anything_is_built() -> Result<(), Failed> {
    let cache = tempfile::tempdir()?;
    let error = run(&options(1 << 50, 1, Some(cache.path())), &mut Silent).unwrap_err().to_string();
    assert!(error.contains("needs") && error.contains("1024T"), "{error}");
    assert_eq!(std::fs::read_dir(cache.path())?.count(), 0);
    Ok(())
}

fn main() -> ExitCode {
    here::main([
        ("every_method_runs_every_test_in_clones", every_method_runs_every_test_in_clones),
        ("jobs_run_side_by_side_and_share_one_image", jobs_run_side_by_side_and_share_one_image),
        (
            "what_does_not_fit_is_refused_before_anything_is_built",
            what_does_not_fit_is_refused_before_anything_is_built,
        ),
    ])
}
