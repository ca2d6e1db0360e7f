//! What the tests share: the lab with the user's own cache, and runs that fail loudly.

use flashfork_lab::{Collected, Lab, LabError, Options, Outcome, cache_dir};

/// The lab, with its kernels where `flashfork lab run` has them.
pub fn lab() -> Lab {
	let cache = cache_dir(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))
		.expect("the tests need HOME or XDG_CACHE_HOME for the lab's kernels");
	Lab::new(cache).unwrap_or_else(|error| panic!("{error}"))
}

pub fn try_run(options: &Options, command: &[&str]) -> (Collected, Result<Outcome, LabError>) {
	let mut output = Collected::default();
	let outcome = lab().run(options, command, &mut output);
	(output, outcome)
}

/// Runs `command` to its end, whatever that is, on a kernel that must not complain meanwhile.
#[track_caller]
pub fn run(options: &Options, command: &[&str]) -> (Collected, Outcome) {
	let (output, outcome) = try_run(options, command);
	let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
	assert_eq!(outcome.kernel_warnings, [] as [&str; 0]);
	println!(
		"{}: booted in {:.1} s on {}, command took {:.1} s",
		outcome.kernel_release,
		outcome.boot.as_secs_f64(),
		outcome.accel,
		outcome.command.as_secs_f64()
	);
	(output, outcome)
}

/// Runs a shell script that must succeed in silence on standard error, and returns what it prints.
#[track_caller]
pub fn shell(options: &Options, script: &str) -> String {
	let (output, outcome) = run(options, &["sh", "-ec", script]);
	let stderr = String::from_utf8_lossy(&output.stderr);
	assert!(outcome.status.success(), "{}: {stderr}", outcome.status);
	assert_eq!(stderr, "");
	String::from_utf8(output.stdout).expect("the script prints text")
}
