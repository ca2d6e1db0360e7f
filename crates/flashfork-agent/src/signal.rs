//! Signals to the monitor, from the command line and from init.

use std::{
	io::{self, Write},
	os::unix::process::CommandExt,
	process::{self, Command},
};

use flashfork_proto::signal::{GuestError, Role, Signals, Status};
use rustix::process::setsid;

use crate::{freeze, ports::Ports, reaper::Reaper, renew};

/// `flashfork-agent signal COMMAND`.
pub fn run(command: &str, rest: &[&str]) -> Result<(), String> {
	if let ("fork", []) = (command, rest) {
		return apart();
	}
	if let ("fork", [APART]) = (command, rest) {
		let reaper = Reaper::start().map_err(|error| format!("cannot start a thread: {error}"))?;
		return match fork(&reaper)? {
			Some(name) => writeln!(io::stdout(), "{name}").map_err(|error| format!("cannot print the name: {error}")),
			None => Ok(()),
		};
	}
	let mut signals = find()?;
	match (command, rest) {
		("reset", []) => {
			let nanoseconds = signals.reset().map_err(|error| error.to_string())?;
			writeln!(io::stdout(), "{nanoseconds}").map_err(|error| format!("cannot print the result: {error}"))
		}
		("done", []) => signals.done(0, &[]).map_err(|error| error.to_string()),
		("done", [status]) => done(&mut signals, status, ""),
		("done", [status, result]) => done(&mut signals, status, result),
		_ => Err(format!("no signal {command:?} with {} arguments", rest.len())),
	}
}

/// The monitor's ports, if there is a monitor.
fn find() -> Result<Signals<Ports>, String> {
	Signals::find(open()?).map_err(|error| error.to_string())
}

fn open() -> Result<Ports, String> {
	Ports::open().map_err(|error| format!("cannot use I/O ports: {error}"))
}

const REFUSED: &str = "this machine may not fork itself, or not again: `flashfork vm ls` says why on its host, where \
                       `flashfork vm clone --forks N` makes one that may";

/// Says to this program that it is in its own session.
const APART: &str = "apart";

/// Forks from its own session: in a clone the agent, as soon as it goes on, kills the group of a command whose
/// connection is gone, and who is killed while it thaws the others leaves the rest frozen.
fn apart() -> Result<(), String> {
	let mut command = Command::new("/proc/self/exe");
	command.args(["signal", "fork", APART]);
	// SAFETY: the closure makes one plain system call.
	unsafe {
		command.pre_exec(|| Ok(setsid().map(drop)?));
	}
	let status = command.status().map_err(|error| format!("cannot start a process: {error}"))?;
	process::exit(status.code().unwrap_or(1))
}

/// Says that the guest is warm. In a clone, makes it one of its own and says that it is alive, or,
/// if that fails, ends it: a clone that is not one of its own must not be used. No other process of the guest runs
/// meanwhile. Gives the name in a clone, and none in the guest that goes on.
pub fn fork(reaper: &Reaper) -> Result<Option<String>, String> {
	let mut signals = find()?;
	let others = freeze::others()?;
	let forked = signals.fork();
	// Closes the ports: hooks must not inherit them.
	drop(signals);
	let forked = match forked {
		Ok(forked) if forked.role == Role::Clone => forked,
		other => {
			others.thaw()?;
			return match other {
				Err(GuestError::Status(Status::Refused)) => Err(REFUSED.into()),
				other => other.map(|_| None).map_err(|error| error.to_string()),
			};
		}
	};
	let renewed = renew::renew(&forked, reaper);
	let mut signals = Signals::known(open()?);
	let alive = |()| signals.alive(&forked.identity.generation).map_err(|error| error.to_string());
	// Said while all else stands still.
	if let Err(message) = renewed.and_then(alive).and_then(|()| others.thaw()) {
		signals.done(renew::FAILED_STATUS, message.as_bytes()).map_err(|error| error.to_string())?;
		return Err(message);
	}
	Ok(Some(forked.identity.name))
}

fn done(signals: &mut Signals<Ports>, status: &str, result: &str) -> Result<(), String> {
	let status = status.parse().map_err(|_| format!("{status:?} is no status: give 0 to 4294967295"))?;
	signals.done(status, result.as_bytes()).map_err(|error| error.to_string())
}
