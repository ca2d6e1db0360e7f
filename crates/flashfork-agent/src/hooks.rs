//! Hooks: programs of the image that run in every clone before it is used, to give userland
//! generators, identities and connections a new start.

use std::{
	ffi::OsStr,
	fs::{self, File},
	io,
	os::unix::{ffi::OsStrExt, fs::PermissionsExt, process::CommandExt},
	path::{Path, PathBuf},
	process::{Command, Stdio},
	thread,
	time::Duration,
};

use flashfork_proto::{
	agent::{CloneIdentity, HookRun},
	generation_hex,
};
use rustix::process::{Signal, kill_process_group};

use crate::{pipes, reaper::Reaper};

/// Where hooks are. All executable files run, in the order of their names.
pub const DIRECTORY: &str = "/etc/flashfork/clone.d";

/// A hook that takes longer is killed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The last this many bytes of a hook's output are kept for its last line.
const TAIL: usize = 4096;

/// Runs all hooks of [`DIRECTORY`], one by one, all of them whatever becomes of one.
pub fn run_all(identity: &CloneIdentity, reaper: &Reaper) -> Vec<HookRun> {
	run_in(Path::new(DIRECTORY), identity, reaper, TIMEOUT)
}

fn run_in(directory: &Path, identity: &CloneIdentity, reaper: &Reaper, timeout: Duration) -> Vec<HookRun> {
	let hooks = match find(directory) {
		Ok(hooks) => hooks,
		Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
		Err(error) => return vec![failed(directory, format!("the directory can't be read: {error}"))],
	};
	hooks
		.iter()
		.map(|hook| run(hook, identity, reaper, timeout).unwrap_or_else(|error| failed(hook, error.to_string())))
		.collect()
}

fn failed(path: &Path, message: String) -> HookRun {
	HookRun { name: name(path), exit: None, message }
}

fn name(path: &Path) -> String {
	path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn find(directory: &Path) -> io::Result<Vec<PathBuf>> {
	let mut hooks = Vec::new();
	for entry in directory.read_dir()? {
		let path = entry?.path();
		let metadata = fs::metadata(&path)?;
		if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
			hooks.push(path);
		}
	}
	hooks.sort();
	Ok(hooks)
}

fn run(hook: &Path, identity: &CloneIdentity, reaper: &Reaper, timeout: Duration) -> io::Result<HookRun> {
	let (output, output_theirs) = io::pipe()?;
	let (ended, ender) = io::pipe()?;
	let mut command = Command::new(hook);
	command
		.stdin(Stdio::null())
		.stdout(output_theirs.try_clone()?)
		.stderr(output_theirs)
		.process_group(0)
		.current_dir("/")
		.env("FLASHFORK_CLONE", &identity.name)
		.env("FLASHFORK_INDEX", identity.index.to_string())
		.env("FLASHFORK_GENERATION", generation_hex(&identity.generation))
		// No variable can hold what is after a NUL.
		.env("FLASHFORK_JOB", OsStr::from_bytes(identity.job.split(|b| *b == 0).next().unwrap_or_default()));
	let spawned = reaper.spawn(&mut command);
	drop(command);
	let (pid, exit) = spawned?;

	let mut output = File::from(std::os::fd::OwnedFd::from(output));
	pipes::set_nonblocking(&output)?;
	let reader = thread::Builder::new().spawn(move || {
		let mut tail = Vec::new();
		let read = pipes::drain(&mut output, &ended, TAIL, |bytes| {
			tail.extend_from_slice(bytes);
			tail.drain(..tail.len().saturating_sub(TAIL));
		});
		match read {
			Ok(()) => last_line(&tail),
			Err(error) => format!("its output can't be read: {error}"),
		}
	})?;
	let exit = exit.recv_timeout(timeout).ok();
	if exit.is_none() {
		// Fails when it has ended this moment.
		let _ = kill_process_group(pid, Signal::KILL);
	}
	drop(ender);
	let said = reader.join().unwrap_or_default();
	let message = match exit {
		Some(_) => said,
		None => format!(
			"killed after {} s (the template's processes stand still until all hooks have run: a hook can't wait for one)",
			timeout.as_secs_f32()
		),
	};
	Ok(HookRun { name: name(hook), exit, message })
}

fn last_line(text: &[u8]) -> String {
	let text = String::from_utf8_lossy(text);
	text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests;
