//! How clones end, and what is left when somebody dies.

use crate::place::{
	Place, Start, assert_says, first_line, flashfork, good, kill, line, processes, signal, state, stderr, stdout, until,
};
use std::{
	fs,
	io::{BufRead, BufReader, Read},
	os::unix::process::ExitStatusExt,
	process::Child,
};

#[test]
fn exit_codes_are_the_clones_own() {
	let place = Place::with_shell();
	for (script, code, signal) in [
		("exit 0", Some(0), None),
		("exit 7", Some(7), None),
		("exit 255", Some(255), None),
		("kill -9 $$", None, Some(libc::SIGKILL)),
		("kill -SEGV $$", None, Some(libc::SIGSEGV)),
	] {
		let output = place.shell(script).output().unwrap();
		assert_eq!((output.status.code(), output.status.signal(), stderr(&output)), (code, signal, ""), "{script}");
		assert!(!output.status.core_dumped(), "the clone's core is its own");
	}
}

fn waiting(place: &Place, script: &str) -> (Child, i32) {
	let mut child = place.shell(&format!("echo $$; {script}")).start_both();
	let text = first_line(&mut child.stdout);
	(child, text.trim().parse().unwrap())
}

fn group(pid: i32) -> usize {
	let lives = |p: &i32| {
		let stat = fs::read_to_string(format!("/proc/{p}/stat")).unwrap_or_default();
		let fields: Vec<_> = stat.rsplit_once(") ").map_or(Vec::new(), |(_, rest)| rest.split(' ').collect());
		fields.get(2) == Some(&pid.to_string().as_str()) && state(*p).is_some()
	};
	processes().filter(lives).count()
}

#[test]
fn a_killed_command_leaves_nothing_running() {
	let place = Place::with_shell();
	let (mut command, clone) = waiting(&place, "sleep 1000 & wait");
	until("the shell and its sleep run", || group(clone) == 2);
	signal(&command, libc::SIGKILL);
	command.wait().unwrap();
	until("the clone's group is gone", || group(clone) == 0);
	until("it is taken down", || place.list()[0]["clones_running"] == 0);
	assert_eq!(stdout(&place.shell("echo next").output().unwrap()), "next\n");
}

#[test]
fn a_killed_template_takes_its_clones_along() {
	let place = Place::with_shell();
	let (command, clone) = waiting(&place, "sleep 1000 & wait");
	kill(place.template_pid(), libc::SIGKILL);
	let output = command.wait_with_output().unwrap();
	assert_says(line(&output), "the template t has ended, and its clones with it");
	until("the clone and what it started are gone", || group(clone) == 0);
	let next = place.shell("echo no").output().unwrap();
	assert_says(line(&next), "the template t has ended");
	let after = place.shell("echo no").output().unwrap();
	assert!(line(&after).contains("there is no template t"), "the name went: {}", line(&after));
	place.warm_shell();
}

#[test]
fn a_template_that_is_told_to_end_gives_up_its_name() {
	let place = Place::with_shell();
	let pid = place.template_pid();
	kill(pid, libc::SIGTERM);
	until("it ends", || state(pid).is_none());
	assert!(place.list().is_empty());
	assert_eq!(place.names(), 0);
}

/// One that knows its template's number, from `/proc`.
#[test]
fn a_clone_that_signals_its_parent_ends_no_template() {
	let place = Place::with_shell();
	let (mut command, other) = waiting(&place, "sleep 1000 & wait");
	let before = place.template_pid();
	let script = "read -r _ _ _ template _ < /proc/$$/stat
                  for s in HUP INT QUIT TERM; do kill -$s $template; done; echo $template";
	assert_eq!(stdout(&place.shell(script).output().unwrap()), format!("{before}\n"));
	assert_eq!((place.template_pid(), state(other).is_some()), (before, true));
	command.kill().unwrap();
	command.wait().unwrap();
}

