//! A shell on the console, for people.

use std::{fs::OpenOptions, io, process::Command, thread, time::Duration};

use crate::{exec::control, log, reaper::Reaper};

/// The console's terminal; /dev/console itself can't be a controlling one.
const TERMINAL: &str = "/dev/ttyS0";

/// Starts a shell again whenever it ends.
pub fn keep_running(reaper: &Reaper) -> io::Result<()> {
	let reaper = reaper.clone();
	thread::Builder::new().spawn(move || {
		loop {
			match start(&reaper) {
				// The channel ends with the shell, whatever its status.
				Ok(exit) => drop(exit.recv()),
				Err(error) => log::line(&format!("cannot start a shell on {TERMINAL}: {error}")),
			}
			thread::sleep(Duration::from_secs(1));
		}
	})?;
	Ok(())
}

fn start(reaper: &Reaper) -> io::Result<std::sync::mpsc::Receiver<flashfork_proto::agent::Exit>> {
	let terminal = OpenOptions::new().read(true).write(true).open(TERMINAL)?;
	let mut command = Command::new("/bin/sh");
	command
		.arg("-l")
		.stdin(terminal.try_clone()?)
		.stdout(terminal.try_clone()?)
		.stderr(terminal)
		.current_dir("/")
		.env("HOME", "/root")
		.env("TERM", "linux");
	control(&mut command);
	reaper.spawn(&mut command).map(|(_, exit)| exit)
}
