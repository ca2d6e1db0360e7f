//! Starts the program, passes signals on to it, and waits.

use crate::warm::caller;
use flashfork_terminal::CliError;
use nix::sys::{
	signal::{self, SigSet},
	signalfd::{SfdFlags, SignalFd, siginfo},
};
use rustix::{
	event::{PollFd, PollFlags, poll},
	io::Errno,
	process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, set_parent_process_death_signal, waitid},
};
use std::{
	ffi::OsStr,
	os::{fd::AsFd, unix::process::CommandExt},
	path::Path,
	process::{Command, ExitStatus},
	time::Duration,
};

/// What came of it.
pub enum Outcome {
	/// It ran, and ended so.
	Ended(ExitStatus),
	/// It could not be started: the exit code a shell would give, and why.
	NotStarted { code: u8, why: String },
}

/// Signals that the program gets in place of this command, ignored here or not: it may have a handler all the same.
const PASSED_ON: [signal::Signal; 6] = [
	signal::Signal::SIGHUP,
	signal::Signal::SIGINT,
	signal::Signal::SIGQUIT,
	signal::Signal::SIGTERM,
	signal::Signal::SIGUSR1,
	signal::Signal::SIGUSR2,
];

/// Those that a terminal sends to the whole group in front.
const OF_TERMINALS: [Signal; 2] = [Signal::INT, Signal::QUIT];

/// Runs the command to its end. The terminal's own signals reach the program directly; those sent to us are passed on,
/// and those that are ignored or blocked here are so there.
pub fn run(command: &mut Command, name: &OsStr) -> Result<Outcome, CliError> {
	let unable = |what: &str| {
		let what = format!("can't {what} {}", name.display());
		move |e: std::io::Error| CliError::Unable(format!("{what}: {e}"))
	};
	let blocked = SigSet::thread_get_mask().map_err(|e| unable("start")(e.into()))?;
	let signals = caller::take_signals(PASSED_ON)?;
	// Where it is ignored nobody is told how a child ends (wait(2)).
	// SAFETY: its default action runs no code of this process.
	unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
	let changes = child_signals().map_err(|e| unable("watch over")(e.into()))?;
	// SAFETY: between fork and exec only async-signal-safe calls are made.
	unsafe { command.pre_exec(move || as_found(&blocked)) };
	let mut child = match command.spawn() {
		Ok(child) => child,
		Err(e) => return Ok(not_started(name, &e)),
	};
	let pid = Pid::from_child(&child);
	loop {
		let all = [signals.as_fd(), changes.as_fd()];
		let mut ready = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
		match poll(&mut ready, None) {
			Ok(_) | Err(Errno::INTR) => {}
			Err(e) => return Err(unable("wait for")(e.into())),
		}
		let changed = std::iter::from_fn(|| changes.read_signal().ok().flatten()).count() > 0;
		while let Ok(Some(info)) = signals.read_signal() {
			pass_on(&info, pid);
		}
		if changed {
			match child.try_wait().map_err(unable("wait for"))? {
				Some(status) => return Ok(Outcome::Ended(status)),
				None => stop_with(pid),
			}
		}
	}
}

/// Tells when the program has ended, is stopped, or goes on. Not by a descriptor of the process (`pidfd_open(2)`): some
/// sandboxes have none, and the program would run already when that is found out.
fn child_signals() -> nix::Result<SignalFd> {
	let set = SigSet::from(signal::Signal::SIGCHLD);
	set.thread_block()?;
	SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// Where the program has been stopped this command stops too, or whoever started it would see it run; continued, it
/// continues the program.
fn stop_with(program: Pid) {
	let stopped = |more| {
		let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | more;
		let status = waitid(WaitId::Pid(program), options).ok().flatten()?;
		Signal::from_named_raw(status.stopping_signal()?)
	};
	if stopped(WaitIdOptions::NOWAIT).is_none() {
		return;
	}
	// What a terminal sends to stop or continue both may have reached one of them only.
	std::thread::sleep(Duration::from_millis(5));
	let Some(signal) = stopped(WaitIdOptions::empty()) else { return };
	// Where that one is ignored.
	let own = if caller::ignored() & caller::bit(signal.as_raw()) == 0 { signal } else { Signal::STOP };
	let _ = kill_process(getpid(), own);
	let _ = kill_process(program, Signal::CONT);
}

/// The program may have ended in this moment; then there is nobody to tell.
fn pass_on(info: &siginfo, to: Pid) {
	let signal = i32::try_from(info.ssi_signo).ok().and_then(Signal::from_named_raw);
	// From a terminal the program has it already.
	let has_it = |signal| info.ssi_code == flashfork_warm::FROM_KERNEL && OF_TERMINALS.contains(&signal);
	if let Some(signal) = signal.filter(|signal| !has_it(*signal)) {
		let _ = kill_process(to, signal);
	}
}

/// In the child, before its exec: signals as this command's caller had them, where Rust's library has its own way; and
/// the kernel ends the program when this command dies, so that a killed `flashfork run` leaves nothing behind.
fn as_found(blocked: &SigSet) -> std::io::Result<()> {
	for signal in [libc::SIGPIPE, libc::SIGCHLD] {
		if caller::ignored() & caller::bit(signal) != 0 {
			// SAFETY: ignoring a signal runs no code.
			unsafe { libc::signal(signal, libc::SIG_IGN) };
		}
	}
	for stream in (0..3).filter(|stream| caller::was_closed(*stream)) {
		// SAFETY: Rust's runtime has opened /dev/null in its place, which nobody in this child uses.
		unsafe { libc::close(stream) };
	}
	blocked.thread_set_mask()?;
	set_parent_process_death_signal(Some(Signal::TERM)).map_err(Into::into)
}

fn not_started(name: &OsStr, e: &std::io::Error) -> Outcome {
	let with_path = name.as_encoded_bytes().contains(&b'/');
	let (code, why) = match e.kind() {
		std::io::ErrorKind::NotFound if !with_path => (127, "not found in PATH".into()),
		std::io::ErrorKind::NotFound => (127, "no such file".into()),
		// The kernel only says that permission is denied.
		std::io::ErrorKind::PermissionDenied if with_path && Path::new(name).is_dir() => {
			(126, "it is a directory".into())
		}
		_ => (126, e.to_string()),
	};
	Outcome::NotStarted { code, why: format!("can't run '{}': {why}", name.display()) }
}