/// When that is gone the clone is told who has its place.
#[test]
fn the_parent_of_a_clone_is_that_of_its_command() {
	let place = Place::new();
	place.warm(&["/usr/bin/python3", "-c", "import os, time"]);
	let code = "first = os.getppid()\nprint(first, flush=True)\nwhile os.getppid() == first: time.sleep(0.01)";
	let script = format!("{} clone t -c \"import os, time\n$CODE\" & read x", flashfork());
	for _ in 0..2 {
		let mut sh = place.sh(&script);
		let mut sh = sh.env("CODE", code).start_talk();
		let (mut output, mut text) = (BufReader::new(sh.stdout.take().unwrap()), String::new());
		output.read_line(&mut text).unwrap();
		assert_eq!(text, format!("{}\n", sh.id()));
		sh.wait().unwrap();
		output.read_to_string(&mut text).unwrap();
		// The next one has been made by then.
		place.ahead();
	}
}

/// Who can't be told of it has no template.
#[test]
fn a_warm_up_that_can_not_be_announced_leaves_no_template() {
	let place = Place::new();
	let full = fs::File::options().write(true).open("/dev/full").unwrap();
	let output = place.flashfork(&["warm", "t", "--", "sh"]).stdout(full).output().unwrap();
	assert_says(line(&output), "can't write standard output");
	assert!(place.list().is_empty());
}

#[test]
fn a_removed_template_goes_when_its_last_clone_has_ended() {
	let place = Place::with_shell();
	let (command, clone) = waiting(&place, "while :; do sleep 0.05; done");
	let pid = place.template_pid();
	let removed = place.run(&["rm", "t"]);
	assert_eq!((removed.status.code(), stdout(&removed)), (Some(0), "removed t; its last clone runs on\n"));
	assert!(place.list().is_empty() && state(pid).is_some() && state(clone).is_some());
	assert!(line(&place.shell("true").output().unwrap()).contains("there is no template t"));
	// Its name is free again at once.
	place.warm_shell();
	signal(&command, libc::SIGTERM);
	assert_eq!(command.wait_with_output().unwrap().status.signal(), Some(libc::SIGTERM));
	until("the old template ends", || state(pid).is_none());
	assert_eq!(place.list().len(), 1, "which leaves the new one its name");
}

#[test]
fn a_template_that_has_made_its_clones_goes() {
	let place = Place::new();
	good(place.run(&["warm", "--max-clones", "2", "t", "--", "sh"]));
	let pid = place.template_pid();
	for _ in 0..2 {
		assert!(place.shell("true").status().unwrap().success());
	}
	assert!(line(&place.shell("true").output().unwrap()).contains("there is no template t"));
	until("it ends", || state(pid).is_none());
}

#[test]
fn many_callers_at_once_each_get_their_own() {
	let place = Place::with_shell();
	let clones: Vec<_> = (0..60).map(|i| place.shell(&format!("read x; echo {i} $$; exit {i}")).start_talk()).collect();
	until("all run", || place.list()[0]["clones_running"] == 60);
	let mut pids = std::collections::HashSet::new();
	for (i, clone) in clones.into_iter().enumerate() {
		let output = clone.wait_with_output().unwrap();
		let (number, pid) = stdout(&output).trim().split_once(' ').unwrap();
		assert_eq!((number.parse(), output.status.code()), (Ok(i), Some(i as i32)));
		assert!(pids.insert(pid.to_owned()));
	}
	until("all have ended", || place.list()[0]["clones_running"] == 0);
	let pid = place.template_pid();
	// A clone counts no more once it has told its end; the template lets go of it when it is gone.
	until("the template holds no clone's descriptors", || {
		fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() < 11
	});
}

#[test]
fn a_fork_that_fails_is_told_and_the_template_goes_on() {
	let place = Place::new();
	// SAFETY: asks for a number.
	if unsafe { libc::geteuid() } == 0 {
		// Root has no limit on processes; a cgroup would need one that is delegated.
		return;
	}
	let warmed = place.run(&["warm", "t", "--", "sh"]);
	assert!(warmed.status.success());
	let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
	// SAFETY: the structure is a local.
	let set =
		unsafe { libc::prlimit(place.template_pid(), libc::RLIMIT_NPROC, &raw const limit, std::ptr::null_mut()) };
	assert_eq!(set, 0);
	// One may have been made ahead.
	let mut outputs = (0..3).map(|_| place.shell("true").output().unwrap());
	let output = outputs.find(|output| !output.status.success()).expect("a template that may have no children");
	assert_says(line(&output), "can't fork a clone of t");
	assert_eq!(place.list().len(), 1);
}
