//! One unit test in one clone, phase by phase.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rusqlite::Connection;
use rustix::process::WaitStatus;

use super::case::{Case, Expected};
use crate::{prelude::*, subjects::engine};

/// Exit statuses of a clone whose test didn't pass, and what they mean.
const FOUND_SOMETHING_ELSE: (i32, &str) = (3, "it found other rows than its parent had counted");
const SQL_FAILED: (i32, &str) = (4, "SQLite reported an error");

/// Part of a test's life, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Phase {
	/// The fork call, in the parent.
	Clone,
	/// The test, in the clone.
	Test,
	/// From the end of the test until the parent has reaped the clone.
	Reap,
	/// From before the fork call until the clone is reaped.
	Whole,
}

/// When the clone began and ended its test, in nanoseconds since the parent's clock started; shared with it.
pub struct Stamps {
	began: AtomicU64,
	ended: AtomicU64,
}

/// Runs `case` in a clone of this process.
pub fn run(
	method: Method,
	db: &Connection,
	case: Case,
	expected: &Expected,
	stamps: &'static Stamps,
) -> Result<[(Phase, f64); 4]> {
	let begin = Instant::now();
	// SAFETY: the worker has one thread.
	let cloned = unsafe {
		engine::in_clone(method, || {
			stamps.began.store(begin.elapsed().as_nanos() as u64, Relaxed);
			let status = match case.passes(db, expected) {
				Ok(true) => 0,
				Ok(false) => FOUND_SOMETHING_ELSE.0,
				Err(_) => SQL_FAILED.0,
			};
			stamps.ended.store(begin.elapsed().as_nanos() as u64, Relaxed);
			status
		})
	}?;
	passed(case, cloned.status)?;
	let [began, ended] = [&stamps.began, &stamps.ended].map(|stamp| Duration::from_nanos(stamp.load(Relaxed)));
	Ok([
		(Phase::Clone, us(cloned.call)),
		(Phase::Test, us(ended.saturating_sub(began))),
		// On another CPU a clone can be done before the fork call has returned here.
		(Phase::Reap, us(cloned.whole.saturating_sub(ended.max(cloned.call)))),
		(Phase::Whole, us(cloned.whole)),
	])
}

fn passed(case: Case, status: WaitStatus) -> Result {
	engine::check(status, || format!("running the unit test '{}'", case.as_ref()), &[FOUND_SOMETHING_ELSE, SQL_FAILED])
}

#[cfg(test)]
mod tests {
	use super::*;
	use rustix::process::Pid;

	/// Not in clones of this process: it has threads, one of which may hold a lock of SQLite's just then.
	#[test]
	#[expect(clippy::zombie_processes, reason = "it is reaped by its number")]
	fn only_a_test_that_passed_counts() {
		let ended = |script: &str| {
			let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
			passed(Case::Delete, engine::reap(Pid::from_child(&child)).unwrap())
		};
		ended("exit 0").unwrap();
		let failures =
			[("exit 3", "other rows"), ("exit 4", "SQLite"), ("exit 9", "status 9"), ("kill -9 $$", "signal 9")];
		for (script, words) in failures {
			let said = ended(script).unwrap_err().to_string();
			assert!(said.contains(words) && said.contains("'delete'"), "{said}");
		}
	}
}
