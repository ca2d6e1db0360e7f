//! Every experiment, interrupted once it has measured something: what it measured is there, and it says what is
//! missing.

mod here;

use std::process::{Command, ExitCode, Stdio};

use flashfork_bench::experiments;
use flashfork_measure::{BenchError, Progress, Record, Result, experiment::Entry};
use here::run;
use libtest_mimic::{Failed, Trial};

/// What scripts/python-libraries makes.
macro_rules! lambda_python {
	() => {
		concat!(env!("CARGO_TARGET_TMPDIR"), "/../python/lambda/bin/python")
	};
}

struct Small {
	/// Options, as on the command line.
	options: &'static str,
	/// In which stage there is something to keep after one step: its name contains this.
	stage: &'static str,
	/// After how many steps of that stage it is interrupted.
	steps: u64,
	able: fn() -> bool,
}

/// The arguments of the experiment `name`; each has some, so that a new one is interrupted too.
fn small(name: &str) -> Small {
	let (options, stage, steps) = match name {
		"fork" => ("--sizes 8M --rounds 6", "parent idle", 1),
		"creation" => ("--sizes 4M --quick", "all ways", 2),
		"cow-model" => ("--grid paper --quick", "all sizes", 2),
		// Of a cell whose engines were not all measured nothing is kept: three runs make one.
		"policy" => ("--sizes 8M --dirty 0,1 --forks 10 --rounds 1", "8 MB", 3),
		"fault" => ("--size 8M --quick", "first writes", 2),
		"access-mix" => ("--size 64M --quick", "mixes", 2),
		"profile" => ("--size 64M --seconds 3", "under perf", 1),
		"advise" => ("--rounds 5", "forecasts", 1),
		"check" => ("--quick", "in turn", 1),
		"write-fraction" => ("--ready cpython --after 0.2 --for 0.2 --runs 3", "cpython", 1),
		"rollback" => ("--size 8M --quick", "rollbacks", 2),
		"clones" => ("--size 8M --count 4 --others 4 --rounds 3", "clones", 1),
		"libraries" => ("--rounds 3", "clones", 1),
		"seal-threads" => ("--sizes 8M --threads 2 --rounds 3", "sealing", 1),
		"redis" => ("--size 16M --rounds 2 --snapshots 1 --connections 2 --depth 50", "servers", 1),
		"warm" => ("--programs perl --quick", "programs and their clones", 2),
		"threads" => ("--programs python --threads 2 --alive 1 --quick", "programs and their clones", 2),
		"pytest" => ("--suites fixture --size 16M", "suites of tests", 2),
		"serve" => (concat!("--functions small --quick --python ", lambda_python!()), "calls of functions", 2),
		"serve-jobs" => ("--quick", "jobs", 1),
		"cluster" => (concat!("--rounds 9 --size 16M --quick --python ", lambda_python!()), "calls of functions", 2),
		"unit-test" => ("--size 4M --rounds 9", "interleaved", 1),
		"fuzz" => ("--size 4M --seconds 3600", "slice 1", 1),
		"vm-clone" => ("--sizes 2M --rounds 40", "interleaved", 1),
		"vm-memory" => ("--size 4M --rounds 40", "four passes", 1),
		"vm-fork" => ("--sizes 16M --rounds 40", "live forks", 1),
		"vm-fuzz" => ("--size 16M --pages 20 --rounds 40", "interleaved", 1),
		"vm-jobs" => ("--jobs gcc --rounds 40", "interleaved", 1),
		"vm-tree" => ("--rounds 40", "interleaved", 1),
		other => panic!("say here how small the experiment {other} can be, so that it is interrupted too"),
	};
	let able: fn() -> bool = match name {
		// Of the kernel, too, which an ordinary user may not.
		"profile" => || runs("perf", &["record", "-q", "-e", "cpu-clock:k", "-o", "/dev/null", "true"]),
		"redis" => || runs("redis-server", &["--version"]),
		// One of those beside which it measures.
		"check" => || runs("hyperfine", &["--version"]) || runs("stress-ng", &["--version"]),
		"pytest" => || runs("python3", &["-c", "import pytest, xdist, numpy, pandas, flashfork"]),
		"serve" => || runs(lambda_python!(), &["-c", "import awslambdaric, numpy"]),
		// Its functions take half a minute to warm, and the test of serve stands for it.
		"serve-jobs" => || false,
		"cluster" => || {
			let has_programs = runs("nats-server", &["--version"]) && runs("unshare", &["--net", "ip", "-V"]);
			has_programs && runs(lambda_python!(), &["-c", "import awslambdaric"])
		},
		"fuzz" => || runs("afl-clang-fast", &["--version"]),
		"vm-clone" | "vm-memory" | "vm-fork" | "vm-fuzz" => {
			|| std::fs::File::options().read(true).write(true).open("/dev/kvm").is_ok()
		}
		// Linux guests with disks of their own: scripts/bench-vm-lab runs them.
		"vm-jobs" | "vm-tree" => || false,
		// The others leave out what this host lacks, and measure the rest.
		_ => || true,
	};
	Small { options, stage, steps, able }
}

fn runs(program: &str, args: &[&str]) -> bool {
	let mut command = Command::new(program);
	let status = command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
	status.is_ok_and(|status| status.success())
}

struct Interrupt {
	stage: &'static str,
	within: bool,
	left: u64,
}

impl Progress for Interrupt {
	fn begin(&mut self, what: &str, _: u64) {
		self.within = what.contains(self.stage);
	}
	fn step(&mut self) {
		self.left = self.left.saturating_sub(u64::from(self.within));
	}
	fn interrupted(&self) -> bool {
		self.left == 0
	}
}

fn keeps_what_it_measured(entry: Entry) -> Result<(), Failed> {
	let Small { options, stage, steps, .. } = small(entry.name);
	let mut progress = Interrupt { stage, within: false, left: steps };
	let outcome = match run(&format!("{} {options}", entry.name), &mut progress) {
		Err(BenchError::Unfinished { outcome, .. }) => *outcome,
		other => other?,
	};
	assert!(progress.interrupted(), "it ended before it was interrupted");
	assert!(!outcome.document.records.is_empty(), "nothing was kept");
	assert!(outcome.document.records.iter().all(|record| record.experiment == entry.name));
	// What is sampled in one stage is interrupted as a whole.
	let ended = |record: &Record| record.observed.get("ended").is_some_and(|ended| ended == "interrupted");
	assert!(entry.name != "creation" || outcome.document.records.iter().all(ended), "{:?}", outcome.document.records);
	let said = outcome.document.missing.iter().any(|missing| missing.reason.contains("interrupted"));
	assert!(said && outcome.table.contains("interrupted"), "{}", outcome.table);
	Ok(())
}

fn main() -> ExitCode {
	let trial = |entry: Entry| {
		let able = (small(entry.name).able)();
		// Some stay on one CPU: each has its own thread.
		let test = move || {
			std::thread::spawn(move || keeps_what_it_measured(entry)).join().unwrap_or_else(|panic| {
				Err(panic.downcast_ref::<String>().map_or("it panicked", String::as_str).into())
			})
		};
		Trial::test(format!("{}_keeps_what_it_measured", entry.name), test).with_ignored_flag(!able)
	};
	here::main(|| experiments::ALL.into_iter().map(trial).collect())
}
