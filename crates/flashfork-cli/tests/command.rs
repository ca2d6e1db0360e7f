//! The command as a user types it.

mod common;

use assert_cmd::Command;
use predicates::{
	prelude::*,
	str::{contains, ends_with, starts_with},
};
use std::{fs, path::Path, process::Stdio, sync::Once, time::Duration};

/// The command with its other programs beside it, which are built here when they are not there yet.
fn flashfork() -> Command {
	static BUILT: Once = Once::new();
	let command = Path::new(common::flashfork());
	BUILT.call_once(|| {
		if !["flashfork-bench", "flashfork-serve"].iter().all(|name| command.with_file_name(name).is_file()) {
			common::build(&["flashfork-bench", "flashfork-serve"]);
		}
	});
	let mut command = Command::new(command);
	command.env_remove("LD_PRELOAD");
	command
}

#[test]
fn wrong_usage_is_exit_2_and_the_usage_line() {
	for args in [
		&["nonsense"][..],
		&["run"],
		&["run", "--engine", "warp", "--", "true"],
		&["advise"],
		&["advise", "0"],
		&["advise", "12", "--", "true"],
		&["lab", "run", "--kernel", "2.6", "--", "true"],
		&["doctor", "--fix"],
	] {
		let usage_or_value = contains("Usage:").or(contains("invalid value"));
		flashfork().args(args).assert().code(2).stdout("").stderr(usage_or_value);
	}
}

#[test]
fn every_command_has_help_with_an_example() {
	for args in [&["doctor"][..], &["run"], &["advise"], &["lab", "run"], &["completions"], &["man"]] {
		flashfork().args(args).arg("--help").assert().success().stdout(contains("Example: flashfork"));
	}
}

#[test]
fn scan_says_what_is_no_program_and_shows_what_it_found_in_the_rest() {
	let place = tempfile::tempdir().unwrap();
	let (text, empty) = (place.path().join("text"), place.path().join("empty"));
	fs::write(&text, "no program\n").unwrap();
	fs::create_dir(&empty).unwrap();
	let program = common::flashfork();
	let no_object = format!("flashfork: {} is no program or library for x86-64 (ELF)\n", text.display());
	for option in ["--json", "--time"] {
		flashfork().args(["scan", option]).arg(&text).assert().code(1).stderr(no_object.clone());
	}
	flashfork().arg("scan").arg(&text).assert().code(1).stdout("").stderr(no_object.clone());
	flashfork()
		.arg("scan")
		.args([&text, Path::new(program)])
		.assert()
		.code(1)
		.stdout(contains(program))
		.stderr(no_object);
	flashfork().arg("scan").arg(program).assert().success().stdout(contains(program)).stderr("");
	let none = format!("flashfork: there is no program or shared object below {}\n", empty.display());
	flashfork().arg("scan").arg(&empty).assert().code(1).stdout("").stderr(none);
	let missing = contains("can't read").and(contains("missing"));
	flashfork().arg("scan").arg(place.path().join("missing")).assert().code(1).stdout("").stderr(missing);
}

#[test]
fn bench_is_a_program_of_its_own_that_speaks_as_this_one() {
	let about = "Run an experiment and keep every sample in a record file, or draw such a file";
	flashfork().arg("--help").assert().success().stdout(contains(format!("bench        {about}\n")));
	flashfork().args(["bench", "--help"]).assert().success().stdout(starts_with(format!("{about}\n")));
	let fork = contains("Usage: flashfork bench fork [OPTIONS]\n");
	flashfork().args(["bench", "fork", "--help"]).assert().success().stdout(fork.clone());
	flashfork().args(["help", "bench", "fork"]).assert().success().stdout(fork);
	let usage = contains("Usage: flashfork bench <COMMAND>\n");
	flashfork().arg("bench").assert().code(2).stdout("").stderr(usage);
	flashfork()
		.args(["bench", "fork", "--sizes", "a lot"])
		.assert()
		.code(2)
		.stdout("")
		.stderr(contains("invalid value"));
	// A failure there is one here.
	let nothing = "flashfork: can't read /no/such.json: No such file or directory (os error 2)\n";
	flashfork().args(["bench", "figure", "/no/such.json", "out.svg"]).assert().code(1).stdout("").stderr(nothing);
}

