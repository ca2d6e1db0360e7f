//! What a run of the server has with the VM daemon goes with it, however it ends: this program, started again, waits
//! for that.

use super::daemon::{Daemon, Refusal};
use flashfork_proto::api;
use std::{
	io::{Read, Result},
	os::unix::process::CommandExt,
	path::Path,
	process::{ChildStdin, Command, Stdio},
};

/// The argument of a watcher, before the daemon's socket and what the names begin with that it removes.
pub const WATCHER: &str = "watcher of virtual machines";

/// How often is looked for what is left while there still is something: a clone may have been in the making.
const ROUNDS: usize = 5;

/// Starts one, which waits until this is dropped.
pub fn start(daemon: &Daemon, prefix: &str) -> Result<ChildStdin> {
	let mut watcher = Command::new("/proc/self/exe");
	watcher.arg(WATCHER).arg(&daemon.socket).arg(prefix).env_clear();
	// An interrupt from the keyboard ends the server alone.
	watcher.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
	watcher.spawn()?.stdin.take().ok_or_else(|| std::io::Error::other("a watcher without its pipe"))
}

/// What this program does when it is started as a watcher.
pub fn main(socket: &Path, prefix: &str) {
	// Nothing is ever written.
	let _ = std::io::stdin().read(&mut [0]);
	if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
		let daemon = Daemon { socket: socket.to_owned() };
		// What stays the server's next start removes, which says so if it can't.
		let _ = runtime.block_on(sweep(&daemon, |name| name.starts_with(prefix)));
	}
}

/// Removes all that is called so.
pub async fn sweep(daemon: &Daemon, is_left: impl Fn(&str) -> bool) -> std::result::Result<(), Refusal> {
	let mut refusal = None;
	for _ in 0..ROUNDS {
		let clones: Vec<api::Clone> = daemon.get("/v1/clones").await?;
		let templates: Vec<api::Template> = daemon.get("/v1/templates").await?;
		let clones = clones.iter().map(|clone| ("clones", &clone.name));
		let all = clones.chain(templates.iter().map(|template| ("templates", &template.name)));
		// A template goes after its clones.
		let left = all.filter(|(_, name)| is_left(name)).map(|(kind, name)| format!("/v1/{kind}/{name}"));
		let left: Vec<_> = left.collect();
		if left.is_empty() {
			return Ok(());
		}
		for path in left {
			refusal = daemon.delete(&path).await.err().or(refusal);
		}
	}
	refusal.map_or(Ok(()), Err)
}
