//! The example does what it says.

mod common;

use common::{Place, shim};
use std::process::Command;

#[test]
fn the_example_runs_its_jobs() {
	let place = Place::new();
	let mut build = Command::new(env!("CARGO"));
	build.args(["build", "--locked", "--quiet", "-p", "flashfork-templates", "--example", "jobs"]);
	assert!(build.args(["--target-dir".as_ref(), common::target()]).status().unwrap().success());
	let mut example = Command::new(common::target().join("debug/examples/jobs"));
	// Debian's Python itself, not a script that starts another.
	let output =
		example.arg(shim()).env("XDG_RUNTIME_DIR", place.path()).env("PATH", "/usr/bin:/bin").output().unwrap();
	let [printed, said] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
	assert!(output.status.success() && printed.ends_with("\nthe sum is 14\n"), "{printed}{said}");
	assert_eq!(printed.matches("has ended: exit status: 0\n").count(), 3, "{printed}");
	assert!(place.names.names().unwrap().is_empty());
}
