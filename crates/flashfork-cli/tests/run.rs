//! `flashfork run` on real programs. The shim is built here when it isn't there yet.

mod common;

use assert_cmd::Command;
use common::{Before, act, block, forbid, limit};
use predicates::{
	prelude::PredicateBooleanExt,
	str::{contains, ends_with},
};
use std::{
	fs,
	io::{BufRead, BufReader, Read, Write},
	os::unix::{fs::PermissionsExt, process::CommandExt},
	path::Path,
	process::{Child, ChildStdout, Stdio},
	sync::Once,
	time::Duration,
};

/// The command with the shim beside it.
fn run() -> Command {
	let mut command = Command::new(exe());
	command.arg("run").env_remove("LD_PRELOAD");
	command
}

/// The same, to be looked at while it runs.
fn started(arguments: &[&str], change: impl FnOnce(&mut std::process::Command)) -> (Child, BufReader<ChildStdout>) {
	let mut command = std::process::Command::new(exe());
	command.arg("run").args(arguments).env_remove("LD_PRELOAD").stdin(Stdio::piped()).stdout(Stdio::piped());
	change(&mut command);
	let mut child = command.spawn().unwrap();
	let output = BufReader::new(child.stdout.take().unwrap());
	(child, output)
}

fn exe() -> &'static Path {
	static BUILT: Once = Once::new();
	let exe = Path::new(common::flashfork());
	BUILT.call_once(|| common::build(&["flashfork-preload"]));
	exe
}

fn report(command: &mut Command, arguments: &[&str]) -> serde_json::Value {
	let place = tempfile::tempdir().unwrap();
	let file = place.path().join("report.json");
	command.arg("--report").arg(&file).arg("--").args(arguments).assert().success();
	serde_json::from_slice(&fs::read(&file).unwrap()).unwrap()
}

/// Forks 5 times with 40 MB of objects that every clone checks.
const PYTHON: &str = "
import os
objects = [bytes([i % 255 + 1]) * 1000 for i in range(40_000)]
for _ in range(5):
	pid = os.fork()
	if pid == 0:
		os._exit(0 if all(o[0] == i % 255 + 1 for i, o in enumerate(objects)) else 1)
	assert os.waitpid(pid, 0)[1] == 0
";

/// The command needs more stack than many programs do. The program has its caller's limit.
#[test]
fn a_small_stack_is_enough() {
	let script = "ulimit -s 64; exec \"$0\" run --summary sh -c 'ulimit -s; exit 7'";
	let output = std::process::Command::new("sh").args(["-c", script]).arg(exe()).output().unwrap();
	assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"64\n"[..], Some(7)), "{output:?}");
}

#[test]
fn python_is_sealed_and_its_clones_are_right() {
	let report = report(run().args(["--engine", "seal"]), &["/usr/bin/python3", "-c", PYTHON]);
	assert_eq!(report["schema"], "flashfork.run/1");
	assert_eq!(report["forks_after_seal"]["count"], 5);
	assert!(report["sealed_bytes"].as_u64().unwrap() > 30 << 20, "{report}");
}

#[test]
fn engine_fork_seals_nothing() {
	let report = report(run().args(["--engine", "fork"]), &["/usr/bin/python3", "-c", PYTHON]);
	assert_eq!((&report["plain_forks"]["count"], &report["sealed_bytes"]), (&5.into(), &0.into()));
}

#[test]
fn the_summary_is_said_in_a_pipe_when_it_is_asked_for() {
	run().args(["--", "true"]).assert().success().stderr("");
	run().args(["--summary", "--", "true"]).assert().success().stderr("flashfork: no forks\n");
	run()
		.args(["--summary", "--engine", "seal", "--", "/usr/bin/python3", "-c", PYTHON])
		.assert()
		.success()
		.stderr(contains(" MB sealed in ").and(ends_with("(explained in docs/RUN.md)\n")));
	run().args(["--summary", "--quiet", "--", "true"]).assert().code(2);
}

#[test]
fn an_empty_variable_is_none() {
	run().env("FLASHFORK_ENGINE", "").args(["--", "echo", "hello"]).assert().success().stdout("hello\n");
}

