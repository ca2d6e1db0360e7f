//! One daemon per socket. A killed one leaves a socket nobody listens at. A socket that systemd has made stays
//! systemd's.

use rustix::{
	fs::{FlockOperation, Mode, flock},
	net::listen,
	process::umask,
};
use std::{
	fs::{self, DirBuilder, File, OpenOptions},
	io,
	os::{
		fd::{FromRawFd, OwnedFd},
		unix::{
			fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt},
			net::{SocketAddr, UnixListener, UnixStream},
		},
	},
	path::{Path, PathBuf},
	thread,
	time::{Duration, Instant},
};

/// Connections that wait until they are accepted, as in the standard library.
const BACKLOG: i32 = 128;

/// How long an earlier daemon's end may take.
const HANDOVER: Duration = Duration::from_secs(1);

/// A socket that nobody else answers at; removed when it is dropped, if this process has made it.
#[derive(Debug)]
pub struct Socket {
	listener: UnixListener,
	path: PathBuf,
	/// By this process, and not by systemd.
	is_made: bool,
	/// Locked while it is open, whoever dies how.
	_lock: File,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
	/// Somebody has it.
	#[error("a daemon listens at {} already: use that one, or give another socket", .0.display())]
	Busy(PathBuf),
	/// What systemd has opened isn't what its unit opens.
	#[error("what was opened for this daemon is not one socket with a path: see flashfork-vmd.socket ({0})")]
	Opened(io::Error),
	/// Something that this didn't make.
	#[error("{} is there and is no socket: give another path, or remove it yourself", .0.display())]
	Other(PathBuf),
	/// A step failed.
	#[error("cannot {what} {}: {cause}", path.display())]
	Step {
		/// Which.
		what: &'static str,
		/// On what.
		path: PathBuf,
		/// The system's reason.
		cause: io::Error,
	},
}

impl Socket {
	/// Listens at `path`, for the user this process runs as alone, and takes away what a killed daemon left there.
	pub fn bind(path: &Path) -> Result<Self, SocketError> {
		patiently(|| Self::try_bind(path))
	}

	fn try_bind(path: &Path) -> Result<Self, SocketError> {
		let look = || match fs::symlink_metadata(path) {
			Ok(there) if there.file_type().is_socket() => Ok(true),
			Ok(_) => Err(SocketError::Other(path.to_owned())),
			Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
			Err(e) => Err(failed("look at", path)(e)),
		};
		// Before anything is made beside it.
		SocketAddr::from_pathname(path).map_err(failed("listen at", path))?;
		if look()? && UnixStream::connect(path).is_ok() {
			// Also systemd's, whose daemon starts now.
			return Err(SocketError::Busy(path.to_owned()));
		}
		if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
			DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed("create", directory))?;
		}
		let lock = lock(path)?;
		if look()? {
			fs::remove_file(path).map_err(failed("remove the stale socket", path))?;
		}
		let before = umask(Mode::from_raw_mode(0o177));
		let listener = UnixListener::bind(path);
		umask(before);
		let listener = listener.map_err(failed("listen at", path))?;
		Ok(Self { listener, path: path.to_owned(), is_made: true, _lock: lock })
	}

	/// The socket that systemd has made and started this process for (`sd_listen_fds(3)`), if it has. Nobody after this
	/// process learns of it.
	///
	/// # Safety
	/// No other thread reads or changes the environment, and nobody else has taken the descriptors.
	pub unsafe fn inherited() -> Result<Option<Self>, SocketError> {
		// SAFETY: as the caller promises.
		let mut opened = unsafe { sd_notify::listen_fds_and_unset_env() }.map_err(SocketError::Opened)?;
		let Some(fd) = opened.next() else { return Ok(None) };
		if opened.next().is_some() {
			return Err(SocketError::Opened(io::Error::other("more than one")));
		}
		// SAFETY: it was opened for this process, and nobody else has taken it.
		let listener = UnixListener::from(unsafe { OwnedFd::from_raw_fd(fd) });
		let address = listener.local_addr().map_err(SocketError::Opened)?;
		let path = address.as_pathname().ok_or_else(|| SocketError::Opened(io::Error::other("no path")))?.to_owned();
		let lock = patiently(|| lock(&path))?;
		// So that who connects finds this process, and not systemd, at the other end: `flashfork vm stop` ends it.
		listen(&listener, BACKLOG).map_err(|e| SocketError::Opened(e.into()))?;
		Ok(Some(Self { listener, path, is_made: false, _lock: lock }))
	}

	/// What listens.
	///
	/// # Errors
	/// If there is no descriptor left for it.
	pub fn listener(&self) -> io::Result<UnixListener> {
		self.listener.try_clone()
	}

	/// Whether systemd has made it.
	#[must_use]
	pub fn is_inherited(&self) -> bool {
		!self.is_made
	}

	/// A path beside it, with this at its end.
	#[must_use]
	pub fn beside(&self, end: &str) -> PathBuf {
		beside(&self.path, end)
	}

	/// Nobody connects any more. No other daemon begins before this process has ended.
	pub fn remove(&self) {
		// The lock file stays: removing it would let two daemons lock two files of one name.
		if self.is_made {
			let _ = fs::remove_file(&self.path);
		}
	}
}