/// As bash asks: the words of the line, and which of them is typed.
fn completed(line: &[&str]) -> Vec<String> {
	let mut ask = flashfork();
	ask.env("FLASHFORK_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (line.len() - 1).to_string());
	ask.env("_CLAP_IFS", "\n").arg("--").args(line);
	let output = ask.assert().success().get_output().stdout.clone();
	String::from_utf8(output).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn completions_go_on_in_bench() {
	assert_eq!(completed(&["flashfork", "benc"]), ["bench"]);
	assert_eq!(completed(&["flashfork", "bench", "write-f"]), ["write-fraction"]);
	assert_eq!(completed(&["flashfork", "bench", "fork", "--siz"]), ["--sizes"]);
	assert_eq!(completed(&["flashfork", "adv"]), ["advise"]);
}

#[test]
fn where_bench_is_not_installed_the_cure_is_told() {
	let place = tempfile::tempdir().unwrap();
	let alone = place.path().join("flashfork");
	for name in ["flashfork", "flashfork-cli"] {
		common::copy(&Path::new(common::flashfork()).with_file_name(name), &place.path().join(name));
	}
	let cure = "build it with `cargo build --release -p flashfork-bench` or install with `make install`\n";
	let said = || starts_with("flashfork: flashfork-bench is neither in ").and(ends_with(cure));
	for line in [&["bench"][..], &["bench", "fork", "--help"], &["man", "pages"]] {
		let mut bench = Command::new(&alone);
		bench.current_dir(place.path()).args(line).assert().code(1).stdout("").stderr(said());
	}
	Command::new(&alone).arg("--help").assert().success().stdout(contains("  bench  "));
}

#[test]
fn where_the_launcher_is_alone_the_cure_is_told() {
	let place = tempfile::tempdir().unwrap();
	let alone = place.path().join("flashfork");
	common::copy(Path::new(common::flashfork()), &alone);
	let here = fs::canonicalize(place.path()).unwrap();
	let said = format!(
		"flashfork: flashfork-cli is neither in {} nor where `make install` puts it; build it with `cargo build \
		 --release -p flashfork-cli` or install with `make install`\n",
		here.display()
	);
	for line in [&["--help"][..], &["clone", "nobody"]] {
		Command::new(&alone).args(line).assert().code(1).stdout("").stderr(said.clone());
	}
	fs::write(place.path().join("flashfork-cli"), "").unwrap();
	Command::new(&alone).assert().code(1).stderr("flashfork: can't run flashfork-cli: os error 13\n");
	fs::remove_file(place.path().join("flashfork-cli")).unwrap();
	// As `make install` puts it, and by a link to that.
	let [bin, lib] = ["usr/bin", "usr/lib/flashfork"].map(|name| place.path().join(name));
	fs::create_dir_all(&bin).unwrap();
	fs::create_dir_all(&lib).unwrap();
	common::copy(&Path::new(common::flashfork()).with_file_name("flashfork-cli"), &lib.join("flashfork-cli"));
	fs::rename(&alone, bin.join("flashfork")).unwrap();
	std::os::unix::fs::symlink(bin.join("flashfork"), &alone).unwrap();
	for command in [alone, bin.join("flashfork")] {
		Command::new(command).arg("--help").assert().success().stdout(contains("Usage: flashfork <COMMAND>"));
	}
}

#[test]
fn a_process_that_is_gone_gets_no_advice() {
	let home = tempfile::tempdir().unwrap();
	let mut advise = flashfork();
	advise.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").args(["advise", "2147483646"]);
	advise.assert().code(1).stdout("").stderr("flashfork: there is no process 2147483646\n");
	let mut ended = flashfork();
	ended.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").args(["advise", "--", "false"]);
	let says = "flashfork: false ended (exit status: 1) before it was looked at; choose a smaller --after\n";
	ended.assert().code(1).stdout("").stderr(says);
	let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
	let mut advise = flashfork();
	advise.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").args(["advise", &child.id().to_string()]);
	advise.assert().success().stdout(contains("Change nothing").and(contains("sleep")));
	child.kill().unwrap();
	child.wait().unwrap();
}

fn state(pid: u32) -> Option<char> {
	let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
	text.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn a_process_that_is_looked_at_goes_on_when_the_one_who_looks_is_killed() {
	let home = tempfile::tempdir().unwrap();
	let pause = || std::thread::sleep(Duration::from_micros(200));
	let send = |pid: u32, signal| {
		// SAFETY: a signal to a child of ours that has not been waited for.
		assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
	};
	// Memory that takes a while to copy; its stop is seen, and the look is stopped in the midst of it.
	let script = "m = b'x' * (256 << 20); print(flush=True); input()";
	let mut target = std::process::Command::new("python3");
	let mut target = target.args(["-S", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
	std::io::Read::read_exact(target.stdout.as_mut().unwrap(), &mut [0]).unwrap();
	let look = || {
		let mut advise = std::process::Command::new(common::flashfork());
		advise.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").args(["advise", "--watch", "0.1"]);
		advise.arg(target.id().to_string()).stdout(Stdio::null()).spawn().unwrap()
	};
	let (mut advise, mut looks) = (look(), 1);
	loop {
		if advise.try_wait().unwrap().is_some() {
			// The processor was elsewhere while the process was stopped: it is looked at again.
			assert!(looks < 100, "it was never seen with a stopped process");
			(advise, looks) = (look(), looks + 1);
		}
		if state(target.id()) == Some('T') {
			send(advise.id(), libc::SIGSTOP);
			while state(advise.id()) != Some('T') {
				pause();
			}
			if state(target.id()) == Some('T') {
				break;
			}
			send(advise.id(), libc::SIGCONT);
		}
		pause();
	}
	send(advise.id(), libc::SIGKILL);
	advise.wait().unwrap();
	let begin = std::time::Instant::now();
	while state(target.id()) == Some('T') && begin.elapsed() < Duration::from_secs(120) {
		pause();
	}
	let found = state(target.id());
	target.kill().unwrap();
	target.wait().unwrap();
	assert!(matches!(found, Some('S' | 'R')), "{found:?}");
}

#[test]
fn doctor_speaks_json() {
	let out = flashfork().args(["doctor", "--json"]).output().unwrap();
	let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
	assert_eq!(value["schema"], "flashfork.doctor/1");
	assert!(value["host"]["capabilities"].as_array().unwrap().len() > 5);
	// Null where the daemon isn't installed.
	let kvm = &value["vm"]["kvm"];
	assert!(kvm.is_null() || ["linux", "tiny", "none", "untried"].map(Some).contains(&kvm.as_str()), "{kvm}");
	assert!(!value["vm"]["detail"].as_str().unwrap().is_empty());
}

#[test]
fn doctor_ends_in_a_conclusion() {
	for options in [&["doctor"][..], &["doctor", "--calibrate"]] {
		let home = tempfile::tempdir().unwrap();
		let out = flashfork().env("HOME", home.path()).env_remove("XDG_CACHE_HOME").args(options).output().unwrap();
		let text = String::from_utf8(out.stdout).unwrap();
		let last = text.lines().last().unwrap();
		assert!(last.starts_with("In short: ") && last.ends_with('.'), "{text}");
		assert_eq!(last.contains("`flashfork run -- PROGRAM`"), out.status.success(), "{text}");
	}
}

#[test]
fn completions_and_man_pages_are_made() {
	for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
		flashfork().args(["completions", shell]).assert().success().stdout(contains("FLASHFORK_COMPLETE"));
	}
	let dir = tempfile::tempdir().unwrap();
	flashfork().arg("man").arg(dir.path()).assert().success();
	flashfork().arg("man").arg(dir.path().join("made")).assert().success();
	let missing = dir.path().join("missing");
	flashfork().arg("man").arg(missing.join("pages")).assert().failure().stderr(contains("make it first"));
	assert!(!missing.exists());
	let warm = ["flashfork-warm.1", "flashfork-clone.1", "flashfork-ls.1", "flashfork-rm.1"];
	for page in
		["flashfork.1", "flashfork-run.1", "flashfork-bench-fork.1", "flashfork-lab-run.1"].into_iter().chain(warm)
	{
		assert!(fs::read_to_string(dir.path().join(page)).unwrap().contains(".SH SYNOPSIS"), "{page}");
	}
	let text = fs::read_to_string(dir.path().join("flashfork-run.1")).unwrap().replace("\\-", "-");
	for part in
		[".SH ENVIRONMENT", "FLASHFORK_ENGINE", "never seal; forks are counted", ".SH \"SEE ALSO\"", "flashfork\\fR(1)"]
	{
		assert!(text.contains(part), "{part}: {text}");
	}
	let text = fs::read_to_string(dir.path().join("flashfork.1")).unwrap().replace("\\-", "-");
	assert!(text.contains("flashfork-warm\\fR(1)"), "{text}");
}

/// The usage line of `--help`, and the synopsis of the man page.
#[test]
fn usage_and_man_page_show_where_a_program_begins() {
	let pages = tempfile::tempdir().unwrap();
	flashfork().arg("man").arg(pages.path()).assert().success();
	for (command, usage) in [
		("run", "[OPTIONS] [--] <COMMAND>..."),
		("warm", "[OPTIONS] <NAME> [--] <COMMAND>..."),
		("lab run", "[OPTIONS] [--] <COMMAND>..."),
		("vm run", "[OPTIONS] [--] <COMMAND>..."),
		("vm exec", "[OPTIONS] <NAME> [--] <COMMAND>..."),
		("advise", "[OPTIONS] -- <COMMAND>..."),
		("bench write-fraction", "[OPTIONS] [-- <COMMAND>...]"),
	] {
		let help = flashfork().args(command.split(' ')).arg("--help").assert().success();
		help.stdout(contains(format!("flashfork {command} {usage}\n")));
		let page = format!("flashfork-{}.1", command.replace(' ', "-"));
		let page = fs::read_to_string(pages.path().join(page)).unwrap().replace("\\-", "-");
		assert!(page.contains(&format!("{usage}\n")), "{page}");
	}
}

#[test]
fn advise_says_what_to_give() {
	let examples = contains("Usage: flashfork advise [OPTIONS] <PID>").and(contains("Example: flashfork advise 4711"));
	flashfork().arg("advise").assert().code(2).stdout("").stderr(examples);
	let tip = contains("put `--` before a command");
	flashfork().args(["advise", "python3"]).assert().code(2).stdout("").stderr(tip);
	let usage = contains("flashfork advise [OPTIONS] -- <COMMAND>...");
	flashfork().args(["advise", "python3", "server.py"]).assert().code(2).stdout("").stderr(usage);
}

#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_a_quiet_end() {
	for args in [&["doctor"][..], &["doctor", "--json"], &["completions", "bash"]] {
		let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
		let out = std::process::Command::new(common::flashfork()).args(args).stdout(full).output().unwrap();
		assert_eq!(out.status.code(), Some(1), "{args:?}");
		assert!(String::from_utf8_lossy(&out.stderr).contains("can't write standard output"), "{args:?}");
		let (reader, writer) = std::io::pipe().unwrap();
		drop(reader);
		let out = std::process::Command::new(common::flashfork()).args(args).stdout(writer).output().unwrap();
		assert_eq!(String::from_utf8_lossy(&out.stderr), "", "{args:?}");
	}
}