#[test]
fn exit_codes_are_passed_on() {
	run().args(["--", "sh", "-c", "exit 7"]).assert().code(7);
	run().args(["--", "sh", "-c", "kill -9 $$"]).assert().interrupted();
	// What a shell goes by, which would not end a loop for a command that ends with 130.
	let mut shell = Command::new("env");
	let script = "\"$0\" run -- sh -c 'kill -INT $$'; echo $?";
	// What runs in the background of a script ignores SIGINT.
	shell
		.args(["--default-signal=INT", "sh", "-c", script])
		.arg(exe())
		.env_remove("LD_PRELOAD")
		.assert()
		.stdout("130\n");
	run().args(["--", "/nonexistent/program"]).assert().code(127).stderr(contains("/nonexistent/program"));
	run().args(["--", "no-such-program"]).assert().code(127).stderr(contains("not found in PATH"));
	run().args(["--", "/etc/passwd"]).assert().code(126).stderr(contains("Permission denied"));
	run().args(["--", "/etc"]).assert().code(126).stderr(contains("can't run '/etc': it is a directory"));
}

#[test]
fn a_program_s_options_are_its_own_with_and_without_dashes() {
	let printf = ["printf", "%s,", "--version", "-x", "--engine", "--", "fork"];
	let printed = "--version,-x,--engine,--,fork,";
	run().args(printf).assert().success().stdout(printed);
	run().arg("--").args(printf).assert().success().stdout(printed);
	run().args(["--engine", "fork"]).args(printf).assert().success().stdout(printed);
	// What comes before the program is the command's.
	run().args(["--enigne", "fork", "true"]).assert().code(2).stderr(contains("--enigne"));
}

#[test]
fn output_and_input_are_the_program_s_own() {
	run().args(["--", "cat"]).write_stdin("in\0out").assert().success().stdout("in\0out").stderr("");
}

#[test]
fn a_static_program_runs_as_it_is() {
	let report = report(&mut run(), &["busybox", "true"]);
	assert_eq!((&report["programs"], &report["shim_loaded"]), (&0.into(), &false.into()));
}

#[test]
fn a_report_that_can_not_be_written_is_found_out_before_the_program_runs() {
	let assert = run().args(["--report", "/proc/nowhere/report.json", "--", "echo", "ran"]).assert();
	assert.code(1).stdout("").stderr(contains("/proc/nowhere/report.json"));
}

#[test]
fn a_report_s_directory_must_be_there() {
	let place = tempfile::tempdir().unwrap();
	let report = place.path().join("new/report.json");
	let says = format!(
		"flashfork: can't write {}: there is no directory {}\n",
		report.display(),
		report.parent().unwrap().display()
	);
	run().arg("--report").arg(&report).args(["--", "echo", "ran"]).assert().code(1).stdout("").stderr(says);
	assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
}

/// On kernels without on-demand fork: one line, and the program runs as it would with plain forks.
#[test]
fn engine_odf_forks_on_demand_or_says_why_not_and_forks_plainly() {
	let place = tempfile::tempdir().unwrap();
	let file = place.path().join("report.json");
	let mut command = run();
	command.args(["--engine", "odf", "--report"]).arg(&file).args(["--", "/usr/bin/python3", "-c", PYTHON]);
	let output = command.output().unwrap();
	assert!(output.status.success());
	let report: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
	let said = String::from_utf8(output.stderr).unwrap();
	let counts = (&report["forks_on_demand"]["count"], &report["plain_forks"]["count"]);
	if said.is_empty() {
		assert_eq!((report["engine"].as_str(), counts), (Some("odf"), (&5.into(), &0.into())));
	} else {
		assert_eq!((said.lines().count(), counts), (1, (&0.into(), &5.into())), "{said}");
		assert!(said.contains("engine odf") && said.contains("forks stay plain"), "{said}");
	}
}

