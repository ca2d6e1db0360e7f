//! `bench cluster` in small: that every way answers, what is counted when a node is killed, and that nothing is left
//! running. No times are judged.

mod here;

use std::{
	fs,
	path::Path,
	process::{Command, ExitCode, Stdio},
	sync::LazyLock,
	time::{Duration, Instant},
};

use flashfork_measure::Silent;
use here::{has, made, run_words};
use libtest_mimic::Failed;
use rustix::process::geteuid;

/// One with AWS's runtime client.
static PYTHON: LazyLock<String> = LazyLock::new(|| made("python-libraries", &["lambda"]));

/// How long another experiment may keep one from beginning.
const PATIENCE: Duration = Duration::from_secs(600);

/// An answer that is another call's is an error of the run.
fn calls_in_all_ways_are_answered_and_what_a_killed_node_had_is_counted() -> Result<(), Failed> {
	let words = ["cluster", "--python", &PYTHON, "--size", "16M", "--clients", "4", "--rounds", "1", "--quick"];
	let outcome = run_words(words.into_iter().chain(["--faults", "node-killed"]), &mut Silent);
	if !geteuid().is_root() {
		let refused = outcome.unwrap_err().to_string();
		assert!(refused.contains("as root") && refused.contains("flashfork bench serve"), "{refused}");
		return Ok(());
	}
	let outcome = outcome?;
	let find = |way: &str, wanted| outcome.document.find("cluster", way, wanted);
	for way in ["here", "elsewhere", "message"] {
		for (function, pause) in
			[("small", 0), ("small", 20), ("large", 0), ("large", 20), ("program", 0), ("program", 20)]
		{
			let calls = if pause == 0 { 25 } else { 12 };
			let wanted = serde_json::json!({ "function": function, "pause": pause, "measure": "whole" });
			let record = find(way, wanted).unwrap_or_else(|| panic!("{way} {function} {pause}"));
			assert_eq!(record.n, calls, "{way} {function} {pause}");
		}
	}
	assert!(find("reply", serde_json::json!({ "function": "none", "pause": 20 })).is_some());
	for (way, function) in [("here", "everywhere"), ("elsewhere", "grown")] {
		let of = |measure| {
			let wanted = serde_json::json!({ "function": function, "clients": 4, "measure": measure });
			find(way, wanted).unwrap_or_else(|| panic!("{way} {measure}"))
		};
		assert_eq!(of("whole").n + of("failed").samples[0] as usize, 200, "{way}");
		assert_eq!((of("rate").n, of("tail").n), (1, 1), "{way}");
	}
	let counted = |measure: &str| {
		let record = find("node-killed", serde_json::json!({ "measure": measure })).expect(measure);
		record.observed["sum"].as_f64().unwrap()
	};
	assert!(counted("call served") > 0.0 && counted("event served") > 0.0);
	assert_eq!([counted("ended"), counted("lost"), counted("doubled")], [counted("event served"), 0.0, 0.0]);
	has(
		&outcome.table,
		&["a function that holds 16 MB", "no HTTP, from another machine", "a node is killed", "left out: Ray"],
	);
	Ok(())
}

fn started(parent: u32, name: &str) -> Vec<u32> {
	let all = fs::read_dir("/proc").unwrap().flatten();
	let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
	let is = |process: &u32| {
		let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
		let rest = stat.split_once(&format!("({name}) ")).map(|(_, rest)| rest);
		rest.and_then(|rest| rest.split(' ').nth(1)?.parse().ok()) == Some(parent)
	};
	all.filter(is).collect()
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
	let begin = Instant::now();
	while !so() {
		assert!(begin.elapsed() < PATIENCE, "{what}");
		std::thread::sleep(Duration::from_millis(5));
	}
}

fn what_runs_ends_with_a_bench_that_is_killed() -> Result<(), Failed> {
	if !geteuid().is_root() {
		return Ok(());
	}
	let mut bench = Command::new(env!("CARGO_BIN_EXE_flashfork-bench"));
	bench.args(["bench", "cluster", "--python", &PYTHON, "--size", "16M"]);
	let records = Path::new(env!("CARGO_TARGET_TMPDIR")).join("killed-cluster.json");
	let mut bench = bench.arg("--records").arg(records).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
	let mut all = Vec::new();
	until("the servers never ran", || {
		all = started(bench.id(), "nats-server");
		all.extend(started(bench.id(), "flashfork-serve"));
		assert!(bench.try_wait().unwrap().is_none(), "it has ended");
		all.len() == 7
	});
	bench.kill()?;
	bench.wait()?;
	until("they run on", || all.iter().all(|process| !Path::new(&format!("/proc/{process}")).exists()));
	Ok(())
}

fn a_python_without_the_runtime_client_is_told_with_the_cure() -> Result<(), Failed> {
	let error = run_words(["cluster", "--python", "/bin/false"], &mut Silent).unwrap_err().to_string();
	assert!(error.starts_with("/bin/false lacks") && error.contains("scripts/python-libraries lambda"), "{error}");
	Ok(())
}

fn main() -> ExitCode {
	here::main(|| {
		let mut trials = here::trials![
			what_runs_ends_with_a_bench_that_is_killed,
			a_python_without_the_runtime_client_is_told_with_the_cure,
		];
		let long = here::trials![calls_in_all_ways_are_answered_and_what_a_killed_node_had_is_counted];
		// Most of a minute: `make test-all`.
		trials.extend(long.into_iter().map(|trial| trial.with_ignored_flag(true)));
		trials
	})
}
