//! Where the names of templates are: sockets in a directory that is the user's alone.

use crate::{
	error::Error,
	link::{Found, LIMIT, LOOK, Link},
	name::Name,
};
use flashfork_warm::is_name;
use rustix::{
	fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags},
	io::Errno,
	process::geteuid,
};
use std::{
	io::ErrorKind,
	os::{
		fd::{AsRawFd, OwnedFd},
		unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt},
	},
	path::{Path, PathBuf},
	time::Instant,
};

/// The directory, open: what is checked and what is used are one.
#[derive(Debug)]
pub struct Directory {
	pub(crate) open: OwnedFd,
	pub(crate) path: PathBuf,
}

impl Directory {
	/// Where the command has it: in `runtime`, which is the value of `XDG_RUNTIME_DIR` and counts only if it begins at
	/// the root; or in a directory under /tmp with the user's number.
	#[must_use]
	pub fn place(runtime: Option<&Path>) -> PathBuf {
		let own = |dir: &Path| dir.join("flashfork");
		let common = || PathBuf::from(format!("/tmp/flashfork-{}", geteuid().as_raw()));
		runtime.filter(|dir| dir.is_absolute()).map_or_else(common, own).join("templates")
	}

	/// Opens the directory, and makes it and the one that it lies in first if there are none; what they are in must
	/// exist. Both must be the user's, and nobody else may change them: whoever can connect to a template runs code as
	/// its user.
	pub fn open(path: impl Into<PathBuf>) -> Result<Directory, Error> {
		let path = path.into();
		for dir in path.parent().into_iter().chain([path.as_path()]) {
			match std::fs::DirBuilder::new().mode(0o700).create(dir) {
				Err(e) if e.kind() == ErrorKind::NotFound => {
					let missing = dir.parent().unwrap_or(dir).to_owned();
					return Err(Error::Missing { path: path.clone(), missing });
				}
				Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(Error::file("create", dir)(e)),
				_ => {}
			}
		}
		Directory::checked(path)
	}

	/// Opens the directory as [`Directory::open`] does, if any.
	pub fn find(path: impl Into<PathBuf>) -> Result<Option<Directory>, Error> {
		let path = path.into();
		match std::fs::symlink_metadata(&path) {
			Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
			_ => Directory::checked(path).map(Some),
		}
	}

