//! Whether the program still is what it was started as: its clones have what it has, and where it has given something
//! up nobody could make them. Asked from outside, while it stands still.

use flashfork_core::forkall::{Fit, Unfit, What};
use std::{
	fs::{metadata, read_link, read_to_string},
	io::{Error, ErrorKind, Result},
	os::unix::fs::MetadataExt,
	path::PathBuf,
};

/// Lines of /proc/PID/status (proc_pid_status(5)) that are the keeper's, too.
const CREDENTIALS: [&str; 4] = ["Uid:", "Gid:", "Groups:", "NoNewPrivs:"];
const FILTERS: [&str; 2] = ["Seccomp:", "Seccomp_filters:"];
const CAPABILITIES: [&str; 5] = ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:", "CapBnd:"];

/// Links of /proc/PID/ns that are the init's, too. There may be fewer.
const NAMESPACES: [&str; 7] = ["mnt", "net", "pid_for_children", "user", "uts", "ipc", "time_for_children"];

/// Compares a program with this process and with its init, all by their numbers here. `none`: it was started without
/// capabilities.
pub fn compare(program: i32, init: i32, none: bool) -> Fit {
	let system = |e: Error| Unfit::new(What::System, e.raw_os_error().unwrap_or(libc::EIO));
	let status = |pid: &str| read_to_string(format!("/proc/{pid}/status")).map_err(system);
	let (its, own) = (status(&program.to_string())?, status("self")?);
	let same = |key: &&str| line(&its, key) == line(&own, key);
	let is_none = |key: &&str| line(&its, key).bytes().all(|digit| digit == b'0');
	let capable = if none { CAPABILITIES.iter().all(is_none) } else { CAPABILITIES.iter().all(same) };
	if !FILTERS.iter().all(same) {
		return Err(Unfit::new(What::Filter, program));
	}
	if !CREDENTIALS.iter().all(same) || !capable {
		return Err(Unfit::new(What::Credentials, program));
	}
	if place(program).map_err(system)? != place(init).map_err(system)? {
		return Err(Unfit::new(What::Namespace, program));
	}
	Ok(())
}

fn line<'a>(status: &'a str, key: &str) -> &'a str {
	status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim()
}

/// Where a process is: its namespaces, and device and inode of its root directory.
fn place(pid: i32) -> Result<(Vec<Option<PathBuf>>, u64, u64)> {
	let namespaces = NAMESPACES.iter().map(|kind| match read_link(format!("/proc/{pid}/ns/{kind}")) {
		// This kernel has none of the kind; or no child was made in it yet.
		Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
		told => told.map(Some),
	});
	let root = metadata(format!("/proc/{pid}/root"))?;
	Ok((namespaces.collect::<Result<_>>()?, root.dev(), root.ino()))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_program_that_has_given_nothing_up_is_as_it_was() {
		let own = i32::try_from(std::process::id()).unwrap();
		assert_eq!(compare(own, own, false), Ok(()));
	}

	#[test]
	fn one_that_has_capabilities_although_it_was_started_without_is_not() {
		let own = i32::try_from(std::process::id()).unwrap();
		let bounds = read_to_string("/proc/self/status").unwrap();
		// Of whoever runs the test, most have bounds.
		let none = CAPABILITIES.iter().all(|key| line(&bounds, key).bytes().all(|digit| digit == b'0'));
		let expected = if none { Ok(()) } else { Err(Unfit::new(What::Credentials, own)) };
		assert_eq!(compare(own, own, true), expected);
	}
}
