//! `bench fuzz` at a tiny size: that every method really fuzzes, counts what it did, and leaves nothing behind.

mod here;

use std::{
	ffi::OsString,
	os::unix::process::CommandExt,
	path::{Path, PathBuf},
	process::{Child, Command, ExitCode, Stdio},
	time::{Duration, Instant},
};

use flashfork_measure::{Outcome, Places, Record, Result, Silent};
use here::{Here, run};
use libtest_mimic::Failed;
use serde_json::Value;

/// Turns this program into one that runs the experiment, for the tests that end it or change its environment.
const COORDINATOR: &str = "fuzz-coordinator";

fn fuzz(what: &str, seconds: u32, preload: &Path, cache: &Path) -> Result<Outcome> {
	let [preload, cache] = [preload, cache].map(Path::display);
	let command = format!("fuzz {what} --slices 2 --seconds {seconds} --preload {preload} --cache {cache}");
	run(&command, &mut Silent)
}

fn cache() -> PathBuf {
	Here.cache("bench").unwrap()
}

fn shim() -> PathBuf {
	flashfork_tests::shim::path().to_path_buf()
}

fn record<'a>(outcome: &'a Outcome, method: &str, measure: &str) -> &'a Record {
	let mut records = outcome.document.records.iter();
	records
		.find(|record| record.method == method && record.chosen["measure"] == measure)
		.unwrap_or_else(|| panic!("no record '{measure}' of {method}"))
}

