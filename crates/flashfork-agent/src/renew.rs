//! Makes a clone one of its own, with what the monitor answered to the fork signal.

use flashfork_proto::{
	agent::{HookRun, Stamp},
	signal::Forked,
};

use crate::{clock, disks, entropy, hooks, hostname, machine_id, reaper::Reaper};

/// Status of the done signal of a clone that could not be made one of its own.
pub const FAILED_STATUS: u32 = 125;

const NANOS: u64 = 1_000_000_000;

/// Entropy first, since all that follows may draw from it; then the clock, the host name, the machine id and the
/// disks; then the hooks.
pub fn renew(forked: &Forked, reaper: &Reaper) -> Result<(), String> {
	entropy::reseed(&forked.entropy).map_err(|error| error.message)?;
	let now = Stamp {
		seconds: i64::try_from(forked.realtime_ns / NANOS).unwrap_or(i64::MAX),
		nanoseconds: (forked.realtime_ns % NANOS) as u32,
	};
	clock::set(now).map_err(|error| error.message)?;
	hostname::set(&forked.identity.name)?;
	machine_id::renew();
	disks::attach(&forked.disks)?;
	match hooks::run_all(&forked.identity, reaper).iter().find(|run| !run.succeeded()) {
		Some(run) => Err(failure(run)),
		None => Ok(()),
	}
}

fn failure(run: &HookRun) -> String {
	let status = run.exit.map(|exit| format!(" (status {})", exit.shell_status())).unwrap_or_default();
	let said = if run.message.is_empty() { String::new() } else { format!(": {}", run.message) };
	format!("hook {} failed{status}{said}", run.name)
}

#[cfg(test)]
mod tests {
	use super::*;
	use flashfork_proto::agent::Exit;

	#[test]
	fn a_hook_that_failed_is_named_with_what_is_known() {
		let run = |exit, message: &str| failure(&HookRun { name: "10-x".into(), exit, message: message.into() });
		assert_eq!(run(Some(Exit::Code(3)), ""), "hook 10-x failed (status 3)");
		assert_eq!(run(Some(Exit::Signal(9)), "last words"), "hook 10-x failed (status 137): last words");
		assert_eq!(run(None, "killed after 10 s"), "hook 10-x failed: killed after 10 s");
	}
}