#[test]
fn no_directory_for_temporary_files_is_needed() {
	let place = tempfile::tempdir().unwrap();
	let read_only = place.path().join("read-only");
	fs::create_dir(&read_only).unwrap();
	fs::set_permissions(&read_only, fs::Permissions::from_mode(0o500)).unwrap();
	let file = place.path().join("file");
	fs::write(&file, "").unwrap();
	for directory in [place.path().join("missing"), read_only, file, "/proc".into()] {
		let report = report(run().env("TMPDIR", directory), &["echo", "ran"]);
		assert_eq!((&report["programs"], &report["exit_code"]), (&1.into(), &0.into()));
	}
	// One that is full: its own file system, where that can be made.
	let full = place.path().join("full");
	fs::create_dir(&full).unwrap();
	let script = "mount -t tmpfs -o size=16k none \"$1\" || exit 77; head -c 1M /dev/zero > \"$1/filler\"; \
				  export TMPDIR=\"$1\"; shift; exec \"$@\"";
	let output = std::process::Command::new("unshare")
		.args(["--mount", "sh", "-c", script, "sh"])
		.args([&full, exe()])
		.args(["run", "--", "echo", "ran"])
		.output()
		.unwrap();
	let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
	let made = output.status.code() != Some(77) && !complained.contains("unshare");
	assert!(!made || (output.status.success() && said == "ran\n"), "{said}{complained}");
}

#[test]
fn a_program_runs_where_no_statistics_can_be_kept() {
	let mut command = std::process::Command::new(exe());
	command.args(["run", "--", "echo", "ran"]).stdout(Stdio::piped());
	let output = command.before(|| limit(libc::RLIMIT_FSIZE, 0, 0)).output().unwrap();
	let said = String::from_utf8_lossy(&output.stderr);
	assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"ran\n"[..]), "{said}");
	assert!(said.lines().count() == 1 && said.contains("statistics are missing"), "{said}");
}

