//! A temporary directory gone afterwards, however this process ends.
//!
//! A database image is a gigabyte: left behind by every Ctrl-C, it would fill the user's disk. A library can't catch
//! signals, and nobody catches SIGKILL, so a small shell stands by: it waits for this process's end of a pipe to close,
//! which the kernel does whatever happens, and then removes the directory.

use std::{
	io,
	os::unix::process::CommandExt,
	path::Path,
	process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::{BenchError, Result, error::if_denied};

/// Reads until the pipe is closed, then removes the directory. Several attempts, because a process that is being killed
/// at the same moment may still be writing there.
const STAND_BY: &str = "trap '' HUP INT TERM; cat >/dev/null; \
						for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- \"$1\" && exit 0; sleep 0.2; done; exit 1";

/// A temporary directory. Dropping it removes it.
#[derive(Debug)]
pub struct WorkDir {
	dir: TempDir,
	guard: Child,
}

impl WorkDir {
	/// Makes one in `parent`, which is made too where it doesn't exist, or where temporary files go.
	pub fn new(parent: Option<&Path>) -> Result<Self> {
		let failed = |error: io::Error| {
			let (place, cure) = match parent {
				Some(parent) => (parent.to_owned(), "give a --cache where you may write"),
				None => (std::env::temp_dir(), "set TMPDIR to a directory where you may write"),
			};
			let cure = if_denied(&error, cure);
			BenchError::system(format!("make a temporary directory in {}{cure}", place.display()), error)
		};
		let mut builder = tempfile::Builder::new();
		builder.prefix("flashfork-bench-");
		let dir = match parent {
			Some(parent) => std::fs::create_dir_all(parent).and_then(|()| builder.tempdir_in(parent)),
			None => builder.tempdir(),
		}
		.map_err(failed)?;
		let guard = Command::new("/bin/sh")
			.args(["-c", STAND_BY, "flashfork-bench-guard"])
			.arg(dir.path())
			.current_dir("/")
			.stdin(Stdio::piped())
			.stdout(Stdio::null())
			.stderr(Stdio::null())
			// Out of reach of the terminal's Ctrl-C.
			.process_group(0)
			.spawn()
			.map_err(failed)?;
		Ok(Self { dir, guard })
	}

	/// Where it is.
	pub fn path(&self) -> &Path {
		self.dir.path()
	}
}

impl Drop for WorkDir {
	fn drop(&mut self) {
		// The guard removes the directory. If it can't be waited for, it still does.
		drop(self.guard.stdin.take());
		let _ = self.guard.wait();
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn dropping_it_removes_everything() {
		let dir = WorkDir::new(None).unwrap();
		let path = dir.path().to_owned();
		std::fs::create_dir(path.join("sub")).unwrap();
		std::fs::write(path.join("sub/file"), "x").unwrap();
		drop(dir);
		assert!(!path.exists());
	}

	#[test]
	fn it_lies_in_its_parent_which_is_made_and_stays() {
		let parent = tempfile::tempdir().unwrap();
		let inner = parent.path().join("a/b");
		let dir = WorkDir::new(Some(&inner)).unwrap();
		assert_eq!(dir.path().parent(), Some(inner.as_path()));
		drop(dir);
		assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 0);
	}

	#[test]
	fn where_none_can_be_made_place_and_cure_are_told() {
		// Nobody makes a directory there, root included.
		let said = WorkDir::new(Some(Path::new("/sys/cache"))).unwrap_err().to_string();
		assert!(said.contains("in /sys/cache (give a --cache where you may write): "), "{said}");
	}

	#[test]
	fn a_killed_owner_leaves_nothing() {
		// What the kernel does for a killed owner: its end of the pipe closes, and nobody drops anything.
		let mut dir = WorkDir::new(None).unwrap();
		let path = dir.path().to_owned();
		drop(dir.guard.stdin.take());
		assert!(dir.guard.wait().unwrap().success());
		assert!(!path.exists());
	}
}
