//! Names of clones at a prompt.

use super::client::Client;
use clap_complete::CompletionCandidate;
use flashfork_proto::api;
use flashfork_terminal::places;
use std::{
	ffi::{OsStr, OsString},
	os::unix::ffi::OsStrExt,
	path::PathBuf,
	time::Duration,
};

/// Nobody waits longer for what he could type.
const PATIENCE: Duration = Duration::from_secs(1);

/// The clones of the daemon that is meant. Nothing may be printed at a prompt: where there is none, there are no names.
pub fn candidates() -> Vec<CompletionCandidate> {
	// The line that is asked about is among them.
	let line: Vec<_> = std::env::args_os().collect();
	let client = Client::new(&socket(&line).unwrap_or_else(places::vm_socket)).within(PATIENCE);
	client.get::<Vec<api::Clone>>("/v1/clones").into_iter().flatten().map(|clone| clone.name.into()).collect()
}

fn socket(line: &[OsString]) -> Option<PathBuf> {
	let at = line.iter().position(|word| word.as_bytes().starts_with(b"--socket"))?;
	match line[at].as_bytes().strip_prefix(b"--socket=") {
		Some(path) => Some(PathBuf::from(OsStr::from_bytes(path))),
		None => line.get(at + 1).map(PathBuf::from),
	}
}
