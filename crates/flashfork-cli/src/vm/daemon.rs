//! Finding the daemon, and starting it when it isn't there.

use super::client::Client;
use flashfork_proto::api;
use flashfork_terminal::{CliError, places};
use rustix::{
	event::{PollFd, PollFlags, Timespec, poll},
	io::Errno,
	process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal, set_parent_process_death_signal},
};
use std::{
	fs::{self, DirBuilder, OpenOptions},
	io::ErrorKind,
	os::unix::{
		fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt},
		net::{SocketAddr, UnixStream},
		process::CommandExt,
	},
	path::{Path, PathBuf},
	process::{Child, Command, Stdio},
	time::{Duration, Instant},
};
use tempfile::TempDir;

/// A daemon listens within milliseconds of its start.
pub const START: Duration = Duration::from_secs(10);

/// It ends as soon as it is told to.
const STOP: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// The command that runs a daemon at `socket`. The default one's directory is made, any other must be there.
pub fn command(socket: &Path) -> Result<Command, CliError> {
	check_place(socket)?;
	let dir = socket.parent().unwrap_or(Path::new("/"));
	if socket == places::vm_socket() {
		make_private(dir)?;
	} else if !dir.exists() {
		let (socket, dir) = (socket.display(), dir.display());
		return Err(CliError::Unable(format!("can't listen at {socket}: there is no directory {dir}")));
	}
	let mut command = Command::new(places::monitor("flashfork-vmd")?);
	command.arg("--socket").arg(socket).arg("--cache").arg(places::cache("lab")?);
	Ok(command)
}

/// Refuses where no daemon can listen, before anything is made beside it.
fn check_place(socket: &Path) -> Result<(), CliError> {
	let refused = |why| Err(CliError::Unable(format!("{} {why}: give another --socket", socket.display())));
	if SocketAddr::from_pathname(socket).is_err() {
		return refused("is too long for a socket's path");
	}
	match fs::metadata(socket) {
		Ok(there) if !there.file_type().is_socket() => refused("is there and is no socket"),
		Ok(_) => Ok(()),
		Err(e) if matches!(e.kind(), ErrorKind::NotFound) => Ok(()),
		Err(e) => Err(CliError::file("look at", socket)(e)),
	}
}

/// Makes the directory of the default socket, whose name can be guessed, and which may be where everybody makes files.
fn make_private(dir: &Path) -> Result<(), CliError> {
	DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(CliError::file("create", dir))?;
	check_private(dir)
}

/// Refuses a directory in which others could put a socket or log of theirs.
fn check_private(dir: &Path) -> Result<(), CliError> {
	let found = fs::symlink_metadata(dir).map_err(CliError::file("look at", dir))?;
	let ours = found.is_dir() && found.uid() == geteuid().as_raw();
	if ours && found.mode() & 0o022 == 0 {
		return Ok(());
	}
	let what = if ours { "others may write to it" } else { "it is no directory of yours" };
	Err(CliError::Unable(format!(
		"{} is no place for the VM daemon's socket: {what}; remove it, set XDG_RUNTIME_DIR, or give --socket",
		dir.display()
	)))
}

/// The daemon at `socket`, if somebody listens there.
pub fn find(socket: &Path) -> Result<Option<Client>, CliError> {
	check_place(socket)?;
	let client = Client::new(socket);
	if !client.answers()? {
		// What an ended daemon has left runs on, for the next one.
		return if has_left(socket) { start_at(socket).map(Some) } else { Ok(None) };
	}
	let own = env!("CARGO_PKG_VERSION");
	let daemon = client.daemon()?;
	if (daemon.flashfork.as_str(), daemon.api) == (own, api::VERSION) {
		return Ok(Some(client));
	}
	Err(CliError::Unable(format!(
		"the VM daemon at {} is that of flashfork {}, this is {own}: `flashfork vm stop` ends it, its templates and its clones",
		socket.display(),
		daemon.flashfork
	)))
}

/// The daemon at `socket`, started if nobody listens there.
pub fn connect(socket: &Path) -> Result<Client, CliError> {
	find(socket)?.map_or_else(|| start_at(socket), Ok)
}

/// Whether templates and clones are there without a daemon: what holds them listens beside its socket, for packets and
/// no streams.
fn has_left(socket: &Path) -> bool {
	let mut store = socket.as_os_str().to_owned();
	store.push(".store");
	UnixStream::connect(PathBuf::from(store)).is_err_and(|e| e.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error()))
}

fn start_at(socket: &Path) -> Result<Client, CliError> {
	let dir = socket.parent().filter(|dir| !dir.exists());
	let mut command = command(socket)?;
	// Its own session: it outlives this command and its terminal.
	command.process_group(0);
	if let Err(e) = start(&mut command, socket) {
		// Made for the daemon that there isn't; it stays if something is in it.
		let _ = dir.map(fs::remove_dir);
		return Err(e);
	}
	Ok(Client::new(socket))
}

