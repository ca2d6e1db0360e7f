//! Programs that are not ours, under the shim: Redis, CPython; PostgreSQL and Apache too with `FLASHFORK_TEST_ALL=1`.
//! Each script says at its head what it checks.

use flashfork_tests::{shim, within::within};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::{path::Path, process::Command, time::Duration};

/// What a script says when the program isn't installed.
const SKIPPED: i32 = 77;

fn main() {
	let args = Arguments::from_args();
	let all = all();
	let trial = |name: &'static str, how: &'static str, engine, arguments: &'static [&'static str]| {
		Trial::ignorable_test(format!("{name}{how}"), move || run(name, engine, arguments))
	};
	let mut trials = vec![
		trial("cpython", "", "fork", if all { &["1000000"] } else { &["60000"] }),
		trial("redis", "_auto", "auto", if all { &["200000", "10"] } else { &["12000", "3"] }),
		trial("redis", "_seal", "seal", if all { &["200000", "10"] } else { &["12000", "3"] }),
	];
	if all {
		trials.push(trial("postgresql", "", "auto", &["20"]));
		trials.push(trial("apache", "", "auto", &["5000"]));
	}
	libtest_mimic::run(&args, trials).exit();
}

fn all() -> bool {
	std::env::var_os("FLASHFORK_TEST_ALL").is_some()
}

fn run(name: &str, engine: &str, arguments: &[&str]) -> Result<Completion, Failed> {
	let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name).with_extension("py");
	let mut command = Command::new("python3");
	command.arg(script).arg(shim::path()).args(arguments);
	// Each takes seconds; with FLASHFORK_TEST_ALL minutes.
	let limit = Duration::from_secs(if all() { 7200 } else { 600 });
	// Processes with threads are sealed where that is asked for and possible.
	command.env("FLASHFORK_ENGINE", engine).env("FLASHFORK_THREADS", "stop").env_remove("LD_PRELOAD");
	let output = within(limit, &mut command)?;
	let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).trim().to_owned());
	println!("{out}");
	match output.status.code() {
		Some(0) => Ok(Completion::Completed),
		Some(SKIPPED) => Ok(Completion::ignored_with(err)),
		_ => Err(format!("{}\n{out}\n{err}", output.status).into()),
	}
}
