//! `bench advise`: forecasts of `flashfork advise` beside what forks took.

mod here;

use std::process::ExitCode;

use flashfork_measure::{Result, Silent};
use here::run;
use libtest_mimic::Failed;

fn forecasts_are_kept_beside_what_forks_took() -> Result<(), Failed> {
	let outcome = run("advise --rounds 2", &mut Silent)?;
	for program in ["small", "64 MB on 4 KB pages", "256 MB on 4 KB pages", "256 MB on huge pages", "1000 mappings"] {
		for (method, samples) in [("forecast", 2), ("measured", 2 * 21)] {
			let found = outcome.document.find("advise", method, serde_json::json!({ "shape": program }));
			assert!(found.is_some_and(|record| record.n == samples && record.min > 0.0), "{program}: {found:?}");
		}
		assert!(outcome.table.contains(program), "{}", outcome.table);
	}
	assert!(outcome.table.contains("Median error") && outcome.table.contains("the order"), "{}", outcome.table);
	Ok(())
}

fn main() -> ExitCode {
	here::main(|| here::trials![forecasts_are_kept_beside_what_forks_took])
}