#[test]
fn a_run_that_is_killed_leaves_no_file_and_the_older_report() {
	let place = tempfile::tempdir().unwrap();
	let report = place.path().join("report.json");
	fs::write(&report, "older").unwrap();
	let arguments = ["--report", report.to_str().unwrap(), "--", "sh", "-c", "echo ready; read x"];
	let (mut child, mut output) = started(&arguments, |command| _ = command.env("TMPDIR", place.path()));
	let mut line = String::new();
	output.read_line(&mut line).unwrap();
	assert_eq!((line.as_str(), fs::read_to_string(&report).unwrap().as_str()), ("ready\n", "older"));
	child.kill().unwrap();
	child.wait().unwrap();
	let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
	assert_eq!(left, ["report.json"]);
	assert_eq!(fs::read_to_string(&report).unwrap(), "older");
	// One that ends is there whole, with the rights of the older.
	fs::set_permissions(&report, fs::Permissions::from_mode(0o600)).unwrap();
	run().arg("--report").arg(&report).args(["--", "true"]).assert().success();
	assert!(fs::read_to_string(&report).unwrap().ends_with("}\n"));
	assert_eq!(report.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_report_goes_into_what_is_no_file() {
	let output = run().args(["--report", "/dev/stdout", "--", "true"]).output().unwrap();
	let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
	assert_eq!(report["programs"], 1);
}

#[test]
fn a_report_to_standard_output_takes_nothing_from_what_the_program_wrote_there() {
	let place = tempfile::tempdir().unwrap();
	let (out, link, made) = (place.path().join("out"), place.path().join("link"), place.path().join("made"));
	let file = fs::File::create(&out).unwrap();
	let mut command = std::process::Command::new(exe());
	command.args(["run", "--report", "/dev/stdout", "--", "echo", "written before"]).env_remove("LD_PRELOAD");
	assert!(command.stdout(file).status().unwrap().success());
	let text = fs::read_to_string(&out).unwrap();
	let (first, report) = text.split_once('\n').unwrap();
	let report: serde_json::Value = serde_json::from_str(report).unwrap();
	assert_eq!((first, &report["programs"]), ("written before", &1.into()));
	// And a link that leads to nothing yet is followed.
	std::os::unix::fs::symlink("made", &link).unwrap();
	run().arg("--report").arg(&link).args(["--", "true"]).assert().success();
	assert!(link.is_symlink() && fs::read_to_string(&made).unwrap().contains("programs"));
}

fn signals(program: &mut std::process::Command, ignored: &'static [i32], blocked: &'static [i32]) -> String {
	program.args(["grep", "-E", "Sig(Ign|Blk|Pnd)|ShdPnd", "/proc/self/status"]);
	program.before(move || {
		block(blocked);
		(1..32).for_each(|signal| act(&[signal], libc::SIG_DFL));
		act(ignored, libc::SIG_IGN);
	});
	let output = program.output().unwrap();
	assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
	String::from_utf8(output.stdout).unwrap()
}

#[test]
fn signals_are_ignored_and_blocked_as_without_the_command() {
	use libc::{SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
	let sets: [(&[i32], &[i32]); 4] = [
		(&[], &[]),
		// nohup, and the background of a script.
		(&[SIGHUP], &[]),
		(&[SIGINT, SIGQUIT, SIGPIPE], &[SIGUSR1]),
		(&[SIGHUP, SIGTERM, SIGCHLD, SIGUSR2], &[SIGCHLD, SIGTERM]),
	];
	for (ignored, blocked) in sets {
		let mut ours = std::process::Command::new(exe());
		ours.args(["run", "--"]);
		let plain = signals(&mut std::process::Command::new("env"), ignored, blocked);
		assert_eq!(signals(&mut ours, ignored, blocked), plain, "{ignored:?} {blocked:?}");
	}
}

/// What a program says, and how it ends, that is started with this action for a signal, when the command is sent that.
fn said_when_sent(program: &[&str], number: i32, action: libc::sighandler_t) -> (String, Option<i32>) {
	let (mut child, mut output) = started(program, |command| {
		command.before(move || act(&[number], action));
	});
	let mut text = String::new();
	output.read_line(&mut text).unwrap();
	// SAFETY: takes numbers.
	unsafe { libc::kill(i32::try_from(child.id()).unwrap(), number) };
	output.read_to_string(&mut text).unwrap();
	(text, child.wait().unwrap().code())
}

#[test]
fn a_signal_to_the_command_alone_reaches_the_program() {
	let script = "for s in HUP INT QUIT TERM USR1 USR2; do trap \"echo $s; exit 3\" $s; done; \
				  echo ready; while :; do sleep 0.01; done";
	for (number, name) in [
		(libc::SIGHUP, "HUP"),
		(libc::SIGINT, "INT"),
		(libc::SIGQUIT, "QUIT"),
		(libc::SIGTERM, "TERM"),
		(libc::SIGUSR1, "USR1"),
		(libc::SIGUSR2, "USR2"),
	] {
		// What runs in the background of a script ignores some.
		let said = said_when_sent(&["--", "sh", "-c", script], number, libc::SIG_DFL);
		assert_eq!(said, (format!("ready\n{name}\n"), Some(3)));
	}
}

/// A script's background ignores SIGINT, and what runs there under nohup SIGHUP; a server has its own handlers.
#[test]
fn an_ignored_signal_reaches_a_program_that_handles_it() {
	// A signal that comes just before pause(2) would be handled after it.
	let code = "import signal, sys, time\nfor s in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):\n  signal.signal(s, lambda n, _: (print(n), sys.exit(3)))\n\
				print('ready', flush=True)\nwhile True: time.sleep(0.01)";
	for number in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
		let said = said_when_sent(&["--", "/usr/bin/python3", "-c", code], number, libc::SIG_IGN);
		assert_eq!(said, (format!("ready\n{number}\n"), Some(3)));
	}
}

/// Some sandboxes have no descriptors of processes (`pidfd_open(2)`).
#[test]
fn a_program_runs_where_a_filter_forbids_pidfd_open() {
	let (mut child, mut output) = started(&["--quiet", "--", "sh", "-c", "echo ran; exit 3"], |command| {
		command.before(|| forbid(libc::SYS_pidfd_open, libc::EPERM));
	});
	let mut text = String::new();
	output.read_to_string(&mut text).unwrap();
	assert_eq!((text.as_str(), child.wait().unwrap().code()), ("ran\n", Some(3)));
}

#[test]
fn a_stopped_program_is_shown_and_continued() {
	for (name, signal) in [("STOP", libc::SIGSTOP), ("TSTP", libc::SIGTSTP)] {
		let script = format!("echo ready; kill -{name} $$; echo on; exit 3");
		let (mut child, mut output) = started(&["--", "sh", "-c", &script], |command| {
			// SIGTSTP stops nobody in a group that no shell watches over.
			command.process_group(0);
		});
		let pid = i32::try_from(child.id()).unwrap();
		let mut status = 0;
		let shown = (0..6000).any(|_| {
			std::thread::sleep(Duration::from_millis(10));
			// SAFETY: asks about a child of this process, which is not waited for meanwhile.
			unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED | libc::WNOHANG) == pid }
		});
		assert!(shown, "{name}: nobody is told");
		assert!(libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == signal, "{name}: {status:#x}");
		// SAFETY: takes numbers.
		unsafe { libc::kill(pid, libc::SIGCONT) };
		let mut text = String::new();
		output.read_to_string(&mut text).unwrap();
		assert_eq!((text.as_str(), child.wait().unwrap().code()), ("ready\non\n", Some(3)));
	}
}

