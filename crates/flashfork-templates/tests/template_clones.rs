//! Clones of real programs: what they have of whom, how they end, and what becomes of them.

mod common;

use common::{Place, first_line, kill, name, piped, printed, state, until};
use flashfork_templates::{Error, Template};
use std::{
	fs,
	fs::File,
	os::{
		fd::{AsFd, AsRawFd},
		unix::process::{CommandExt, ExitStatusExt},
	},
	process::Command,
	time::Duration,
};

fn bit(signal: i32) -> u64 {
	1 << (signal - 1)
}

#[test]
fn each_clone_has_what_it_is_given() {
	let place = Place::new();
	let template = place.shell("t");
	fs::write(place.path().join("input"), "what comes in\n").unwrap();
	for number in 0..3 {
		let directory = place.path().join(number.to_string());
		fs::create_dir(&directory).unwrap();
		let (input, output) =
			(File::open(place.path().join("input")).unwrap(), File::create(directory.join("output")).unwrap());
		let script = r#"echo "$N $PATH $(pwd) $* $(umask) $PPID"; cat; exit "$N""#;
		let run = template.run().args(["-c", script, "sh", "a b", ""]).env("N", number.to_string());
		let run = run.envs([("PATH", "/usr/bin:/bin")]).current_dir(&directory).umask(0o31);
		let clone = run.streams([Some(input.as_fd()), Some(output.as_fd()), None]).start().unwrap();
		assert_eq!(clone.wait().unwrap().code(), Some(number));
		let want =
			format!("{number} /usr/bin:/bin {} a b  0031 {}\nwhat comes in\n", directory.display(), std::process::id());
		assert_eq!(fs::read_to_string(directory.join("output")).unwrap(), want);
	}
	let facts = template.facts().unwrap();
	assert_eq!((facts.made, facts.running), (3, 0));
	// Nothing but what it is given: no variable of this process, and no third stream.
	let script = "/usr/bin/env; [ -e /proc/self/fd/2 ] || echo none";
	let output = File::create(place.path().join("bare")).unwrap();
	let run = template.run().args(["-c", script]).streams([None, Some(output.as_fd()), None]);
	assert!(run.start().unwrap().wait().unwrap().success());
	let bare = fs::read_to_string(place.path().join("bare")).unwrap();
	assert!(bare.ends_with("none\n") && !bare.contains("CARGO"), "{bare}");
}

#[test]
fn the_exit_status_is_the_clones_and_stays_known() {
	let place = Place::new();
	let template = place.shell("t");
	let run = |script: &str| template.run().args(["-c", script]).start().unwrap();
	assert_eq!(run("exit 255").wait().unwrap().code(), Some(255));
	let killed = run("kill -SEGV $$");
	assert_eq!(killed.wait().unwrap().signal(), Some(libc::SIGSEGV));
	assert_eq!(killed.try_wait().unwrap().and_then(|status| status.signal()), Some(libc::SIGSEGV));
	killed.kill().unwrap();
	// All who wait are told, whoever hears of it.
	let waited = run("while :; do read x || sleep 1; done");
	assert_eq!(waited.try_wait().unwrap(), None);
	assert_eq!(waited.wait_for(Some(Duration::from_millis(20))).unwrap(), None);
	std::thread::scope(|scope| {
		let waits = || waited.wait().unwrap().signal();
		let all = [scope.spawn(waits), scope.spawn(waits), scope.spawn(waits)];
		waited.signal(libc::SIGTERM, false).unwrap();
		assert!(all.into_iter().all(|thread| thread.join().unwrap() == Some(libc::SIGTERM)));
	});
}

#[test]
fn signals_reach_the_clone_or_its_group() {
	let place = Place::new();
	let template = place.shell("t");
	let script = "trap 'echo told; exit 3' USR1; sleep 1000 & echo $!; wait";
	let (clone, mut output) = piped(template.run().args(["-c", script]).env("PATH", "/bin"));
	let child: i32 = first_line(&mut output).parse().unwrap();
	clone.signal(libc::SIGUSR1, false).unwrap();
	assert_eq!(first_line(&mut output), "told");
	assert_eq!(clone.wait().unwrap().code(), Some(3));
	assert!(state(child).is_some(), "it was sent to the clone alone");
	kill(child, libc::SIGKILL);
	let (clone, mut output) = piped(template.run().args(["-c", "sleep 1000 & echo $!; wait"]).env("PATH", "/bin"));
	let child: i32 = first_line(&mut output).parse().unwrap();
	clone.kill().unwrap();
	assert_eq!(clone.wait().unwrap().signal(), Some(libc::SIGKILL));
	until("its child is gone, too", || matches!(state(child), None | Some('Z')));
}

#[test]
fn signals_are_ignored_and_blocked_as_told() {
	let place = Place::new();
	// A shell would unblock them first of all.
	place.warm("t", "cat").start().unwrap().wait().unwrap();
	let template = Template::find(&place.names, name("t")).unwrap();
	let sets = |run| {
		let status = printed(run);
		let set = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
		// Two signals are libc's own, and can't be set by anybody.
		let number = |set| u64::from_str_radix(set, 16).unwrap() & !(bit(32) | bit(33));
		[set("SigBlk:"), set("SigIgn:")].map(number)
	};
	let run = || template.run().arg("/proc/self/status");
	// This process, as any of Rust's, ignores SIGPIPE: that is its own affair.
	assert_eq!(sets(run()), [0, 0]);
	let (term, usr) = (bit(libc::SIGTERM), bit(libc::SIGUSR2));
	assert_eq!(sets(run().blocked(usr).ignored(term)), [usr, term]);
}

