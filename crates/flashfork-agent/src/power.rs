//! The guest's end.

use std::{thread, time::Duration};

use rustix::{
	process::{Pid, Signal},
	system::{RebootCommand, reboot},
};

/// Time that processes have to end by themselves before the power goes.
const GRACE: Duration = Duration::from_millis(500);

/// Ends the guest, for its init; returns only with the reason why it could not.
pub fn end() -> String {
	// Process 1 is not among those that get it. Both fail only if there are none.
	let _ = kill_everyone(Signal::TERM);
	thread::sleep(GRACE);
	let _ = kill_everyone(Signal::KILL);
	off()
}

/// The same at once.
pub fn off() -> String {
	rustix::fs::sync();
	match reboot(RebootCommand::PowerOff) {
		Ok(()) => "the machine has no power switch".into(),
		Err(errno) => format!("the machine does not power off: {errno}"),
	}
}

fn kill_everyone(signal: Signal) -> rustix::io::Result<()> {
	// kill(2) with -1; a process group of 1 is the same number.
	rustix::process::kill_process_group(Pid::INIT, signal)
}
