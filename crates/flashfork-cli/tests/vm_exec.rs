//! `flashfork vm exec` as users meet it: terminals, signals, statuses. The agent is the real one, an ordinary process
//! here; the daemon between is a few lines that pass bytes on.

mod common;
#[path = "common/guest.rs"]
mod guest;

use guest::{Guest, end, eventually};
use nix::{
	libc,
	pty::openpty,
	sys::{
		signal::{SigHandler, Signal, kill},
		termios::{LocalFlags, tcgetattr},
	},
	unistd::Pid,
};
use std::{
	fs::File,
	io::{BufRead, BufReader, Read, Write},
	os::{
		fd::{AsRawFd, OwnedFd},
		unix::process::CommandExt,
	},
	process::{Child, Command, Stdio},
};

struct Terminal {
	ours: File,
	theirs: OwnedFd,
	seen: String,
}

impl Terminal {
	fn open(rows: u16, columns: u16) -> Self {
		let pty = openpty(None, None).unwrap();
		let terminal = Self { ours: pty.master.into(), theirs: pty.slave, seen: String::new() };
		terminal.resize(rows, columns);
		terminal
	}

	fn resize(&self, rows: u16, columns: u16) {
		let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
		// SAFETY: `size` is what TIOCSWINSZ reads.
		assert_eq!(unsafe { libc::ioctl(self.ours.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }, 0);
	}

	/// Runs `command` as the only one on the terminal.
	fn run(&self, command: &mut Command) -> Child {
		let end = || Stdio::from(self.theirs.try_clone().unwrap());
		command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "vt220");
		// SAFETY: system calls only.
		unsafe {
			command.pre_exec(|| {
				nix::unistd::setsid()?;
				if libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
					return Err(std::io::Error::last_os_error());
				}
				Ok(())
			});
		}
		command.spawn().unwrap()
	}

	fn type_in(&mut self, text: &str) {
		self.ours.write_all(text.as_bytes()).unwrap();
	}

	/// Reads until `text` has been shown since the last time.
	#[track_caller]
	fn see(&mut self, text: &str) {
		let mut bytes = [0; 1024];
		loop {
			if let Some((_, rest)) = self.seen.split_once(text) {
				self.seen = rest.to_owned();
				return;
			}
			let count = self.ours.read(&mut bytes).unwrap_or(0);
			assert!(count > 0, "no {text:?}, but {:?}", self.seen);
			self.seen += &String::from_utf8_lossy(&bytes[..count]);
		}
	}
}

#[test]
fn a_command_on_a_terminal_has_one_too_with_its_size_and_keys() {
	let guest = Guest::start();
	let mut terminal = Terminal::open(30, 90);
	let script = "echo $TERM; stty size; while [ \"$(stty size)\" = '30 90' ]; do sleep 0.02; done; stty size; \
				  read line; echo got-$line; trap 'echo interrupted; exit 3' INT; echo trapped; \
				  while :; do sleep 0.02; done";
	let mut child = terminal.run(&mut guest.exec(&[], &["sh", "-c", script]));
	terminal.see("vt220\r\n30 90\r\n");
	terminal.resize(40, 100);
	terminal.see("40 100\r\n");
	// Raw: what is typed gets there key by key, and the guest's terminal shows it.
	assert!(!tcgetattr(&terminal.theirs).unwrap().local_flags.contains(LocalFlags::ICANON));
	terminal.type_in("wird\x7f\x7f\x7fords\r");
	terminal.see("got-words\r\n");
	terminal.see("trapped");
	terminal.type_in("\x03");
	terminal.see("interrupted");
	assert_eq!(end(&mut child).code(), Some(3));
	let flags = tcgetattr(&terminal.theirs).unwrap().local_flags;
	assert!(flags.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG), "as it was before");
}

#[test]
fn without_a_terminal_signals_reach_the_command_and_its_end_is_ours() {
	let guest = Guest::start();
	for (signal, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGUSR1, 138)] {
		let mut child = guest
			.exec(&[], &["sh", "-c", "tty; echo $$; exec sleep 1000"])
			.stdin(Stdio::piped())
			.stdout(Stdio::piped())
			.spawn()
			.unwrap();
		let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
		assert_eq!(lines.next().unwrap(), "not a tty");
		let pid = Pid::from_raw(lines.next().unwrap().parse().unwrap());
		kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
		assert_eq!(end(&mut child).code(), Some(status));
		eventually(|| kill(pid, None).is_err());
	}
}