#[test]
fn a_dropped_clone_is_killed_with_its_group() {
	let place = Place::new();
	let template = place.shell("t");
	let (clone, mut output) = piped(template.run().args(["-c", "sleep 1000 & echo $!; wait"]).env("PATH", "/bin"));
	let (pid, child) = (clone.pid(), first_line(&mut output).parse().unwrap());
	drop(clone);
	for pid in [pid, child] {
		until("it is gone", || matches!(state(pid), None | Some('Z')));
	}
	until("its template knows", || template.facts().unwrap().running == 0);
}

/// In its own process, which is watched: whoever stopped it would stop these tests.
#[test]
fn a_clone_that_stops_does_not_stop_its_caller() {
	let mut test = Command::new(std::env::current_exe().unwrap());
	test.args(["--exact", "a_clone_stops", "--ignored", "--quiet"]).process_group(0);
	let pid = i32::try_from(test.spawn().unwrap().id()).unwrap();
	let mut status = 0;
	// SAFETY: the status is a local.
	assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) }, pid);
	if libc::WIFSTOPPED(status) {
		kill(pid, libc::SIGKILL);
	}
	assert_eq!(status, 0);
}

#[test]
#[ignore = "run by the test above"]
fn a_clone_stops() {
	let place = Place::new();
	let template = place.shell("t");
	let clone = template.run().args(["-c", "kill -STOP $$; exit 5"]).start().unwrap();
	until("it is stopped", || state(clone.pid()) == Some('T'));
	// The template has nothing to do before this but to look after its clone that was stopped.
	assert_eq!(template.facts().unwrap().running, 1);
	clone.signal(libc::SIGCONT, true).unwrap();
	assert_eq!(clone.wait().unwrap().code(), Some(5));
}

#[test]
fn a_template_that_dies_takes_its_clones_along() {
	let place = Place::new();
	let template = place.shell("t");
	let (clone, mut output) = piped(template.run().args(["-c", "sleep 1000 & echo $!; wait"]).env("PATH", "/bin"));
	let child = first_line(&mut output).parse().unwrap();
	kill(template.facts().unwrap().pid, libc::SIGKILL);
	for _ in 0..2 {
		let gone = clone.wait().unwrap_err();
		assert!(matches!(gone, Error::Gone(_)), "{gone}");
		assert!(gone.to_string().starts_with("the template t has ended, and its clones with it"), "{gone}");
	}
	for pid in [clone.pid(), child] {
		until("it is gone", || matches!(state(pid), None | Some('Z')));
	}
	// Its name is still there, and goes.
	assert!(matches!(template.run().start(), Err(Error::Gone(_))));
	let nobody = Template::find(&place.names, name("t")).unwrap_err();
	assert!(nobody.to_string().starts_with("there is no template t; `flashfork warm t -- COMMAND`"), "{nobody}");
	assert!(place.names.names().unwrap().is_empty());
	place.shell("t");
}

#[test]
fn a_stopped_template_is_told() {
	let place = Place::new();
	let template = place.shell("t");
	let pid = template.facts().unwrap().pid;
	kill(pid, libc::SIGSTOP);
	until("it is stopped", || state(pid) == Some('T'));
	let stopped = template.run().start().unwrap_err().to_string();
	assert!(stopped.contains(&format!("the template t is stopped: `kill -CONT {pid}` lets it go on")), "{stopped}");
	kill(pid, libc::SIGCONT);
	assert!(template.run().args(["-c", ":"]).start().unwrap().wait().unwrap().success());
}

#[test]
fn what_can_not_be_passed_on_is_refused() {
	let place = Place::new();
	let template = place.shell("t");
	let refused = |run: flashfork_templates::Run<'_>| run.start().unwrap_err().to_string();
	let nul = refused(template.run().arg("a\0b"));
	assert!(nul.starts_with(r#"can't pass on "a\0b": it has a NUL in it"#), "{nul}");
	let nowhere = refused(template.run().current_dir(place.path().join("nowhere")));
	assert_eq!(nowhere, "can't open the working directory, where the clone is to run: No such file or directory");
	assert_eq!(template.facts().unwrap().made, 0);
}

/// A clone's end is told once, to whoever reads the connection first.
#[test]
fn a_forked_process_does_not_take_the_end_of_its_parents_clone() {
	let place = Place::new();
	let clone = place.shell("t").run().args(["-c", "exit 7"]).start().unwrap();
	// Its end has come.
	let mut poll = libc::pollfd { fd: clone.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
	// SAFETY: one structure; the connection is open.
	assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 60_000) }, 1);
	// SAFETY: the child asks, and ends; the C library keeps its allocator usable.
	let child = unsafe { libc::fork() };
	if child == 0 {
		let refused = matches!(clone.try_wait(), Err(Error::Wait { ref source, .. }) if
			source.raw_os_error() == Some(libc::ECHILD));
		// SAFETY: ends this process.
		unsafe { libc::_exit(i32::from(!refused)) };
	}
	let mut status = 0;
	// SAFETY: waits for the child above.
	assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
	assert_eq!(clone.wait().unwrap().code(), Some(7));
	assert_eq!(status, 0);
}
