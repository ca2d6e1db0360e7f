//! Processes that are told something, and waited for. The command's tests have this file, too.

use std::time::{Duration, Instant};

pub fn kill(pid: i32, signal: i32) {
	// SAFETY: takes numbers.
	unsafe { libc::kill(pid, signal) };
}

/// Until something is so; not for ever.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
	let start = Instant::now();
	while !so() {
		assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
		std::thread::sleep(Duration::from_millis(5));
	}
}

pub fn state(pid: i32) -> Option<char> {
	let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
	stat.rsplit_once(") ")?.1.chars().next()
}
