//! A command's standard input and output: three pipes, or a terminal.

use std::{
	fs::File,
	io,
	os::{
		fd::{AsFd, OwnedFd},
		unix::process::CommandExt,
	},
	process::Command,
};

use flashfork_proto::agent::TerminalSize;
use rustix::{
	fs::{Mode, OFlags},
	process::{ioctl_tiocsctty, setsid},
	pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
	termios::{Winsize, tcsetwinsize},
};

/// This side's ends.
pub struct Stdio {
	/// To write input to.
	pub stdin: File,
	/// To read output from.
	pub stdout: File,
	/// To read standard error from; a terminal has it in its output.
	pub stderr: Option<File>,
	/// The terminal, to resize it.
	pub terminal: Option<File>,
}

/// Gives `command` pipes, or a terminal of the size given, and a process group or session of its own.
pub fn attach(command: &mut Command, terminal: Option<TerminalSize>) -> io::Result<Stdio> {
	match terminal {
		Some(size) => attach_terminal(command, size),
		None => attach_pipes(command),
	}
}

/// Tells a terminal its size.
pub fn set_size(terminal: impl AsFd, size: TerminalSize) -> rustix::io::Result<()> {
	tcsetwinsize(terminal, Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 })
}

/// Makes `command` the leader of a session whose controlling terminal is its standard input.
pub fn control(command: &mut Command) {
	let take_terminal = || -> io::Result<()> {
		setsid()?;
		ioctl_tiocsctty(rustix::stdio::stdin())?;
		Ok(())
	};
	// SAFETY: the closure makes two plain system calls; standard input is the terminal by then.
	unsafe {
		command.pre_exec(take_terminal);
	}
}

fn attach_pipes(command: &mut Command) -> io::Result<Stdio> {
	let (stdin_theirs, stdin) = io::pipe()?;
	let (stdout, stdout_theirs) = io::pipe()?;
	let (stderr, stderr_theirs) = io::pipe()?;
	command.stdin(stdin_theirs).stdout(stdout_theirs).stderr(stderr_theirs).process_group(0);
	let file = |fd: OwnedFd| File::from(fd);
	Ok(Stdio {
		stdin: file(stdin.into()),
		stdout: file(stdout.into()),
		stderr: Some(file(stderr.into())),
		terminal: None,
	})
}

fn attach_terminal(command: &mut Command, size: TerminalSize) -> io::Result<Stdio> {
	let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
	grantpt(&ours)?;
	unlockpt(&ours)?;
	let name = ptsname(&ours, Vec::new())?;
	let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
	set_size(&ours, size)?;
	command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
	control(command);
	let ours = File::from(ours);
	Ok(Stdio { stdin: ours.try_clone()?, stdout: ours.try_clone()?, stderr: None, terminal: Some(ours) })
}
