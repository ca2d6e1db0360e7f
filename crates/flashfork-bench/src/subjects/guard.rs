//! Templates of an experiment are gone afterwards, however it ends.

use crate::prelude::*;
use std::{io::Write, os::unix::process::CommandExt, process::Child};

/// Ends the processes whose numbers come in, when nothing more can come: templates have no parent that would.
const STAND_BY: &str = "trap '' HUP INT TERM; all=; while read -r pid; do all=\"$all $pid\"; done; \
						[ -z \"$all\" ] || kill -\"$1\" $all";

/// Ends the templates it was told of.
pub struct Guard(Child);

impl Guard {
	/// None yet.
	pub fn start() -> Result<Self> {
		Self::that_sends("TERM")
	}

	/// One that ends them by this signal.
	pub fn that_sends(signal: &str) -> Result<Self> {
		let mut guard = Command::new("/bin/sh");
		guard.args(["-c", STAND_BY, "flashfork-bench-guard", signal]).stdin(Stdio::piped());
		guard.stdout(Stdio::null()).stderr(Stdio::null());
		// Out of reach of the terminal's Ctrl-C.
		let guard = guard.process_group(0).current_dir("/").spawn();
		guard.map(Self).or_cant("start a guard")
	}

	/// Tells it of one.
	pub fn watch(&mut self, pid: u32) -> Result {
		let told = self.0.stdin.as_mut().map_or(Ok(()), |pipe| writeln!(pipe, "{pid}"));
		told.or_cant("tell the guard")
	}
}

impl Drop for Guard {
	fn drop(&mut self) {
		drop(self.0.stdin.take());
		// It ends them also when it can't be waited for.
		let _ = self.0.wait();
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_guard_ends_what_it_was_told_of() {
		let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
		let mut guard = Guard::start().unwrap();
		guard.watch(child.id()).unwrap();
		drop(guard);
		assert!(!child.wait().unwrap().success());
	}
}
