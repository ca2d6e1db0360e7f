//! The clone that a template makes ahead.

use crate::place::{Place, Start, first_line, good, kill, state, stderr, stdout, until};
use nix::{
	sys::{
		ptrace,
		wait::{WaitStatus, waitpid},
	},
	unistd::Pid,
};
use std::{fs, io::Write};

/// Children of a process that live.
fn children(pid: i32) -> Vec<i32> {
	let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
	text.split_whitespace().filter_map(|word| word.parse().ok()).filter(|pid| state(*pid).is_some()).collect()
}

/// Its process group. A clone has one of its own from when it has a caller until it is gone, its end told or not.
fn group(pid: i32) -> i32 {
	// SAFETY: takes a number.
	unsafe { libc::getpgid(pid) }
}

impl Place {
	/// The clone that waits for a caller, when there is one.
	pub fn ahead(&self) -> i32 {
		let template = self.template_pid();
		let mut found = Vec::new();
		until("a clone waits", || {
			found = children(template);
			found.len() == 1 && group(found[0]) == group(template)
		});
		found[0]
	}
}

#[test]
fn the_next_caller_gets_it_and_another_is_made() {
	let place = Place::with_shell();
	let ahead = place.ahead();
	assert_eq!((&place.list()[0]["clones_made"], &place.list()[0]["clones_running"]), (&0.into(), &0.into()));
	let output = place.shell("echo $$; ls /proc/self/fd | wc -l").output().unwrap();
	// Descriptors of `ls`: three, and the directory.
	assert_eq!(stdout(&output), format!("{ahead}\n4\n"), "{}", stderr(&output));
	assert_ne!(place.ahead(), ahead);
}

/// Whoever ends or stops it only makes the next clone cost more.
#[test]
fn one_that_is_ended_or_stopped_is_no_loss() {
	let place = Place::with_shell();
	for signal in [libc::SIGKILL, libc::SIGSTOP] {
		let ahead = place.ahead();
		kill(ahead, signal);
		until("it is gone", || state(ahead).is_none());
		assert_eq!(stdout(&place.shell("echo here").output().unwrap()), "here\n");
	}
}

#[test]
fn it_ends_with_its_template_and_with_the_last_clone_there_may_be() {
	let place = Place::with_shell();
	let ahead = place.ahead();
	kill(place.template_pid(), libc::SIGKILL);
	until("it is gone", || state(ahead).is_none());
	good(place.run(&["warm", "--max-clones", "1", "u", "--", "sh"]));
	let list = place.list();
	let template = i32::try_from(list[0]["pid"].as_i64().unwrap()).unwrap();
	until("a clone waits", || children(template).len() == 1);
	let mut last = place.flashfork(&["clone", "u", "-c", "sleep 1000"]).spawn().unwrap();
	until("it runs", || children(template).iter().any(|pid| children(*pid).len() == 1));
	assert_eq!(children(template).len(), 1, "no other is made");
	last.kill().unwrap();
	last.wait().unwrap();
	until("the template ends", || state(template).is_none());
}

#[test]
fn a_removed_template_keeps_none() {
	let place = Place::with_shell();
	let (template, ahead) = (place.template_pid(), place.ahead());
	place.remove();
	until("both are gone", || state(ahead).is_none() && state(template).is_none());
}

/// What Python does before it has a caller leaves no trace in what the caller's program sees.
#[test]
fn python_shows_nothing_of_its_rehearsal() {
	let place = Place::new();
	place.warm(&["/usr/bin/python3", "-c", "import sys; sys.path.append('/warmed')"]);
	let script = place.at("show.py");
	let text = "import sys, os, gc\nprint(sys.argv, sys.path, sys.orig_argv[-2:], sorted(os.environ), hasattr(sys, 'last_value'))\n\
				print(sys.stdout.fileno(), sys.stdout.name, sys.stdout.mode, sorted(globals()), gc.isenabled())\n";
	fs::write(&script, text).unwrap();
	let script = script.to_str().unwrap();
	place.ahead();
	let first = place.run(&["clone", "t", script, "x"]);
	assert_eq!((first.status.code(), stderr(&first)), (Some(0), ""));
	let mut cold = std::process::Command::new("/usr/bin/python3");
	cold.args([script, "x"]).env("XDG_RUNTIME_DIR", place.path()).env_remove("LD_PRELOAD");
	let cold = cold.output().unwrap();
	let want = stdout(&cold).replacen("-packages']", "-packages', '/warmed']", 1);
	assert_eq!(stdout(&first), want);
}

/// Its exit status is known before its memory is taken apart; what it has left behind runs on.
#[test]
fn an_end_that_is_told_early_ends_nothing_else() {
	let place = Place::new();
	place.warm(&["/usr/bin/python3", "-c", "import os, subprocess"]);
	let file = place.at("file");
	let text = format!(
		"import fcntl, os, subprocess, sys\nf = open({file:?}, 'w')\nfcntl.flock(f, fcntl.LOCK_EX)\nprint('out')\n\
		 p = subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\nprint(p.pid)\nsys.exit(5)\n"
	);
	for _ in 0..20 {
		let output = place.run(&["clone", "t", "-c", &text]);
		let mut lines = stdout(&output).lines();
		assert_eq!((output.status.code(), lines.next()), (Some(5), Some("out")), "{}", stderr(&output));
		let left: i32 = lines.next().unwrap().parse().unwrap();
		let file = fs::File::open(&file).unwrap();
		// SAFETY: takes numbers.
		let free = unsafe { libc::flock(std::os::fd::AsRawFd::as_raw_fd(&file), libc::LOCK_EX | libc::LOCK_NB) } == 0;
		assert!(free, "the clone holds its lock no longer");
		assert!(state(left).is_some());
		kill(left, libc::SIGKILL);
	}
	until("all have ended", || place.list()[0]["clones_running"] == 0);
}

/// Held by a debugger where it has called `exit_group` and still has its memory, a clone can't be waited for.
#[test]
fn an_end_by_exit_is_told_before_memory_is_taken_apart() {
	let place = Place::new();
	let source = "int main(void) {
    char byte;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    printf(\"%d\\n\", getpid());
    fflush(stdout);
    return read(0, &byte, 1) == 1 ? _exit(0x107), 1 : 2;
}";
	let program = place.program("ends", source);
	let code = "import ctypes, os
ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)
print(os.getpid(), flush=True)
os.read(0, 1)
os._exit(0x107)";
	for (command, arguments) in
		[(&[program.as_str()][..], &[][..]), (&["/usr/bin/python3", "-c", "import ctypes"], &["-c", code])]
	{
		place.warm(command);
		let mut clone = place.flashfork(&[&["clone", "t"], arguments].concat()).start_talk();
		let line = first_line(&mut clone.stdout);
		let pid = Pid::from_raw(line.trim().parse().unwrap());
		ptrace::seize(pid, ptrace::Options::PTRACE_O_TRACEEXIT).unwrap();
		clone.stdin.take().unwrap().write_all(b"x").unwrap();
		assert!(matches!(waitpid(pid, None), Ok(WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXIT))));
		until("the command has ended", || clone.try_wait().unwrap().is_some());
		assert_eq!((clone.wait().unwrap().code(), state(pid.as_raw())), (Some(7), Some('t')));
		ptrace::cont(pid, None).unwrap();
		place.remove();
	}
}