#[test]
fn what_this_command_ignores_the_guest_does_not_get() {
	let guest = Guest::start();
	let mut command = guest.exec(&[], &["sh", "-c", "echo $$; read line; echo read"]);
	// SAFETY: a system call.
	unsafe { command.pre_exec(|| Ok(nix::sys::signal::signal(Signal::SIGHUP, SigHandler::SigIgn).map(drop)?)) };
	let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
	let mut stdout = child.stdout.take().unwrap();
	assert!(stdout.read(&mut [0; 100]).unwrap() > 0);
	kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGHUP).unwrap();
	child.stdin.take().unwrap().write_all(b"line\n").unwrap();
	let mut rest = String::new();
	stdout.read_to_string(&mut rest).unwrap();
	assert_eq!((rest.as_str(), end(&mut child).code()), ("read\n", Some(0)));
}

#[test]
fn a_terminal_can_be_asked_for_and_the_end_of_input_ends_it() {
	let guest = Guest::start();
	let output = guest.exec(&["-t"], &["sh", "-c", "tty; stty size; cat"]).stdin(Stdio::null()).output().unwrap();
	let text = String::from_utf8_lossy(&output.stdout);
	assert!(text.starts_with("/dev/pts/") && text.contains("24 80\r\n"), "{output:?}");
	assert_eq!(output.status.code(), Some(0));
}

#[test]
fn an_end_by_signal_is_128_and_its_number() {
	let guest = Guest::start();
	let output = guest.exec(&[], &["sh", "-c", "kill -9 $$"]).output().unwrap();
	assert_eq!(output.status.code(), Some(137), "{output:?}");
}

#[test]
fn a_command_that_does_not_start_is_what_it_is_for_a_shell() {
	let guest = Guest::start();
	for (program, status) in [("no-such-program", 127), ("/etc/passwd", 126)] {
		let output = guest.exec(&[], &[program]).output().unwrap();
		assert_eq!(output.status.code(), Some(status), "{output:?}");
		let said = String::from_utf8_lossy(&output.stderr);
		assert!(said.starts_with("flashfork: ") && said.lines().count() == 1, "{said:?}");
	}
}

#[test]
fn a_run_takes_its_clone_away_whatever_ends_it() {
	let removed = "DELETE /v1/clones/clone";
	// A signal before there is a clone goes to the command.
	let guest = Guest::start();
	let mut child = guest.run("slow", &["sleep", "1000"]).spawn().unwrap();
	eventually(|| guest.was_asked("POST /v1/templates/slow/clones"));
	kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
	assert_eq!(end(&mut child).code(), Some(130));
	assert!(guest.was_asked(removed));
	// A guest that is gone.
	let mut guest = Guest::start();
	let mut child = guest.run("t", &["sh", "-c", "echo $$; exec sleep 1000"]).spawn().unwrap();
	let mut pid = String::new();
	BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut pid).unwrap();
	guest.agent.kill().unwrap();
	// In a machine it would have gone with it.
	kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
	kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
	assert!(!end(&mut child).success());
	assert!(guest.was_asked(removed));
	// Nobody who reads.
	let guest = Guest::start();
	let mut child = guest.run("t", &["yes"]).spawn().unwrap();
	child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
	let status = end(&mut child);
	assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGPIPE), "{status:?}");
	assert!(guest.was_asked(removed));
	// What can't start.
	let guest = Guest::start();
	assert_eq!(guest.run("t", &["no-such-program"]).output().unwrap().status.code(), Some(127));
	assert!(guest.was_asked(removed));
}

#[test]
fn a_run_whose_daemon_dies_has_the_next_one_remove_its_clone_and_no_namesake() {
	for (template, is_removed) in [("dies", true), ("old", false)] {
		let guest = Guest::start();
		assert_eq!(guest.run(template, &["true"]).output().unwrap().status.code(), Some(0));
		assert_eq!(guest.was_asked("DELETE /v1/clones/clone"), is_removed);
	}
}

#[test]
fn all_clones_can_be_removed() {
	let guest = Guest::start();
	assert!(guest.vm().args(["rm", "--all"]).status().unwrap().success());
	assert!(guest.was_asked("DELETE /v1/clones/clone"));
}

#[test]
fn the_first_run_waits_for_who_makes_its_template_and_makes_it_when_that_one_gives_up() {
	let guest = Guest::start();
	let output = guest.run("default", &["echo", "x"]).output().unwrap();
	assert_eq!(output.stdout, b"x\n", "{output:?}");
}
