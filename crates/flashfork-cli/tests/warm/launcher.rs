//! Which of its two programs the command is: the launcher, while nothing must be said.

use crate::place::{
	FalseTemplate, Place, assert_says, first_line, flashfork, line, often, rest, stderr, stdout, until,
};
use std::{
	fs,
	process::{Child, Command, Stdio},
};

const PYTHON: &str = "/usr/bin/python3";

fn started(place: &Place, code: &str) -> Child {
	let mut clone = place.flashfork(&["clone", "t", "-c", code]);
	let mut clone = clone.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
	let line = first_line(&mut clone.stdout);
	assert_eq!(line, "here\n");
	clone
}

fn program(process: &Child) -> String {
	let path = fs::read_link(format!("/proc/{}/exe", process.id())).unwrap();
	path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_plain_clone_needs_the_launcher_alone() {
	let place = Place::with_shell();
	let mut clone = started(&place, "echo here; read x");
	assert_eq!(program(&clone), "flashfork");
	assert!(clone.wait().is_ok());
	// What it is typed with and does itself is no other's memory to begin with: no loader has anything to do.
	let file = fs::read(flashfork()).unwrap();
	let segments = usize::from(u16::from_ne_bytes([file[56], file[57]]));
	assert_eq!(segments, 2, "one to load, and the stack");
}

#[test]
fn a_clone_that_has_not_started_yet_is_waited_for_by_the_command_proper() {
	let place = Place::new();
	let template = FalseTemplate::new(&place, "t");
	let mut clone = place.flashfork(&["clone", "t"]).stderr(Stdio::piped()).spawn().unwrap();
	let caller = template.request();
	until("the command proper has taken over", || program(&clone) == "flashfork-cli");
	let name = || fs::read_to_string(format!("/proc/{}/comm", clone.id())).unwrap();
	until("it is called as it was typed", || name() == "flashfork\n");
	drop(caller);
	assert_eq!(clone.wait().unwrap().code(), Some(1));
	let said = rest(clone.stderr.take().unwrap());
	assert!(said.lines().count() == 1 && said.contains("the template t has ended"), "{said}");
}

/// The command proper begins anew there, with the signals as they were.
#[test]
fn a_clone_of_a_stale_template_is_refused_by_the_command_proper() {
	let place = Place::new();
	let module = place.file("module.py", "one = 1\n");
	let path = place.path().to_str().unwrap();
	place.warm(&[PYTHON, "-c", &format!("import sys; sys.path.insert(0, {path:?}); import module, signal")]);
	fs::write(&module, "one = 2\n").unwrap();
	let refused = place.run(&["clone", "t", "-c", "print('here')"]);
	assert_says(line(&refused), "module.py changed since t was warmed");
	assert_eq!(stdout(&refused), "");
}

#[test]
fn any_number_of_arguments_and_variables_comes_with_a_clone() {
	let place = Place::with_shell();
	for (arguments, variables) in [(0, 0), (1, 0), (900, 100), (1022, 0), (1023, 0), (5000, 300), (3, 2000)] {
		let mut clone = place.flashfork(&["clone", "t", "-c", "echo $#; env; printf '%s\n' \"$@\"", "sh"]);
		clone.env_clear().env("XDG_RUNTIME_DIR", place.path()).env("PATH", "/usr/bin:/bin");
		clone.args((0..arguments).map(|i| format!("argument {i}")));
		clone.envs((0..variables).map(|i| (format!("V{i}"), format!("{i}"))));
		let output = clone.output().unwrap();
		let text = stdout(&output);
		assert_eq!(text.lines().next(), Some(arguments.to_string().as_str()), "{}", stderr(&output));
		let count = |begin: &str| text.lines().filter(|line| line.starts_with(begin)).count();
		assert_eq!((count("argument "), count("V")), (arguments, variables));
		let last = arguments.checked_sub(1).map(|i| format!("argument {i}"));
		assert!(last.is_none_or(|last| text.lines().next_back() == Some(last.as_str())));
	}
	let long = "x".repeat(100_000);
	let output = place.run(&["clone", "t", "-c", "printf %s \"$1\"", "sh", &long]);
	assert!(stdout(&output) == long);
}

#[test]
fn whoever_was_handed_nothing_is_told() {
	let place = Place::new();
	let nothing = place.run(&["attend", "77,0", "clone", "t"]);
	assert_eq!(line(&nothing), "flashfork: no clone of t was asked for that this command could go on with");
	for wrong in [&["attend"][..], &["attend", "1,0", "clone", "t"], &["attend", "x", "clone", "t"]] {
		let output = place.run(wrong);
		assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
	}
}

#[test]
fn without_proc_the_command_is_found_by_the_name_it_was_started_by() {
	// SAFETY: asks for a number.
	if unsafe { libc::geteuid() } != 0 {
		return;
	}
	let script = "mount -t tmpfs none /proc && exec \"$0\" --version";
	let output = Command::new("unshare").args(["-m", "sh", "-c", script, flashfork()]).output().unwrap();
	assert!(stdout(&output).starts_with("flashfork "), "{}", stderr(&output));
}

/// As a build runs them: one after the other, eight at a time.
#[test]
fn of_many_clones_that_make_runs_none_is_lost_and_each_is_right() {
	let count = often(100, 1000);
	let place = Place::new();
	place.warm(&[PYTHON, "-c", "import os"]);
	fs::create_dir(place.at("out")).unwrap();
	let code = "import os, sys; open('out/$*', 'x').write(str($* * 3)); sys.stdout.write('$*\\n')";
	let rules = format!(
		"all: {}\n%.one:\n\t@{} clone t -c \"{code}\"\n",
		(0..count).map(|i| format!("{i}.one")).collect::<Vec<_>>().join(" "),
		flashfork(),
	);
	place.file("Makefile", rules);
	let mut make = Command::new("make");
	// Under another make it would tell where it works.
	make.args(["--no-print-directory", "-j", "8", "all"])
		.current_dir(place.path())
		.env("XDG_RUNTIME_DIR", place.path());
	let output = make.env_remove("MAKEFLAGS").stdin(Stdio::null()).output().unwrap();
	assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
	let mut said: Vec<usize> = stdout(&output).lines().map(|line| line.parse().unwrap()).collect();
	said.sort_unstable();
	assert!(said.into_iter().eq(0..count));
	for i in 0..count {
		let text = fs::read_to_string(place.at(format!("out/{i}"))).unwrap();
		assert_eq!(text, (i * 3).to_string());
	}
	assert_eq!(place.list()[0]["clones_made"], count);
	until("no clone runs", || place.list()[0]["clones_running"] == 0);
}