/// Which standard streams a program has that is started without some.
fn streams_seen(mut command: std::process::Command, closed: &'static [i32]) -> String {
	let place = tempfile::tempdir().unwrap();
	let seen = place.path().join("seen");
	let script = "n=; for s in 0 1 2; do [ -e /proc/$$/fd/$s ] && n=$n$s; done; echo \"$n\" > \"$0\"";
	command.args(["-c", script]).arg(&seen).env_remove("LD_PRELOAD");
	// SAFETY: takes a number.
	command.before(move || closed.iter().for_each(|stream| unsafe { assert_eq!(libc::close(*stream), 0) }));
	assert!(command.status().unwrap().success(), "{closed:?}");
	fs::read_to_string(&seen).unwrap()
}

#[test]
fn streams_that_are_closed_are_closed_in_the_program() {
	for closed in [&[][..], &[0], &[1], &[2], &[0, 2], &[0, 1, 2]] {
		let mut command = std::process::Command::new(exe());
		command.args(["run", "--", "sh"]);
		let plain: String = (0..3).filter(|stream| !closed.contains(stream)).map(|stream| stream.to_string()).collect();
		assert_eq!(streams_seen(std::process::Command::new("sh"), closed), format!("{plain}\n"));
		assert_eq!(streams_seen(command, closed), format!("{plain}\n"));
	}
}

#[test]
fn a_program_that_can_not_count_says_nothing() {
	// What it starts when the command has ended, and what a program does that may not open its statistics any more.
	let place = tempfile::tempdir().unwrap();
	let said = place.path().join("said");
	let script = format!(
		"exec 2>{0} 4<&0; (trap '' HUP TERM; read x <&4; /bin/true; echo done > {0}.end) & exec >&-; echo ready >&3; exec 3>&-",
		said.display()
	);
	let mut command = std::process::Command::new("sh");
	command.arg("-c").arg("exec 3>&1; exec \"$@\"").arg("sh").arg(exe()).args(["run", "--", "sh", "-c", &script]);
	let mut child = command.env_remove("LD_PRELOAD").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
	let mut line = String::new();
	BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
	let mut input = child.stdin.take().unwrap();
	assert!(child.wait().unwrap().success());
	input.write_all(b"go\n").unwrap();
	let end = place.path().join("said.end");
	while !end.exists() {
		std::thread::sleep(std::time::Duration::from_millis(5));
	}
	assert_eq!(fs::read_to_string(said).unwrap(), "");
}

/// Forks three times from C; Go's runtime calls the kernel itself.
const GO: &str = r#"package main

/*
#include <sys/wait.h>
#include <unistd.h>
static int clone_ends_well(void) {
	int status = 1;
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	return waitpid(pid, &status, 0) == pid && status == 0;
}
*/
import "C"

func main() {
	for i := 0; i < 3; i++ {
		if C.clone_ends_well() != 1 {
			panic("the clone")
		}
	}
}
"#;

#[test]
fn a_program_of_go_is_refused_by_name() {
	let place = tempfile::tempdir().unwrap();
	let (source, program) = (place.path().join("forks.go"), place.path().join("forks"));
	fs::write(&source, GO).unwrap();
	let mut go = std::process::Command::new("go");
	go.args(["build", "-o"])
		.arg(&program)
		.arg(&source)
		.env("CGO_ENABLED", "1")
		.env("GOCACHE", place.path().join("cache"));
	match go.status() {
		Err(e) => return eprintln!("left out: there is no go: {e}"),
		Ok(status) => assert!(status.success(), "go builds it"),
	}
	// Its runtime has threads: they are not what speaks against a seal.
	let report = report(run().args(["--engine", "seal", "--threads"]), &[program.to_str().unwrap()]);
	assert_eq!((&report["sealed_bytes"], &report["plain_forks"]["count"]), (&0.into(), &3.into()), "{report}");
	assert_eq!(report["culprit"]["file"], program.to_str().unwrap());
	assert!(report["culprit"]["what"].as_str().unwrap().contains("Go"), "{report}");
}