/// Added, not in an extension's place: else two sockets could have one lock, or a socket its own file.
fn beside(path: &Path, end: &str) -> PathBuf {
	let mut path = path.as_os_str().to_owned();
	path.push(end);
	path.into()
}

impl Drop for Socket {
	fn drop(&mut self) {
		self.remove();
	}
}

/// A daemon killed while it started a shell has that for a moment, and so its socket and lock.
fn patiently<T>(attempt: impl Fn() -> Result<T, SocketError>) -> Result<T, SocketError> {
	let deadline = Instant::now() + HANDOVER;
	loop {
		match attempt() {
			Err(SocketError::Busy(_)) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
			other => return other,
		}
	}
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
	let path = path.to_owned();
	move |cause| SocketError::Step { what, path, cause }
}

/// Keeps other daemons from a socket.
fn lock(path: &Path) -> Result<File, SocketError> {
	let lock_path = beside(path, ".lock");
	let lock = OpenOptions::new()
		.create(true)
		.truncate(false)
		.write(true)
		.mode(0o600)
		.open(&lock_path)
		.map_err(failed("open", &lock_path))?;
	match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
		Err(rustix::io::Errno::WOULDBLOCK) => Err(SocketError::Busy(path.to_owned())),
		other => other.map_err(io::Error::from).map_err(failed("lock", &lock_path)).map(|()| lock),
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::os::unix::fs::PermissionsExt;

	#[test]
	fn one_daemon_per_socket_and_stale_ones_are_taken_over() {
		let dir = tempfile::tempdir().unwrap();
		let path = dir.path().join("new/vmd.sock");
		let socket = Socket::bind(&path).unwrap();
		assert!(matches!(Socket::bind(&path), Err(SocketError::Busy(_))));
		assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
		drop(socket);
		assert!(!path.exists());
		// Whoever answers there.
		let other = UnixListener::bind(&path).unwrap();
		assert!(matches!(Socket::bind(&path), Err(SocketError::Busy(_))));
		drop(other);
		fs::remove_file(&path).unwrap();
		// As a killed daemon leaves it.
		drop(UnixListener::bind(&path).unwrap());
		assert!(path.exists());
		Socket::bind(&path).unwrap();
	}

	#[test]
	fn what_is_no_socket_stays() {
		let dir = tempfile::tempdir().unwrap();
		let path = dir.path().join("notes.lock");
		fs::write(&path, "dear").unwrap();
		let link = dir.path().join("link");
		std::os::unix::fs::symlink(&path, &link).unwrap();
		assert!(matches!(Socket::bind(&path), Err(SocketError::Other(_))));
		assert!(matches!(Socket::bind(&link), Err(SocketError::Other(_))));
		assert_eq!(fs::read_to_string(&link).unwrap(), "dear");
		assert!(Socket::bind(&dir.path().join("new").join("x".repeat(200))).is_err());
		assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "nothing was made");
	}
}
