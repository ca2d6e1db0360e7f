//! What of a process's memory changes between two moments. It is stopped for each look, and goes on whoever is killed.
//!
//! The writable private memory of the stopped process is read through `/proc/PID/mem`, only where `/proc/PID/pagemap`
//! says that there is a page: looking makes none. Contents are compared, so a byte written back as it was doesn't
//! count.

mod blocks;
mod snapshot;
mod stopped;

pub use blocks::{Change, GRANULES};
pub use snapshot::Snapshot;
pub(crate) use stopped::is_stopped;

use std::time::{Duration, Instant};

use flashfork::Headroom;
use flashfork_terminal::size::show;

use crate::error::AdviseError;
use snapshot::populated;
use stopped::Stopped;

/// How often it is asked whether somebody wants to stop.
const LOOK: Duration = Duration::from_millis(20);

/// What changes in the running process `pid` meanwhile, or until somebody wants to stop.
///
/// # Errors
/// The process is not there, ends meanwhile or denies access; a copy of its memory doesn't fit.
pub fn visit(pid: i32, during: Duration, interrupted: &dyn Fn() -> bool) -> Result<Change, AdviseError> {
	let before = look(pid)?;
	let begin = Instant::now();
	while begin.elapsed() < during && !interrupted() {
		std::thread::sleep(LOOK.min(during));
	}
	second_look(pid, &before)
}

/// The memory of the process `pid`, which is stopped meanwhile, if a copy fits.
///
/// # Errors
/// As for [`visit`].
pub fn look(pid: i32) -> Result<Snapshot, AdviseError> {
	// Asked first: nothing of it is stopped that can't be looked at.
	if populated(pid)? == 0 {
		let why = format!("process {pid} has no memory of its own to look at: it is a kernel thread or dead");
		return Err(AdviseError::Unable(why));
	}
	let _stopped = Stopped::hold(pid)?;
	let needed = populated(pid)?;
	let needed = needed + needed / 4;
	let Headroom { available, limit } = headroom()?;
	if needed > available {
		let (needed, available) = (show(needed), show(available));
		return Err(AdviseError::Unable(format!(
			"a copy of the memory of process {pid} needs {needed} of memory and {available} are free ({limit}); free \
			 memory"
		)));
	}
	Snapshot::of(pid)
}

/// What has changed in the process `pid` since `before`. It is stopped meanwhile.
///
/// # Errors
/// As for [`visit`].
pub fn second_look(pid: i32, before: &Snapshot) -> Result<Change, AdviseError> {
	let _stopped = Stopped::hold(pid)?;
	before.compare(pid)
}

pub(crate) fn headroom() -> Result<Headroom, AdviseError> {
	Headroom::now().map_err(|error| AdviseError::system("read how much memory is available", error))
}