/// Ends the daemon at `socket`, and with it its templates and clones; whether there was one.
pub fn stop(socket: &Path) -> Result<bool, CliError> {
	check_place(socket)?;
	let client = Client::new(socket);
	if !client.answers()? {
		if !has_left(socket) {
			return Ok(false);
		}
		start_at(socket)?;
	}
	// Whatever else listens isn't ended.
	client.daemon()?;
	let pid = client.peer()?;
	let failed = |what: &str| {
		let what = format!("cannot {what} the VM daemon, process {pid}");
		move |e| CliError::Unable(format!("{what}: {e}"))
	};
	let process = pidfd_open(pid, PidfdFlags::empty()).map_err(failed("find"))?;
	// The other signals leave what it has to the next one.
	pidfd_send_signal(&process, Signal::INT).map_err(failed("end"))?;
	let mut ended = [PollFd::new(&process, PollFlags::IN)];
	match poll(&mut ended, Some(&STOP)).map_err(failed("wait for"))? {
		0 => Err(CliError::Unable(format!("the VM daemon, process {pid}, was told to end and goes on"))),
		_ => Ok(true),
	}
}

/// A daemon of this command's own, which ends with it and leaves nothing behind.
pub struct Private {
	child: Child,
	pub client: Client,
	_dir: TempDir,
}

impl Private {
	pub fn start() -> Result<Self, CliError> {
		let dir = tempfile::tempdir()
			.map_err(CliError::file("create", "a temporary directory"))
			.map_err(|e| e.if_denied("set TMPDIR to a directory where you may write"))?;
		let socket = dir.path().join("vmd.sock");
		let mut command = command(&socket)?;
		// SAFETY: between fork and exec, one system call.
		unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::INT))?)) };
		let child = start(&mut command, &socket)?;
		Ok(Self { child, client: Client::new(&socket), _dir: dir })
	}
}

impl Drop for Private {
	fn drop(&mut self) {
		// Killed, it would leave what it has to another one.
		let told = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).and_then(|process| {
			pidfd_send_signal(&process, Signal::INT)?;
			poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&STOP))
		});
		match told {
			Ok(1) => drop(self.child.wait()),
			_ => end(&mut self.child),
		}
	}
}

fn end(child: &mut Child) {
	// Both fail if it has ended already. It has nothing yet.
	let _ = child.kill();
	let _ = child.wait();
}

/// Runs a daemon and waits until it listens. What it says goes to a file named after the socket.
fn start(command: &mut Command, socket: &Path) -> Result<Child, CliError> {
	// Added, not in an extension's place: else two sockets could have one log, or a socket its own path.
	let mut log_path = socket.as_os_str().to_owned();
	log_path.push(".log");
	let log_path = PathBuf::from(log_path);
	let failed = || CliError::file("write", &log_path);
	let options = || OpenOptions::new().append(true).mode(0o600).to_owned();
	let (log, new) = match options().create_new(true).open(&log_path) {
		Ok(log) => (log, true),
		Err(e) if e.kind() == ErrorKind::AlreadyExists => (options().open(&log_path).map_err(failed())?, false),
		Err(e) => return Err(failed()(e)),
	};
	let before = log.metadata().map_or(0, |m| m.len()) as usize;
	command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).current_dir("/");
	let result = listening(command, socket, || {
		let said = fs::read_to_string(&log_path).unwrap_or_default();
		let line = said.get(before..).and_then(|new| new.lines().next()).unwrap_or("it does not listen");
		line.trim_start_matches("flashfork-vmd: ").to_owned()
	});
	if result.is_err() && new {
		// The error has what was in it.
		let _ = fs::remove_file(&log_path);
	}
	result
}

/// Waits until the daemon that `command` starts listens; `said` is its last word if it doesn't.
fn listening(command: &mut Command, socket: &Path, said: impl FnOnce() -> String) -> Result<Child, CliError> {
	let mut child = command.spawn().map_err(CliError::file("start", "flashfork-vmd"))?;
	let client = Client::new(socket);
	let start = Instant::now();
	while start.elapsed() < START {
		// Somebody else's socket is an end too, and the daemon isn't left behind.
		match client.answers() {
			Ok(true) => return Ok(child),
			Ok(false) => {}
			Err(e) => {
				end(&mut child);
				return Err(e);
			}
		}
		if child.try_wait().is_ok_and(|status| status.is_some()) {
			break;
		}
		std::thread::sleep(Duration::from_millis(5));
	}
	end(&mut child);
	Err(CliError::Unable(format!("the VM daemon did not start: {}", said())))
}

#[cfg(test)]
mod tests;
