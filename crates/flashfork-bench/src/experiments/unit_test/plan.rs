//! Whether a run fits and on which CPUs it is, decided before anything is allocated.

use super::UnitTestOptions;
use crate::prelude::*;
use flashfork::Headroom;

/// Left to the rest of the machine.
const RESERVE: u64 = 256 << 20;

/// The CPU of each job, the same for all `methods`, out of those `allowed`. Refuses a run that doesn't fit.
pub fn cpus(
	options: &UnitTestOptions,
	methods: &[Method],
	allowed: &[usize],
	headroom: &Headroom,
) -> Result<Vec<usize>> {
	let jobs = options.jobs as usize;
	let needed: u64 = methods.iter().map(|method| method.memory_needed(in_memory(options.size.0))).sum();
	let what =
		format!("{} per method with a database of {}, {} methods,", harnesses(jobs), options.size, methods.len());
	memory::require(headroom, what, needed * jobs as u64 + RESERVE)?;
	// The last CPU first, as for a single job: interrupts tend to sit on the first.
	let cpus = (0..jobs).map(|job| allowed.iter().rev().nth(job % allowed.len()).copied());
	cpus.collect::<Option<_>>().ok_or_else(|| unable!("this process is allowed on no CPU"))
}

/// What a database of `bytes` takes in memory: SQLite and malloc need about a tenth more for each page.
fn in_memory(bytes: u64) -> u64 {
	bytes + bytes / 8
}

/// "1 harness", "2 harnesses".
pub fn harnesses(jobs: usize) -> String {
	if jobs == 1 { "1 harness".to_owned() } else { format!("{jobs} harnesses") }
}

#[cfg(test)]
mod tests {
	use super::*;

	fn options(size: u64, jobs: u32) -> UnitTestOptions {
		UnitTestOptions { size: Size(size), jobs, rounds: 1, cache: None }
	}

	fn room(available: u64) -> Headroom {
		Headroom { available, limit: "MemAvailable".into() }
	}

	#[test]
	fn a_database_that_does_not_fit_is_refused_with_figures() {
		let text = cpus(&options(1 << 30, 1), &Method::STOCK, &[0], &room(3 << 30)).unwrap_err().to_string();
		assert!(text.starts_with("1 harness per method with a database of 1G") && text.contains("3 GB"), "{text}");
		assert!(cpus(&options(1 << 30, 1), &Method::STOCK, &[0], &room(5 << 30)).is_ok());
		assert!(cpus(&options(1 << 30, 2), &Method::STOCK, &[0], &room(5 << 30)).is_err());
	}

	#[test]
	fn jobs_are_spread_over_the_cpus() {
		let cpus = |jobs| cpus(&options(1 << 20, jobs), &Method::STOCK, &[0, 2, 5], &room(64 << 30)).unwrap();
		assert_eq!(cpus(1), [5]);
		assert_eq!(cpus(4), [5, 2, 0, 5]);
	}
}
