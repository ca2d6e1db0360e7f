//! The model checker on engine odf, in guests whose kernel can fork on demand. Each guest ends with no page table found
//! shared where it should not be, no fault told by the kernel, and some tables shared in every run.
//!
//! `FLASHFORK_ODF_STEPS` says how many steps the first processes take in all; those of their children come on top.
//! Without it 1,200, with `FLASHFORK_TEST_ALL=1` 10⁵, as in the model's other modes: half an hour or more. A million
//! take some 14 hours.

use flashfork_lab::{GuestFile, Kernel, Lab, Options, Output, cache_dir};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::{io::Write, path::PathBuf, time::Duration};

/// Steps of one run, and runs of one guest.
const STEPS: usize = 400;
const RUNS: usize = 25;

fn main() {
	let trial = Trial::ignorable_test("model_on_demand", || match flashfork_tests::odf::kernel() {
		Ok(image) => guests(image).map(|()| Completion::Completed),
		Err(why) => Ok(Completion::ignored_with(why)),
	});
	libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

fn steps() -> Result<usize, Failed> {
	match std::env::var("FLASHFORK_ODF_STEPS") {
		Ok(text) => text.parse().map_err(|_| format!("FLASHFORK_ODF_STEPS is no number: {text}").into()),
		Err(_) if std::env::var_os("FLASHFORK_TEST_ALL").is_some() => Ok(100_000),
		Err(_) => Ok(3 * STEPS),
	}
}

fn guests(image: PathBuf) -> Result<(), Failed> {
	let runs = steps()?.div_ceil(STEPS);
	for first in (0..runs).step_by(RUNS) {
		guest(&image, first, RUNS.min(runs - first))?;
	}
	Ok(())
}

/// Some runs in one guest; every other one has two CPUs with a host thread each, for races.
fn guest(image: &std::path::Path, first: usize, runs: usize) -> Result<(), Failed> {
	let cache = cache_dir(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"));
	let lab = Lab::new(cache.ok_or("the lab needs HOME or XDG_CACHE_HOME")?)?;
	let races = first / RUNS % 2 == 1;
	let options = Options {
		kernel: Kernel::Image { image: image.to_path_buf(), modules: None },
		memory_mib: 2048,
		cpus: if races { 2 } else { 1 },
		threads: races,
		files: vec![GuestFile { host: env!("CARGO_BIN_EXE_model").into(), guest: "/t/model".into() }],
		timeout: Duration::from_secs(300 + 240 * runs as u64),
		..Options::default()
	};
	// A disk, for direct reads: memory behind a block device.
	let script = format!(
		"echo 1 > /proc/sys/vm/on_demand_fork && truncate -s 8M /tmp/disk && losetup /dev/loop0 /tmp/disk || exit 9
         TMPDIR=/tmp /t/model --engine odf --disk /dev/loop0 --no-replay --seed {} --runs {runs} --steps {STEPS} && exit 0
         for log in /tmp/flashfork-model-*/*/*.log; do echo \"$log\"; tail -n 5 $log; done; exit 1",
		first + 1
	);
	let outcome = lab.run(&options, &["sh", "-c", &script], &mut Through)?;
	if !outcome.kernel_warnings.is_empty() {
		return Err(format!("the kernel says: {}", outcome.kernel_warnings.join("\n")).into());
	}
	match outcome.status {
		flashfork_lab::Status::Exited(0) => Ok(()),
		status => Err(format!("{status}; the output above says which seed failed, and how to run it again").into()),
	}
}

/// What the guest says goes straight on: a long test shows how far it is.
struct Through;

impl Output for Through {
	fn stdout(&mut self, bytes: &[u8]) -> std::io::Result<()> {
		std::io::stdout().write_all(bytes)
	}

	fn stderr(&mut self, bytes: &[u8]) -> std::io::Result<()> {
		std::io::stderr().write_all(bytes)
	}
}
