//! One experiment at a time on a machine: `flock(2)` on a file that every user can open.

use std::{
	cell::RefCell,
	fs::{File, OpenOptions, Permissions},
	io,
	os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
	path::{Path, PathBuf},
	rc::{Rc, Weak},
	time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::{BenchError, Progress, Result, error::if_denied};

const NAME: &str = "flashfork-bench.lock";
const RETRY: Duration = Duration::from_millis(50);
const PATIENCE_BEFORE_NOTICE: Duration = Duration::from_secs(1);

thread_local! {
	/// The lock as far as this thread holds it: a run of several experiments keeps it from the first to the last.
	static HELD: RefCell<Weak<File>> = const { RefCell::new(Weak::new()) };
}

/// The machine-wide lock, held until dropped. Programs started meanwhile do not inherit it. A thread that holds it gets
/// it again at once.
#[derive(Debug, Clone)]
pub struct MachineLock {
	_file: Rc<File>,
}

impl MachineLock {
	/// Waits for the lock. When it isn't free within a second, `progress` is told once. Fails when the user wants to
	/// stop.
	pub fn acquire(progress: &mut dyn Progress) -> Result<Self> {
		if let Some(file) = HELD.with_borrow(Weak::upgrade) {
			return Ok(Self { _file: file });
		}
		let lock = Self::acquire_at(&default_path(), progress)?;
		HELD.set(Rc::downgrade(&lock._file));
		Ok(lock)
	}

	fn acquire_at(path: &Path, progress: &mut dyn Progress) -> Result<Self> {
		let failed = |error: io::Error| {
			let cure = if_denied(&error, "let everybody read it or remove it, which its owner or root can do");
			BenchError::system(format!("lock {}{cure}", path.display()), error)
		};
		let begin = Instant::now();
		let mut told = false;
		loop {
			let file = open(path).map_err(failed)?;
			match flock(&file, FlockOperation::NonBlockingLockExclusive) {
				Ok(()) if still_there(&file, path) => return Ok(Self { _file: Rc::new(file) }),
				// The file was replaced between opening and locking: others would lock the new one.
				Ok(()) => continue,
				Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
				Err(errno) => return Err(failed(errno.into())),
			}
			if progress.interrupted() {
				return Err(BenchError::Interrupted);
			}
			if !told && begin.elapsed() >= PATIENCE_BEFORE_NOTICE {
				told = true;
				progress.note(&format!(
					"waiting for another experiment on this machine to finish (lock file {})",
					path.display()
				));
			}
			std::thread::sleep(RETRY);
		}
	}
}

/// `/run/lock` where every user may write there, else `/tmp`: the choice must not depend on who asks.
fn default_path() -> PathBuf {
	let shared = |dir: &str| std::fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.mode() & 0o002 != 0);
	Path::new(if shared("/run/lock") { "/run/lock" } else { "/tmp" }).join(NAME)
}

/// Opens the lock file, creating it readable for all.
///
/// Opening comes first and without `O_CREAT`: where `fs.protected_regular` is set, `O_CREAT` on another user's file in
/// a sticky directory fails with EACCES even when the file could be opened (proc_sys_fs(5)).
///
/// Every user may have put something else there: a FIFO would be opened when somebody writes, and not before.
fn open(path: &Path) -> io::Result<File> {
	let flags = (OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK).bits() as i32;
	loop {
		match OpenOptions::new().read(true).custom_flags(flags).open(path) {
			Err(error) if error.kind() == io::ErrorKind::NotFound => {}
			Ok(file) if !file.metadata()?.is_file() => {
				return Err(io::Error::other("it is no regular file; remove it, which its owner or root can do"));
			}
			other => return other,
		}
		match OpenOptions::new().read(true).write(true).create_new(true).mode(0o644).custom_flags(flags).open(path) {
			Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
			Err(error) => return Err(error),
			Ok(file) => {
				// Reading is enough for flock; a strict umask must not keep others out.
				file.set_permissions(Permissions::from_mode(0o644))?;
				return Ok(file);
			}
		}
	}
}

fn still_there(file: &File, path: &Path) -> bool {
	match (file.metadata(), std::fs::symlink_metadata(path)) {
		(Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
		_ => false,
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::Silent;
	use std::sync::{
		Arc,
		atomic::{AtomicBool, Ordering::SeqCst},
		mpsc,
	};

	/// Counts what it is told, and passes that on; wants to stop when it has been told something.
	#[derive(Default)]
	struct Told {
		notes: usize,
		stops: bool,
		tells: Option<mpsc::Sender<usize>>,
	}

	impl Progress for Told {
		fn note(&mut self, _: &str) {
			self.notes += 1;
			self.tells.iter().for_each(|tells| tells.send(self.notes).unwrap());
		}
		fn interrupted(&self) -> bool {
			self.stops && self.notes > 0
		}
	}

	#[test]
	fn who_waits_can_be_interrupted() {
		let dir = tempfile::tempdir().unwrap();
		let path = dir.path().join("lock");
		let _first = MachineLock::acquire_at(&path, &mut Silent).unwrap();
		let mut second = Told { stops: true, ..Told::default() };
		assert!(matches!(MachineLock::acquire_at(&path, &mut second), Err(BenchError::Interrupted)));
	}

	#[test]
	fn a_second_holder_waits_and_says_so_once() {
		let dir = tempfile::tempdir().unwrap();
		let path = dir.path().join("lock");
		let mut told = Told::default();
		let first = MachineLock::acquire_at(&path, &mut told).unwrap();
		assert_eq!(told.notes, 0, "nobody holds it");
		let (tells, hears) = mpsc::channel();
		let (free, second) = (Arc::new(AtomicBool::new(false)), path.clone());
		let was_free = Arc::clone(&free);
		let second = std::thread::spawn(move || {
			let mut told = Told { tells: Some(tells), ..Told::default() };
			let _lock = MachineLock::acquire_at(&second, &mut told).unwrap();
			(was_free.load(SeqCst), told.notes)
		});
		assert_eq!(hears.recv(), Ok(1), "it waits, and says so");
		free.store(true, SeqCst);
		drop(first);
		assert_eq!(second.join().unwrap(), (true, 1), "not before it was free, and said once");
	}

	#[test]
	fn a_removed_file_does_not_split_the_lock() {
		let dir = tempfile::tempdir().unwrap();
		let path = dir.path().join("lock");
		let old = open(&path).unwrap();
		std::fs::remove_file(&path).unwrap();
		assert!(!still_there(&old, &path));
		let new = open(&path).unwrap();
		assert!(still_there(&new, &path) && !still_there(&old, &path));
	}

	#[test]
	fn a_fifo_in_the_place_of_the_lock_is_refused_at_once() {
		let dir = tempfile::tempdir().unwrap();
		let path = dir.path().join("lock");
		rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
		let (send, receive) = mpsc::channel();
		let place = path.clone();
		// By its own thread: opening it waits for ever where that waits.
		std::thread::spawn(move || {
			let lock = MachineLock::acquire_at(&place, &mut Silent);
			send.send(lock.map(drop).unwrap_err().to_string()).unwrap();
		});
		let why = receive.recv_timeout(Duration::from_secs(60)).expect("it waits for somebody who writes");
		assert!(why.contains("no regular file") && why.contains(path.to_str().unwrap()), "{why}");
	}

	#[test]
	fn the_file_is_readable_for_everyone() {
		let dir = tempfile::tempdir().unwrap();
		let path = dir.path().join("lock");
		let _lock = MachineLock::acquire_at(&path, &mut Silent).unwrap();
		assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
	}
}
