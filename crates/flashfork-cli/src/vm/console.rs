//! A clone's console.

use super::client::Client;
use flashfork_proto::api::{self, CloneState};
use flashfork_terminal::CliError;
use std::{process::ExitCode, thread};

/// Shows what the clone writes to its console, from the kept past on, and types what is typed; ends with the clone.
pub fn console(client: &Client, clone: &str) -> Result<ExitCode, CliError> {
	let path = format!("/v1/clones/{clone}");
	let mut stream = client.upgrade(&format!("{path}/console"))?;
	let lives = |shown: &api::Clone| shown.state != CloneState::Ended;
	let shell = || client.get(&path).ok().filter(lives).map(|clone| clone.pid);
	let before = shell();
	let mut writer = stream.get_ref().try_clone().map_err(|e| CliError::Unable(e.to_string()))?;
	thread::spawn(move || {
		// A clone that has ended takes no more.
		let _ = std::io::copy(&mut std::io::stdin().lock(), &mut writer);
	});
	std::io::copy(&mut stream, &mut std::io::stdout().lock()).map_err(CliError::file("pass on", "the console"))?;
	if before.is_some() && shell() == before {
		return Err(CliError::Unable(format!("{clone} wrote more, which was not read in time: try again")));
	}
	Ok(ExitCode::SUCCESS)
}
