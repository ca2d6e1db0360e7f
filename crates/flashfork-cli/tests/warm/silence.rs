//! Templates that don't answer, and commands interrupted while they wait: nothing waits for ever, nothing is left.

use crate::place::{
	Before, FalseTemplate, Place, Start, act, assert_says, first_line, good, kill, line, pids, signal, state, stdout,
	until,
};
use std::{os::unix::process::ExitStatusExt, process::Stdio};

#[test]
fn a_stopped_template_is_told_and_what_was_asked_of_it_then_is_not_done_later() {
	let place = Place::with_shell();
	let pid = place.template_pid();
	kill(pid, libc::SIGSTOP);
	until("it is stopped", || state(pid) == Some('T'));
	let trace = place.at("trace");
	let want = format!("the template t is stopped: `kill -CONT {pid}` lets it go on, `kill -KILL {pid}` ends it");
	for command in [&["clone", "t", "-c", &format!("echo ran > {}", trace.display())][..], &["rm", "t"]] {
		let output = place.run(command);
		assert_says(line(&output), &want);
		assert_eq!(line(&output).contains("it is removed as soon as it goes on"), command[0] == "rm");
		if command[0] == "clone" {
			let row = &place.list()[0];
			assert_eq!((row["state"].as_str(), row["pid"].as_i64()), (Some("stopped"), Some(i64::from(pid))));
			assert!(row["clones_running"].is_null());
			assert!(stdout(&place.run(&["ls"])).contains("stopped"));
		}
	}
	kill(pid, libc::SIGCONT);
	until("it does what `rm` has asked for", || state(pid).is_none());
	assert!(place.list().is_empty() && !trace.exists(), "the clone nobody waits for never ran");
}

#[test]
fn a_program_that_is_long_in_getting_ready_is_told_of() {
	let place = Place::new();
	let mut warm = place.flashfork(&["warm", "t", "--ready", "call", "--", "sleep", "1000"]);
	let mut child = warm.stderr(Stdio::piped()).spawn().unwrap();
	let said = first_line(&mut child.stderr);
	assert!(said.contains("sleep is not ready yet") && said.contains("until it calls flashfork_ready()"), "{said}");
	signal(&child, libc::SIGTERM);
	assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
}

/// One that lives, but says nothing: the time limits of `ls` and `rm` run at once.
#[test]
fn a_silent_template_is_told() {
	let place = Place::new();
	let _silent = FalseTemplate::new(&place, "t");
	let spawn = |arguments: &[&str]| place.flashfork(arguments).start_both();
	let all = [&["ls", "--json"][..], &["rm", "t"]].map(spawn);
	let [list, removed] = all.map(|child| child.wait_with_output().unwrap());
	let rows: Vec<serde_json::Value> = serde_json::from_slice(&list.stdout).unwrap();
	assert_eq!(rows[0]["state"], "silent");
	assert_says(line(&removed), "has not answered for 10 seconds");
}

#[test]
fn an_interrupt_ends_a_command_whose_clone_has_not_started() {
	let place = Place::new();
	let silent = FalseTemplate::new(&place, "t");
	for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
		let mut command = place.shell("echo never").start();
		let _caller = silent.request();
		signal(&command, number);
		assert_eq!(command.wait().unwrap().signal(), Some(number));
	}
}

/// A program that says its number and is never ready.
const NEVER: &str = "__attribute__((constructor)) void f(void) { fprintf(stderr, \"%d\\n\", getpid()); fork(); for (;;) pause(); }\n\
	int main(void) {}";

#[test]
fn an_interrupted_warm_up_leaves_nothing() {
	let place = Place::new();
	let program = place.program("never", NEVER);
	for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGKILL] {
		let mut warm = place.flashfork(&["warm", "t", "--", &program]);
		let mut warm = warm.stderr(Stdio::piped()).spawn().unwrap();
		let pid = first_line(&mut warm.stderr);
		signal(&warm, number);
		assert_eq!(warm.wait().unwrap().signal(), Some(number));
		until("the program has ended", || state(pid.trim().parse().unwrap()).is_none());
		let left = place.names();
		assert_eq!(left, usize::from(number == libc::SIGKILL));
	}
	// What a killed command could not take away the next one does; nor can it end what its program has started.
	place.warm_shell();
	assert_eq!(place.names(), 1);
	pids(&place, "never").into_iter().for_each(|pid| kill(pid, libc::SIGKILL));
}

/// As under `nohup`.
#[test]
fn a_warm_up_may_ignore_a_signal() {
	let place = Place::new();
	let program = place.program(
		"waits",
		"__attribute__((constructor)) void f(void) { fputs(\"on\\n\", stderr); FILE *go = fopen(GO, \"r\"); fclose(go); }\n\
		 int main(void) {}"
			.replace("GO", &format!("{:?}", place.at("go").display().to_string()))
			.as_str(),
	);
	let go = place.at("go");
	nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
	let mut warm = place.flashfork(&["warm", "t", "--", &program]);
	let mut warm = warm.before(|| act(&[libc::SIGHUP], libc::SIG_IGN)).start_both();
	let _on = first_line(&mut warm.stderr);
	signal(&warm, libc::SIGHUP);
	std::fs::write(&go, "").unwrap();
	good(warm.wait_with_output().unwrap());
}
