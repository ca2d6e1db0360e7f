//! A program started to be looked at.

use std::{
	ffi::{OsStr, OsString},
	os::unix::process::CommandExt,
	process::{Child, ChildStdin, Command, ExitStatus, Stdio},
	time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::{error::AdviseError, look::is_stopped};

/// How often it is looked whether it has stopped itself.
const LOOK: Duration = Duration::from_millis(2);

/// A running program. Dropping it ends it, and so does the end of this process.
#[derive(Debug)]
pub struct Program {
	name: String,
	child: Child,
}

/// How far a program ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ran {
	/// It has stopped itself (SIGSTOP).
	Stopped,
	/// It runs, and the time is over.
	InTime,
	/// It has ended.
	Ended(ExitStatus),
	/// It runs, and somebody wants to stop.
	Interrupted,
}

impl Program {
	/// Starts `command`. What it prints goes to standard error: it is no result of ours.
	///
	/// # Errors
	/// It can't be started.
	pub fn command(command: &[OsString]) -> Result<Self, AdviseError> {
		let name = command.first().map_or(OsStr::new(""), OsString::as_os_str);
		let mut start = Command::new(name);
		start.args(command.iter().skip(1)).stdout(Stdio::from(std::io::stderr()));
		Self::start(name.to_string_lossy(), start)
	}

	/// Starts a program that is called `name` in messages.
	///
	/// # Errors
	/// It can't be started.
	pub fn start(name: impl Into<String>, mut start: Command) -> Result<Self, AdviseError> {
		let name = name.into();
		// Its own group: Ctrl-C is for the measurement, which ends the program; if it can't, the kernel does.
		start.process_group(0);
		let die_with_me = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
		// SAFETY: one system call; nothing is allocated or locked between fork and exec.
		unsafe { start.pre_exec(die_with_me) };
		let child = start.spawn().map_err(|error| AdviseError::system(format!("start {name}"), error))?;
		Ok(Self { name, child })
	}

	/// What it is called in messages.
	pub fn name(&self) -> &str {
		&self.name
	}

	/// The process.
	pub fn pid(&self) -> i32 {
		self.child.id() as i32
	}

	/// Its input, where that was made a pipe, and once.
	pub fn input(&mut self) -> Option<ChildStdin> {
		self.child.stdin.take()
	}

	/// Lets it run for so long, unless it stops itself, ends, or somebody wants to stop sooner.
	///
	/// # Errors
	/// It can't be waited for.
	pub fn run(&mut self, time: Duration, interrupted: &dyn Fn() -> bool) -> Result<Ran, AdviseError> {
		let begin = Instant::now();
		while is_stopped(self.pid()) != Some(true) {
			if let Some(status) = self.ended()? {
				return Ok(Ran::Ended(status));
			}
			if interrupted() {
				return Ok(Ran::Interrupted);
			}
			if begin.elapsed() >= time {
				return Ok(Ran::InTime);
			}
			std::thread::sleep(LOOK);
		}
		Ok(Ran::Stopped)
	}

	/// Lets a program that has stopped itself go on.
	///
	/// # Errors
	/// It is gone.
	pub fn go_on(&self) -> Result<(), AdviseError> {
		kill_process(Pid::from_child(&self.child), Signal::CONT)
			.map_err(|errno| AdviseError::system(format!("let {} go on", self.name), errno))
	}

	/// How it ended, if it has.
	///
	/// # Errors
	/// It can't be waited for.
	pub fn ended(&mut self) -> Result<Option<ExitStatus>, AdviseError> {
		self.child.try_wait().map_err(|error| AdviseError::system(format!("wait for {}", self.name), error))
	}
}

impl Drop for Program {
	fn drop(&mut self) {
		// Both fail only when the process has been reaped already, which is what they are for.
		let _ = self.child.kill();
		let _ = self.child.wait();
	}
}
