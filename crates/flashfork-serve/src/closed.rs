//! Files with secrets of the server's: keys, and the private key of its certificate.

use flashfork_terminal::CliError;
use rustix::process::geteuid;
use std::{
	fs::File,
	io::Read,
	os::{fd::AsRawFd, unix::fs::MetadataExt},
	path::Path,
};

/// Reads one that nobody else can read. Functions run as the server's user, and see all but its directory: there it has
/// to be, unless root starts the server, which becomes another user afterwards. Who runs no functions has no `state`.
pub fn read(path: &Path, state: Option<&Path>) -> Result<Vec<u8>, CliError> {
	let bad = |why: String| Err(CliError::Unable(format!("{} {why}", path.display())));
	let mut file = File::open(path).map_err(CliError::file("open", path))?;
	let facts = file.metadata().map_err(CliError::file("read", path))?;
	if !facts.is_file() || facts.mode() & 0o077 != 0 {
		return bad("may be read by others: it has to be a file, and its owner's alone (chmod 600)".into());
	}
	if facts.uid() != geteuid().as_raw() {
		return bad(format!("belongs to another user than starts the server (chown {})", geteuid().as_raw()));
	}
	let place = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
	let place = place.map_err(CliError::file("find", path))?;
	let hidden = |state: &Path| state.canonicalize().is_ok_and(|state| place.starts_with(state)) && facts.nlink() == 1;
	if let Some(state) = state
		&& !geteuid().is_root()
		&& !hidden(state)
	{
		let state = state.display();
		return bad(format!(
			"may be read by functions: move it to {state}, without links, or start the server as root"
		));
	}
	let mut bytes = Vec::new();
	file.read_to_end(&mut bytes).map_err(CliError::file("read", path))?;
	Ok(bytes)
}
