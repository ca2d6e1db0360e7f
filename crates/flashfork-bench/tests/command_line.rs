//! `flashfork bench` as a user types it, read by the program that it is.

use assert_cmd::Command;
use predicates::{prelude::*, str::contains};
use std::{
	process::{Output, Stdio},
	time::Duration,
};

/// What the command `flashfork` becomes.
const PROGRAM: &str = env!("CARGO_BIN_EXE_flashfork-bench");

fn flashfork() -> Command {
	let mut command = Command::new(PROGRAM);
	command.env_remove("LD_PRELOAD");
	command
}

#[test]
fn it_speaks_as_the_command() {
	let help = contains("Usage: flashfork bench <COMMAND>").and(contains("Example: flashfork bench fork"));
	flashfork().args(["bench", "--help"]).assert().success().stdout(help);
	flashfork().args(["help", "bench", "fork"]).assert().success().stdout(contains("Usage: flashfork bench fork"));
	for name in [
		"fork",
		"unit-test",
		"serve",
		"serve-jobs",
		"fuzz",
		"vm-clone",
		"vm-memory",
		"vm-fork",
		"vm-fuzz",
		"vm-jobs",
		"vm-tree",
		"creation",
		"cow-model",
		"write-fraction",
		"fault",
	]
	.into_iter()
	.chain(["access-mix", "profile", "advise", "check", "figure", "compare", "all", "report"])
	{
		let help = contains(format!("Usage: flashfork bench {name} ")).and(contains("Example: flashfork bench"));
		flashfork().args(["bench", name, "--help"]).assert().success().stdout(help);
	}
}

#[test]
fn wrong_usage_is_exit_2_and_the_usage_line() {
	for args in [
		&["bench"][..],
		&["bench", "nonsense"],
		&["bench", "all"],
		&["bench", "compare", "a.json"],
		&["bench", "creation", "--sizes", "huge"],
		&["bench", "write-fraction", "--pid", "0"],
		&["bench", "fault", "--size", "1M"],
		&["bench", "fork", "--up-to", "1M"],
		&["bench", "fork", "--sizes", "a lot"],
		&["bench", "vm-fork", "--written", "0"],
		&["bench", "vm-fuzz", "--pages", "3"],
	] {
		let usage_or_value = contains("Usage: flashfork bench").or(contains("invalid value"));
		flashfork().args(args).assert().code(2).stdout("").stderr(usage_or_value);
	}
}

