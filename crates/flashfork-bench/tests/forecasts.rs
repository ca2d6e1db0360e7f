//! `bench advise`: forecasts of `flashfork advise` beside what forks took.

mod here;

use std::process::ExitCode;

use flashfork_bench::experiments::forecasts::{self, AdviseOptions};
use flashfork_measure::{Silent, worker};
use here::run;
use libtest_mimic::{Arguments, Failed, Trial};

fn forecasts_are_kept_beside_what_forks_took() -> Result<(), Failed> {
    let outcome = run(&AdviseOptions { rounds: 2 }, &mut Silent)?;
    for program in ["small", "64 MB on 4 KB pages", "256 MB on 4 KB pages", "256 MB on huge pages", "1000 mappings"] {
        for (method, samples) in [("forecast", 2), ("measured", 2 * 21)] {
            let found = outcome.document.find(forecasts::EXPERIMENT, method, &[("shape", program.into())]);
            assert!(found.is_some_and(|record| record.n == samples && record.min > 0.0), "{program}: {found:?}");
        }
        assert!(outcome.table.contains(program), "{}", outcome.table);
    }
    assert!(outcome.table.contains("Median error") && outcome.table.contains("the order"), "{}", outcome.table);
    Ok(())
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == worker::ARGUMENT) {
        return worker::worker_main(flashfork_bench::experiments::workers(), args);
    }
    let test = Trial::test("forecasts_are_kept_beside_what_forks_took", forecasts_are_kept_beside_what_forks_took);
    libtest_mimic::run(&Arguments::from_args(), vec![test]).exit_code()
}
