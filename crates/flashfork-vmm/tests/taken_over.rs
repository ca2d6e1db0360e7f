//! Shells taken over, played by this very program: they go into the same jail, are claimed, and then take, write and
//! fork as much as they can. It costs their own clone.

#[path = "common/daemon.rs"]
mod client;
mod common;
#[path = "common/taken_over.rs"]
mod taken_over;

use client::{Daemon, eventually, exists};
use flashfork_proto::api::{self, Clone, CloneState};
use serde_json::Value;
use std::{
	os::unix::fs::PermissionsExt,
	path::{Path, PathBuf},
};

/// Starts this program as a shell that is about to be taken over: [`taken_over::MARK`] tells it.
fn hostile(directory: &Path) -> PathBuf {
	let path = directory.join("shell");
	let exe = std::env::current_exe().unwrap();
	std::fs::write(&path, format!("#!/bin/sh\n{}=1 exec {}\n", taken_over::MARK, exe.display())).unwrap();
	std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
	path
}

fn kib(path: &str, name: &str) -> u64 {
	let text = std::fs::read_to_string(path).unwrap();
	let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
	line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_shell_that_takes_writes_and_forks_as_much_as_it_can_costs_its_own_clone_only() {
	let Some(honest) = Daemon::with_idler() else { return };
	let directory = honest.dir.path().join("saved");
	honest.save("t", &directory);
	let sibling = honest.clone_of("t");
	let before = kib("/proc/meminfo", "Committed_AS:");

	let daemon = Daemon::start_with(|command, dir| {
		command.arg("--shell").arg(hostile(dir));
	});
	let daemon = daemon.unwrap();
	daemon.load("t", &directory);
	let clone = daemon.clone_of("t");
	let status = format!("/proc/{}/status", clone.pid);
	let shown = || daemon.shown("t-1");
	// It holds what it could get, and says so.
	eventually(|| shown().trouble.is_some() || shown().ended.is_some());
	let told = shown();
	assert!(told.ended.is_none(), "{told:?}");
	let report = told.trouble.unwrap();
	let held = (kib(&status, "RssAnon:") + kib(&status, "RssShmem:")) >> 10;
	assert!(held < 256, "a guest of 4 MiB holds {held} MiB: {report}");
	assert!(report.contains("wrote nothing"), "{report}");
	// The daemon, its templates and another's clones are as before.
	let stats: api::Stats = daemon.get("/v1/stats");
	assert_eq!((stats.templates, stats.clones), (1, 1));
	let state = honest.get::<Clone>(&format!("/v1/clones/{}", sibling.name));
	assert!(state.state == CloneState::Starting && exists(sibling.pid), "{state:?}");
	assert!(before > 0);
	// Its fork is its end.
	daemon.ask("POST", "/v1/clones/t-1/rollback", &Value::Null);
	eventually(|| !exists(clone.pid));
	let ended = shown().ended.unwrap();
	assert!(ended.contains("rollback") || ended.contains("system call filter"), "{ended}");
	honest.clone_of("t");
}