#[test]
fn the_environment_is_the_options_default() {
	let forks = ["sh", "-c", "(:); (:)"];
	let of_the_environment = report(run().env("FLASHFORK_ENGINE", "fork"), &forks);
	assert_eq!(of_the_environment["engine"], "fork");
	let given = report(run().env("FLASHFORK_ENGINE", "fork").args(["--engine", "seal"]), &forks);
	assert_eq!(given["engine"], "seal");
	let output = run().env("FLASHFORK_ENGINE", "nonsense").args(["--", "true"]).output().unwrap();
	assert_eq!(output.status.code(), Some(2));
	assert!(String::from_utf8_lossy(&output.stderr).contains("nonsense"));
}

#[test]
fn a_wrong_variable_is_said_once_in_a_tree_of_programs() {
	let place = tempfile::tempdir().unwrap();
	let no_statistics = place.path().join("statistics");
	fs::write(&no_statistics, "").unwrap();
	// The shell as the first program: it has its own `setenv`.
	let script = "/bin/true; sh -c '(:); /bin/true; env'; env";
	let mut tree = std::process::Command::new("bash");
	tree.args(["-c", script]).env("LD_PRELOAD", exe().with_file_name("libflashfork_preload.so"));
	tree.env("FLASHFORK_ENGINE", "warp").env("FLASHFORK_THREADS", "go").env("FLASHFORK_STATS", &no_statistics);
	let output = tree.output().unwrap();
	let (shown, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
	assert!(output.status.success(), "{said}");
	for variable in ["FLASHFORK_ENGINE", "FLASHFORK_THREADS", "FLASHFORK_STATS"] {
		assert_eq!(said.matches(variable).count(), 1, "{said}");
	}
	for means in ["FLASHFORK_ENGINE=fork\n", "FLASHFORK_THREADS=refuse\n", "FLASHFORK_STATS=\n"] {
		assert_eq!(shown.matches(means).count(), 2, "{shown}");
	}
}

#[test]
fn a_device_that_stands_against_a_seal_is_named() {
	let devices =
		["/dev/mem", "/dev/loop-control", "/dev/rtc0", "/dev/hpet", "/dev/vga_arbiter", "/dev/hwrng", "/dev/uinput"];
	let Some(device) = devices.into_iter().find(|device| fs::File::open(device).is_ok()) else {
		return eprintln!("left out: there is no device here that may be opened");
	};
	let script = format!("exec 9<{device}; (:); (:)");
	let report = report(run().args(["--engine", "seal"]), &["sh", "-c", &script]);
	assert_eq!((&report["sealed_bytes"], &report["device"]), (&0.into(), &device.into()), "{report}");
}

fn compiled(place: &Path, text: &str, option: &str) -> String {
	let (source, program) = (place.join("a.c"), place.join("a"));
	fs::write(&source, text).unwrap();
	let mut cc = std::process::Command::new("cc");
	assert!(cc.args(["-g", option, "-o"]).args([&program, &source]).status().unwrap().success());
	program.to_str().unwrap().into()
}

#[test]
fn a_program_of_gcc_with_address_sanitizer_runs_and_is_warmed_and_finds_errors() {
	let place = tempfile::tempdir().unwrap();
	let text = "#include <stdio.h>\n#include <stdlib.h>\nint main(int argc, char **argv) {\n\
				char *p = calloc(8, 1); puts(getenv(\"ASAN_OPTIONS\")); fflush(stdout); return p[8 * (argc - 1)]; }\n";
	let program = &compiled(place.path(), text, "-fsanitize=address");
	run().args(["--", program]).env("ASAN_OPTIONS", "detect_leaks=0:exitcode=0").assert().success().stderr("");
	let found = run().args(["--", program, "x"]).env("ASAN_OPTIONS", "exitcode=42").assert();
	found.code(42).stdout(contains("exitcode=42")).stderr(contains("heap-buffer-overflow"));
	let command = |words: &[&str]| {
		let mut command = Command::new(common::flashfork());
		command.args(words).env("XDG_RUNTIME_DIR", place.path()).env("ASAN_OPTIONS", "exitcode=42").assert()
	};
	command(&["warm", "t", "--", program]).success();
	command(&["clone", "t", "x"]).code(42).stdout("exitcode=42\n").stderr(contains("heap-buffer-overflow"));
	command(&["rm", "t"]).success();
}

#[test]
fn forks_after_a_seal_that_came_to_nothing_are_plain() {
	let place = tempfile::tempdir().unwrap();
	let text = "#include <pthread.h>\n#include <sys/mman.h>\n#include <string.h>\n#include <unistd.h>\n
static void *idle(void *x) { for (;;) pause(); }
int main(void) {
	void *stack = memset(mmap(0, 2 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 2 << 20);
	pthread_attr_t a; pthread_attr_init(&a); pthread_attr_setstack(&a, stack, 2 << 20);
	pthread_t t; pthread_create(&t, &a, idle, 0); if (!fork()) _exit(0);
}";
	let program = &compiled(place.path(), text, "-pthread");
	let report = report(run().args(["--engine", "seal", "--threads"]), &[program]);
	assert_eq!(report["forks_after_seal"]["count"].as_u64() > Some(0), report["seals"].as_u64() > Some(0), "{report}");
}

#[test]
fn a_fork_with_a_terminal_counts() {
	let script = "
import os
for fork in os.fork, os.forkpty, os.forkpty:
	made = fork()
	pid = made if fork is os.fork else made[0]
	pid or os._exit(0)
	assert os.waitpid(pid, 0)[1] == 0
";
	let report = report(run().args(["--engine", "seal"]), &["/usr/bin/python3", "-c", script]);
	let count = |forks: &str| report[forks]["count"].as_u64().unwrap();
	assert_eq!(count("plain_forks") + count("forks_after_seal"), 3, "{report}");
}

#[test]
fn a_program_under_valgrind_forks_as_ever() {
	let forks =
		"my $x = 'x' x 50_000_000; for (1 .. 3) { exit 3 unless my $pid = fork; waitpid $pid, 0; print $? >> 8 }";
	for threads in [&[][..], &["--threads"]] {
		let mut run = run();
		run.args(["--engine", "seal"]).args(threads).args(["--", "valgrind", "--tool=none", "-q"]);
		run.args(["/usr/bin/perl", "-e", forks]).assert().success().stdout("333").stderr("");
	}
}

#[test]
fn programs_that_a_sealed_one_starts_have_the_plain_filter_of_core_dumps() {
	let script = "
import os, subprocess
objects = [bytes([i % 255 + 1]) * 1000 for i in range(40_000)]
show = ['/bin/cat', '/proc/self/coredump_filter']
if os.fork() == 0:
	os.execv(show[0], show)
os.wait()
print(subprocess.run(show, capture_output=True, text=True).stdout, flush=True)
os.waitpid(os.posix_spawn(show[0], show, os.environ), 0)
os.system(' '.join(show))
";
	let plain = std::process::Command::new("/usr/bin/python3").args(["-c", script]).output().unwrap();
	let sealed = run().args(["--engine", "seal", "--", "/usr/bin/python3", "-c", script]).output().unwrap();
	assert_eq!(String::from_utf8_lossy(&sealed.stdout), String::from_utf8_lossy(&plain.stdout));
	assert_eq!(plain.stdout.split(|b| *b == b'\n').filter(|line| !line.is_empty()).count(), 4);
	let own = "import os; x = b'x' * 50_000_000; os.fork() or os._exit(0); os.wait(); print(open('/proc/self/coredump_filter').read())";
	let own = run().args(["--engine", "seal", "--", "/usr/bin/python3", "-c", own]).output().unwrap();
	let filter = u64::from_str_radix(String::from_utf8_lossy(&own.stdout).trim(), 16).unwrap();
	assert_ne!(filter & 4, 0, "core dumps of a sealed program contain sealed memory: {filter:x}");
}
