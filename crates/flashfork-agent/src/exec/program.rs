//! What to start: program, environment, directory, user.

use std::{
	ffi::OsStr,
	io,
	os::unix::{ffi::OsStrExt, process::CommandExt},
	path::Path,
	process::Command,
};

use flashfork_proto::agent::{AgentError, ErrorKind, Exec};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use crate::users;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The command that `exec` describes, without standard input and output, in its own process group.
pub fn command(exec: &Exec) -> Result<Command, AgentError> {
	let fail = |kind, message: String| Err(AgentError { kind, message });
	let Some((program, arguments)) = exec.argv.split_first() else {
		return fail(ErrorKind::Invalid, "no command to run".into());
	};
	let wanted = exec.user.as_deref().unwrap_or("root");
	let Some(user) = users::find(wanted) else {
		return fail(ErrorKind::NotFound, format!("the guest has no user or group {wanted:?}"));
	};
	let directory = match &exec.cwd {
		Some(path) => Path::new(OsStr::from_bytes(path)),
		// An agent that is an ordinary user's may not be allowed into root's.
		None if rustix::fs::access(Path::new(&user.home).join("."), rustix::fs::Access::EXEC_OK).is_ok() => {
			Path::new(&user.home)
		}
		None => Path::new("/"),
	};
	if !directory.is_dir() {
		return fail(ErrorKind::NotFound, format!("the guest has no directory {}", directory.display()));
	}

	let mut command = Command::new(OsStr::from_bytes(program));
	command.args(arguments.iter().map(|argument| OsStr::from_bytes(argument)));
	command.current_dir(directory);
	command.env_clear();
	command.env("PATH", PATH).env("HOME", &user.home).env("USER", &user.name).env("SHELL", &user.shell);
	if exec.terminal.is_some() {
		command.env("TERM", "linux");
	}
	for (name, value) in &exec.env {
		if name.is_empty() || name.contains(&b'=') {
			let name = String::from_utf8_lossy(name);
			return fail(ErrorKind::Invalid, format!("{name:?} can't name a variable"));
		}
		command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
	}
	if rustix::process::geteuid().is_root() {
		let become_user = move || -> io::Result<()> {
			set_thread_groups(&user.groups)?;
			set_thread_gid(user.gid)?;
			set_thread_uid(user.uid)?;
			Ok(())
		};
		// SAFETY: the closure makes three plain system calls on values it owns; nothing is allocated.
		unsafe {
			command.pre_exec(become_user);
		}
	} else if exec.user.is_some() && user.uid != rustix::process::geteuid() {
		return fail(ErrorKind::Denied, format!("the agent is not root and can't become {wanted:?}"));
	}
	Ok(command)
}

/// What a failure to start `exec` means.
pub fn not_started(exec: &Exec, error: &io::Error) -> AgentError {
	let program = exec.argv.first().map(|program| String::from_utf8_lossy(program)).unwrap_or_default();
	let kind = match error.kind() {
		io::ErrorKind::NotFound => ErrorKind::NotFound,
		io::ErrorKind::PermissionDenied => ErrorKind::Denied,
		io::ErrorKind::InvalidInput => ErrorKind::Invalid,
		_ => ErrorKind::Failed,
	};
	let message = match kind {
		ErrorKind::NotFound => format!("the guest has no program {program:?}, or not its interpreter"),
		_ => format!("{program:?} does not start: {error}"),
	};
	AgentError { kind, message }
}
