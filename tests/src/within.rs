//! Runs a program for a limited time. One that is not at its end by then is asked where it is, and ended with its
//! children.

use std::{
	fmt::Write as _,
	io::{self, Read, Seek},
	os::unix::process::CommandExt,
	path::Path,
	process::{Command, Output},
	time::Duration,
};
use wait_timeout::ChildExt;

/// Runs the command in its own process group, its output kept in files: a child that outlives it holds nothing up.
///
/// # Errors
/// It can't be started, or (`TimedOut`) is not at its end when the time is over. The error then says for each thread of
/// the group what it does in the kernel; the group has been ended with SIGKILL.
pub fn within(limit: Duration, command: &mut Command) -> io::Result<Output> {
	let [mut out, mut err] = [tempfile::tempfile()?, tempfile::tempfile()?];
	command.stdout(out.try_clone()?).stderr(err.try_clone()?);
	let mut child = command.process_group(0).spawn()?;
	let group = child.id();
	let status = child.wait_timeout(limit)?;
	let left = if status.is_none() { whereabouts(group) } else { String::new() };
	if status.is_none() {
		// SAFETY: a signal to the group made for this child, which has not been waited for.
		unsafe { libc::kill(-group.cast_signed(), libc::SIGKILL) };
		child.wait()?;
	}
	let [stdout, stderr] = [contents(&mut out)?, contents(&mut err)?];
	match status {
		Some(status) => Ok(Output { status, stdout, stderr }),
		None => {
			let [said, complained] = [String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)];
			let text = format!("still running after {} s\n{said}{complained}{left}", limit.as_secs());
			Err(io::Error::new(io::ErrorKind::TimedOut, text))
		}
	}
}

fn contents(file: &mut std::fs::File) -> io::Result<Vec<u8>> {
	let mut bytes = Vec::new();
	file.rewind()?;
	file.read_to_end(&mut bytes)?;
	Ok(bytes)
}

/// For each thread of a process group: its process, name, state, and what it waits for; the kernel's stack where that
/// may be read.
fn whereabouts(group: u32) -> String {
	let mut text = String::new();
	for process in numbered(Path::new("/proc")) {
		let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
		// proc(5): after the name in parentheses come the state, the parent and the group.
		let of = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(2));
		if of != Some(group.to_string().as_str()) {
			continue;
		}
		for task in numbered(&process.join("task")) {
			let _ = writeln!(text, "{}", task.display());
			for file in ["stat", "wchan", "syscall", "stack"] {
				let told = std::fs::read_to_string(task.join(file)).unwrap_or_else(|e| e.to_string());
				let _ = writeln!(text, "  {file}: {}", told.trim());
			}
			let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
			for line in status.lines().filter(|line| line.starts_with("Sig") || line.starts_with("TracerPid")) {
				let _ = writeln!(text, "  {line}");
			}
		}
	}
	text
}

/// The entries of a directory of /proc that are numbers: processes, or threads. None when it is gone.
fn numbered(place: &Path) -> Vec<std::path::PathBuf> {
	let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
	entries.filter(|e| e.file_name().to_str().is_some_and(|n| n.parse::<u32>().is_ok())).map(|e| e.path()).collect()
}