fn number(value: &Value) -> f64 {
	value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn plain_and_sealed_do_the_same_work() -> Result<(), Failed> {
	let outcome = fuzz("--size 4M", 6, &shim(), &cache())?;
	for method in ["fork-4k", "seal"] {
		let series = record(&outcome, method, "rate over time");
		let ends = series.observed["t_s"].as_array().unwrap();
		assert!(series.n >= 1 && ends.len() == series.n, "{method}: {ends:?}");
		// One clone per execution, the clones' own count and AFL's agree (else the run fails), and they found
		// something.
		assert!(number(&series.observed["executions"]) > 0.0 && series.max > 0.0, "{method}: {series:?}");
		assert!(number(&series.observed["afl"]["edges"]) > 1000.0 && number(&series.observed["afl"]["corpus"]) >= 9.0);
		assert!(outcome.table.contains(method), "{}", outcome.table);
	}
	let sealed = &record(&outcome, "seal", "rate over time").observed["shim"];
	assert!(number(&sealed["sealed_bytes"]) > 2e6 && number(&sealed["forks"]) > 0.0, "{sealed}");
	assert!(record(&outcome, "fork-4k", "rate over time").observed["shim"].is_null());
	let equal = |method| record(&outcome, method, "edges after equal work");
	let (plain, seal) = (equal("fork-4k"), equal("seal"));
	assert!((0.9..1.1).contains(&(seal.p50 / plain.p50)), "{} and {} edges", plain.p50, seal.p50);
	let executions = number(&seal.observed["afl"]["executions"]) / number(&plain.observed["afl"]["executions"]);
	assert!((0.8..1.25).contains(&executions), "{executions} times the executions is not equal work");
	Ok(())
}

/// The smallest target; its source comes from Debian the first time.
fn a_target_is_fuzzed_in_every_way() -> Result<(), Failed> {
	// The library lies beside the shim.
	let mut build = Command::new(env!("CARGO"));
	let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
	build.args(["build", "--locked", "--quiet", "-p", "flashfork-afl", "--target-dir"]).arg(target);
	assert!(build.status()?.success());
	let outcome = fuzz("--targets cjson", 2, &shim(), &cache())?;
	assert!(outcome.document.missing.is_empty(), "{:?}", outcome.document.missing);
	for sanitizer in ["none", "address"] {
		let of = |method: &str| {
			let mut records = outcome.document.records.iter();
			records.find(|record| record.method == method && record.chosen["sanitizer"] == sanitizer).unwrap()
		};
		for way in ["fork server", "fork server, shim", "loop on rollback", "persistent loop"] {
			let slices = of(way).observed["afl"].as_array().unwrap();
			assert_eq!(slices.len(), 2, "{way}");
			for afl in slices {
				assert!(number(&afl["executions"]) > 0.0 && number(&afl["edges"]) > 20.0, "{way}: {afl}");
				assert!(way == "persistent loop" || number(&afl["stability_percent"]) > 99.8, "{way}: {afl}");
			}
			assert!(outcome.table.contains(way), "{}", outcome.table);
		}
		for how in ["in one process", "in a fork", "in a round on rollback"] {
			assert!(of(how).p50 > 0.0, "{how}");
		}
	}
	Ok(())
}

fn coordinator(cache: &Path, path: Option<&str>) -> Result<Child, Failed> {
	let mut command = Command::new(std::env::current_exe()?);
	command.arg(COORDINATOR).arg(cache).arg(shim()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
	if let Some(path) = path {
		command.env("PATH", path);
	}
	Ok(command.process_group(0).spawn()?)
}

/// The arguments of every process, with its parent.
fn processes() -> Vec<(i32, Vec<String>)> {
	let all = procfs::process::all_processes().unwrap().flatten();
	all.filter_map(|process| Some((process.stat().ok()?.ppid, process.cmdline().ok()?))).collect()
}

fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
	let begin = Instant::now();
	while !done() {
		if begin.elapsed() > limit {
			return false;
		}
		std::thread::sleep(Duration::from_millis(50));
	}
	true
}

/// SIGKILL in the middle of fuzzing: nothing in the killed process can clean up.
fn a_killed_run_leaves_no_process_and_no_file() -> Result<(), Failed> {
	let mut process = coordinator(&cache(), None)?;
	let pid = process.id() as i32;
	let mut counter = None;
	let fuzzing = within(Duration::from_secs(3600), || {
		// The fuzzed program's last argument lies in the run's temporary directory.
		let afl = processes()
			.into_iter()
			.find(|(parent, args)| *parent == pid && args.first().is_some_and(|name| name == "afl-fuzz"));
		counter = afl.and_then(|(_, args)| args.last().map(PathBuf::from));
		counter.as_ref().is_some_and(|counter| std::fs::read(counter).is_ok_and(|bytes| bytes != [0; 8]))
	});
	process.kill()?;
	process.wait()?;
	assert!(fuzzing, "nothing was fuzzed");
	let work = counter.as_deref().and_then(|counter| counter.parent()?.parent()).unwrap();
	let name = work.to_str().unwrap();
	let gone = within(Duration::from_secs(120), || {
		!work.exists() && !processes().iter().any(|(_, args)| args.iter().any(|arg| arg.contains(name)))
	});
	assert!(gone, "{name} is still there, or one of {:?}", processes());
	Ok(())
}

fn a_missing_afl_is_named() -> Result<(), Failed> {
	let cache = tempfile::tempdir()?;
	let output = coordinator(cache.path(), Some("/nonexistent"))?.wait_with_output()?;
	let text = String::from_utf8(output.stderr)?;
	assert!(!output.status.success() && text.contains("package afl++") && text.lines().count() == 1, "{text}");
	assert_eq!(std::fs::read_dir(cache.path())?.count(), 0);
	Ok(())
}

fn without_a_shim_nothing_is_run() -> Result<(), Failed> {
	let cache = tempfile::tempdir()?;
	let missing = Path::new("/nonexistent/libflashfork_preload.so");
	let error = fuzz("--size 4M", 1, missing, cache.path()).unwrap_err().to_string();
	assert!(error.contains("/nonexistent"), "{error}");
	assert_eq!(std::fs::read_dir(cache.path())?.count(), 0);
	Ok(())
}

fn main() -> ExitCode {
	let args: Vec<OsString> = std::env::args_os().skip(1).collect();
	if let [first, cache, shim] = args.as_slice()
		&& first == COORDINATOR
	{
		return fuzz("--size 4M", 3600, Path::new(shim), Path::new(cache)).map_or_else(
			|error| {
				eprintln!("{error}");
				ExitCode::FAILURE
			},
			|_| ExitCode::SUCCESS,
		);
	}
	// `make test` installs AFL++; without it only its absence can be tested.
	let afl =
		std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join("afl-fuzz").exists());
	here::main(|| {
		let able = here::trials![
			a_target_is_fuzzed_in_every_way,
			plain_and_sealed_do_the_same_work,
			a_killed_run_leaves_no_process_and_no_file,
		];
		let able = able.into_iter().map(|trial| trial.with_ignored_flag(!afl));
		able.chain(here::trials![a_missing_afl_is_named, without_a_shim_nothing_is_run]).collect()
	})
}
