//! Commands that experiments run, and what they say.

use std::{
	io::{self, Read},
	os::unix::process::CommandExt,
	process::Child,
};

use rustix::{
	process::{Signal, set_parent_process_death_signal},
	thread::{CpuSet, sched_setaffinity},
};

use super::clock::micros;
use crate::prelude::*;

/// A command that reads nothing, out of reach of the terminal's Ctrl-C, which ends the experiment after it.
pub fn apart(program: &Path) -> Command {
	let mut command = Command::new(program);
	command.stdin(Stdio::null()).process_group(0);
	command
}

/// One that finds templates by their `names`.
pub fn flashfork(program: &Path, names: &Path) -> Command {
	let mut command = apart(program);
	command.env("XDG_RUNTIME_DIR", names);
	command
}

/// For a new process, before it becomes a program: its CPU, and that it dies with this one. Makes system calls only.
pub fn on_one_cpu(cpu: usize) -> io::Result<()> {
	let mut cpus = CpuSet::new();
	cpus.set(cpu);
	sched_setaffinity(None, &cpus)?;
	Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Runs what compiles a program.
pub fn compile(command: &mut Command) -> Result {
	let output = command.stdin(Stdio::null()).output().or_cant(format_args!("run {command:?}"))?;
	if output.status.success() {
		return Ok(());
	}
	let words = String::from_utf8_lossy(&output.stderr);
	let last: Vec<&str> =
		words.lines().rev().filter(|line| line.contains("rror") || line.contains("cannot")).take(3).collect();
	Err(unable!("can't compile ({}): {}", output.status, last.join("; ")))
}

/// Compiles a C file.
pub fn cc(options: &[&str], source: &Path, to: &Path) -> Result {
	compile(Command::new("cc").args(options).arg("-o").arg(to).arg(source))
		.map_err(|error| unable!("{error} (C needs Debian's packages gcc and libc6-dev)"))
}

/// What a program has printed.
pub struct Printed {
	pub output: Vec<u8>,
	/// Microseconds until its line was there.
	pub line: Option<f64>,
}

/// Reads what a child prints, to its end; how long after `begin` it had printed `line`.
pub fn printed(child: &mut Child, line: &[u8], begin: Instant) -> io::Result<Printed> {
	let mut printed = Printed { output: Vec::new(), line: None };
	let Some(pipe) = &mut child.stdout else { return Ok(printed) };
	let mut part = [0; 64];
	loop {
		match pipe.read(&mut part)? {
			0 => return Ok(printed),
			count => printed.output.extend_from_slice(&part[..count]),
		}
		if printed.line.is_none() && printed.output.ends_with(line) {
			printed.line = Some(micros(begin));
		}
	}
}

/// The last line of what was said, or what to say instead.
pub fn last_line(said: &[u8], instead: &str) -> String {
	String::from_utf8_lossy(said).trim().lines().last().unwrap_or(instead).to_owned()
}