#[test]
fn what_measurements_can_not_do_is_one_line() {
	let dir = tempfile::tempdir().unwrap();
	let home = dir.path();
	let old = home.join("old.json");
	std::fs::write(&old, r#"{"schema":"flashfork.bench/0","host":{},"records":[]}"#).unwrap();
	let torn = home.join("torn.json");
	std::fs::write(&torn, r#"{"schema":"flashfork.bench/2","#).unwrap();
	let (old, torn) = (old.to_str().unwrap(), torn.to_str().unwrap());
	let place = home.join("page");
	let place = place.to_str().unwrap();
	for (args, said) in [
		(&["bench", "compare", old, torn][..], "flashfork.bench/0"),
		(&["bench", "compare", torn, old], "torn.json"),
		(&["bench", "report", torn, "--html", place], "torn.json"),
		(&["bench", "report", "/no/such.json", "--html", place], "/no/such.json"),
		(&["bench", "all", "--html", "/proc/nowhere"], "/proc/nowhere"),
		(&["bench", "creation", "--sizes", "1000T", "--records", "/dev/shm/never.json"], "needs"),
		(&["bench", "fork", "--sizes", "100000G", "--records", "/dev/shm/never.json"], "needs"),
		(&["bench", "fault", "--size", "1000T", "--records", "/dev/shm/never.json"], "needs"),
		(&["bench", "access-mix", "--size", "1000T", "--records", "/dev/shm/never.json"], "needs"),
		(&["bench", "write-fraction", "--pid", "2147483646", "--records", "/dev/shm/never.json"], "no process"),
		(&["bench", "write-fraction", "--records", "/dev/shm/never.json", "--", "/no/such"], "/no/such"),
	] {
		let one_line = predicates::str::is_match(r"^((left out|waiting)[^\n]*\n)*flashfork: [^\n]+\n$").unwrap();
		flashfork().env("HOME", home).args(args).assert().code(1).stdout("").stderr(contains(said).and(one_line));
	}
	assert!(!std::path::Path::new("/dev/shm/never.json").exists() && !home.join("page").exists());
}

#[test]
fn ctrl_c_keeps_what_is_measured() {
	let dir = tempfile::tempdir().unwrap();
	let records = dir.path().join("records.json");
	let interrupted_after = |patience: u64| {
		let mut bench = std::process::Command::new(PROGRAM);
		bench
			.env("HOME", dir.path())
			.args(["bench", "creation", "--sizes", "0,8M,32M,64M,128M,256M", "--records"])
			.arg(&records);
		let mut child = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
		// It has waited for whoever else measures once it has a worker.
		while !has_child(child.id()) {
			assert!(child.try_wait().unwrap().is_none(), "it ended without a worker");
			std::thread::sleep(Duration::from_millis(50));
		}
		std::thread::sleep(Duration::from_secs(patience));
		// SAFETY: a signal to our own child.
		assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
		child.wait_with_output().unwrap()
	};
	// How long the first figure takes depends on what else runs: where none is there yet, it gets more time.
	let nothing_yet = |done: &Output| String::from_utf8_lossy(&done.stderr).contains("before anything was measured");
	let done = [3, 9, 27, 81].into_iter().map(interrupted_after).find(|done| !nothing_yet(done)).unwrap();
	assert_eq!(done.status.code(), Some(128 + libc::SIGINT), "{done:?}");
	let text = std::fs::read_to_string(&records).unwrap();
	// Between two sizes no cell ends by it: then it stands among what was left out.
	let said = text.contains("\"interrupted\"") || text.contains("the run was interrupted");
	assert!(said && text.ends_with('\n'), "{}", &text[text.len().saturating_sub(2000)..]);
	assert!(String::from_utf8_lossy(&done.stdout).contains("Records with every sample"));
}

#[test]
fn ctrl_c_before_anything_is_measured_leaves_the_records_of_an_earlier_run() {
	let dir = tempfile::tempdir().unwrap();
	let records = dir.path().join("records.json");
	std::fs::write(&records, "good").unwrap();
	// Not a figure can be there by then: preparing the parents of this size takes longer, wherever it is.
	let mut bench = std::process::Command::new(PROGRAM);
	bench.env("HOME", dir.path()).args(["bench", "creation", "--sizes", "512M", "--records"]).arg(&records);
	let mut child = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
	let status = format!("/proc/{}/status", child.id());
	let catches = |text: &str| {
		let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
		u64::from_str_radix(mask, 16).unwrap() & 1 << (libc::SIGINT - 1) != 0
	};
	while !std::fs::read_to_string(&status).is_ok_and(|text| catches(&text)) {
		assert!(child.try_wait().unwrap().is_none(), "it ended before it caught signals");
		std::thread::sleep(Duration::from_millis(1));
	}
	// SAFETY: a signal to our own child.
	assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
	let done = child.wait_with_output().unwrap();
	let said = String::from_utf8_lossy(&done.stderr);
	assert_eq!((done.status.code(), &done.stdout[..]), (Some(1), &b""[..]), "{said}");
	assert!(said.ends_with("flashfork: interrupted before anything was measured\n"), "{said}");
	assert_eq!(std::fs::read_to_string(&records).unwrap(), "good");
}

fn has_child(pid: u32) -> bool {
	let parent = |stat: String| stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
	let processes = std::fs::read_dir("/proc").unwrap().flatten();
	let mut stats = processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
	stats.any(|stat| parent(stat) == Some(pid))
}

#[test]
fn records_that_could_not_be_written_are_refused_before_measuring() {
	flashfork()
		.args(["bench", "fork", "--sizes", "0", "--records", "/proc/nowhere/records.json"])
		.assert()
		.code(1)
		.stderr(contains("/proc/nowhere"));
	flashfork()
		.args(["bench", "fork", "--sizes", "0", "--records", "/dev/full"])
		.assert()
		.code(1)
		.stdout("")
		.stderr(contains("/dev/full").and(contains("No space left")));
}

/// In /sys nobody makes a file, root included.
#[test]
fn where_records_may_not_be_written_the_cure_is_told() {
	let cure = || contains("/sys/").and(contains("give --records FILE where you may write"));
	let bench = ["bench", "fork", "--sizes", "0"];
	flashfork().args(bench).args(["--records", "/sys/records.json"]).assert().code(1).stderr(cure());
	flashfork().env("XDG_STATE_HOME", "/sys/state").args(bench).assert().code(1).stderr(cure());
}

#[test]
fn records_replace_files_alone() {
	let dir = tempfile::tempdir().unwrap();
	let bench = |place: &std::path::Path| {
		let mut bench = flashfork();
		bench.args(["bench", "fork", "--quick", "--sizes", "0", "--records"]).arg(place);
		bench
	};
	bench(dir.path()).assert().code(1).stdout("").stderr(contains("is a directory"));
	let (link, leads_to) = (dir.path().join("link"), dir.path().join("records.json"));
	std::os::unix::fs::symlink(&leads_to, &link).unwrap();
	// What a link leads to is made where it isn't there, and replaced where it is.
	for _ in 0..2 {
		bench(&link).assert().success();
		assert!(link.is_symlink() && std::fs::read_to_string(&leads_to).unwrap().starts_with('{'));
		std::fs::write(&leads_to, "before").unwrap();
	}
	let fifo = dir.path().join("fifo");
	assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
	let reader = {
		let fifo = fifo.clone();
		std::thread::spawn(move || std::fs::read_to_string(fifo).unwrap())
	};
	bench(&fifo).assert().success();
	assert!(reader.join().unwrap().starts_with('{'));
}

#[test]
fn a_figure_of_what_is_no_record_file_is_refused_and_not_written() {
	let dir = tempfile::tempdir().unwrap();
	let (records, out) = (dir.path().join("records.json"), dir.path().join("out.svg"));
	std::fs::write(&records, "{}").unwrap();
	let mut figure = flashfork();
	figure.args(["bench", "figure"]).arg(&records).arg(&out);
	figure.assert().code(1).stdout("").stderr(contains("names no schema"));
	assert!(!out.exists());
}