	fn checked(path: PathBuf) -> Result<Directory, Error> {
		// Whoever may rename what is in the directory above decides what is found here.
		let above = path.parent().unwrap_or(&path);
		let found = std::fs::symlink_metadata(above).map_err(Error::file("look at", above))?;
		if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
			return Err(Error::Place {
				path: above.to_owned(),
				why: "it is no directory of yours that only you may change",
			});
		}
		let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
		let open = rustix::fs::open(&path, flags, Mode::empty()).map_err(Error::file("open", &path))?;
		let found = rustix::fs::fstat(&open).map_err(Error::file("open", &path))?;
		let why = if found.st_uid != geteuid().as_raw() {
			"it belongs to somebody else"
		} else if found.st_mode & 0o077 != 0 {
			"others may look into it"
		} else {
			return Ok(Directory { open, path });
		};
		Err(Error::Place { path, why })
	}

	/// Where it is.
	#[must_use]
	pub fn path(&self) -> &Path {
		&self.path
	}

	/// All names there are, in order, whether or not their templates live.
	pub fn names(&self) -> Result<Vec<Name>, Error> {
		let mut names: Vec<Name> = self.sockets()?.filter(|name| is_name(name.as_str())).collect();
		names.sort();
		Ok(names)
	}

	fn sockets(&self) -> Result<impl Iterator<Item = Name>, Error> {
		let entries = std::fs::read_dir(self.short(".")).map_err(Error::file("read", &self.path))?;
		let sockets = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
		Ok(sockets.filter_map(|entry| Some(Name::of_socket(entry.file_name().to_str()?.to_owned()))))
	}

	/// The sockets of programs that are not ready yet, or never became so.
	pub(crate) fn temporary(&self) -> Result<Vec<Name>, Error> {
		Ok(self.sockets()?.filter(|name| name.as_str().starts_with('.')).collect())
	}

	/// A path to an entry that is short enough for a socket, however long the directory's own is.
	pub(crate) fn short(&self, entry: impl AsRef<Path>) -> PathBuf {
		Path::new("/proc/self/fd").join(self.open.as_raw_fd().to_string()).join(entry)
	}

	/// Keeps others from giving and taking names while the result is open. A name is given, or taken from a template
	/// that is gone, in that time only: so what was found dead is still so when it is removed. A template that lives
	/// gives up its own without.
	pub(crate) fn lock(&self) -> Result<OwnedFd, Error> {
		let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
		let opened = rustix::fs::openat(&self.open, ".", flags, Mode::empty());
		let directory = opened.map_err(Error::file("lock", &self.path))?;
		let start = Instant::now();
		loop {
			match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
				Ok(()) => return Ok(directory),
				Err(Errno::WOULDBLOCK) if start.elapsed() < LIMIT => {}
				Err(Errno::WOULDBLOCK) => {
					return Err(Error::Locked { path: self.path.clone(), seconds: LIMIT.as_secs() });
				}
				Err(e) => return Err(Error::file("lock", &self.path)(e)),
			}
			std::thread::sleep(LOOK / 50);
		}
	}

	/// Removes the name of a template that is gone; not that of one that lives, which may have taken it just now.
	pub(crate) fn clear(&self, name: &Name) -> Result<(), Error> {
		let _lock = self.lock()?;
		match Link::find(self, name)? {
			Found::Dead => self.remove(name),
			Found::Alive(_) | Found::Stopped(_) | Found::Nobody => Ok(()),
		}
	}

	/// Gives an entry a name that nobody has; false if somebody has it.
	pub(crate) fn rename(&self, from: &Path, to: &Name) -> rustix::io::Result<bool> {
		match rustix::fs::renameat_with(&self.open, from, &self.open, to.as_ref(), RenameFlags::NOREPLACE) {
			Ok(()) => Ok(true),
			Err(Errno::EXIST) => Ok(false),
			Err(e) => Err(e),
		}
	}

	/// Gives an entry a name in place of whoever has it. Under the lock.
	pub(crate) fn replace(&self, from: &Path, to: &Name) -> rustix::io::Result<()> {
		rustix::fs::renameat(&self.open, from, &self.open, to.as_ref() as &Path)
	}

	/// Removes an entry, a socket; one that isn't there is no failure. Under the lock, unless nobody else knows of it.
	pub(crate) fn remove(&self, entry: impl AsRef<Path>) -> Result<(), Error> {
		let path = self.path.join(&entry);
		match rustix::fs::statat(&self.open, entry.as_ref(), AtFlags::SYMLINK_NOFOLLOW) {
			Ok(found) if !FileType::from_raw_mode(found.st_mode).is_socket() => return Err(Error::NoSocket(path)),
			// What can't be looked at can't be removed, and that says why.
			_ => {}
		}
		match rustix::fs::unlinkat(&self.open, entry.as_ref(), AtFlags::empty()) {
			// Where nothing can be written it is nobody else's any more.
			Ok(()) | Err(Errno::NOENT | Errno::ROFS) => Ok(()),
			Err(e) => Err(Error::file("remove", path)(e)),
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_it_lies_in_is_made_and_nothing_above() {
		let home = tempfile::tempdir().unwrap();
		let place = Directory::place(Some(home.path()));
		assert!(Directory::find(&place).unwrap().is_none());
		assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
		Directory::open(&place).unwrap();
		assert!(Directory::find(&place).unwrap().is_some());
		let missing = home.path().join("missing");
		let refused = Directory::open(Directory::place(Some(&missing))).unwrap_err().to_string();
		assert!(refused.contains("doesn't exist; make it"), "{refused}");
		assert!(!missing.exists());
	}

	#[test]
	fn the_place_follows_what_is_handed_in() {
		assert_eq!(Directory::place(Some(Path::new("/run/user/7"))), Path::new("/run/user/7/flashfork/templates"));
		let common = PathBuf::from(format!("/tmp/flashfork-{}/templates", geteuid().as_raw()));
		assert_eq!(Directory::place(None), common);
		assert_eq!(Directory::place(Some(Path::new("relative"))), common);
	}
}
