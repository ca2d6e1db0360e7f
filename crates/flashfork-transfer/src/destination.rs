//! Where a copy goes: the user's own word, so links are followed here.

use rustix::{
	fs::{AtFlags, CWD, FileType, Mode, OFlags, open, statat},
	io::Errno,
};
use std::{
	ffi::{OsStr, OsString},
	io,
	os::{fd::OwnedFd, unix::ffi::OsStrExt},
	path::{Path, PathBuf},
};

const DIRECTORY: OFlags = OFlags::CLOEXEC.union(OFlags::DIRECTORY);

/// Where a copy goes.
#[derive(Debug)]
pub struct Destination {
	pub(crate) directory: OwnedFd,
	/// Its name there; without one its content goes there.
	pub(crate) name: Option<OsString>,
	/// For people.
	pub(crate) path: PathBuf,
}

impl Destination {
	/// The place for a copy that is called `name`: in `path`, if that is a directory, else at `path`. Without a name
	/// (see [`name_of`](crate::name_of)) the copy's content goes into that directory.
	///
	/// # Errors
	/// [`io::ErrorKind::NotFound`] if there is no such directory, and the system's.
	pub fn find(path: &Path, name: Option<&OsStr>) -> io::Result<Self> {
		let into = |directory: &Path| Ok::<_, io::Error>(open(directory, DIRECTORY, Mode::empty())?);
		match statat(CWD, path, AtFlags::empty()) {
			Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
				let whole = name.map_or_else(|| path.to_owned(), |name| path.join(name));
				return Ok(Self { directory: into(path)?, name: name.map(ToOwned::to_owned), path: whole });
			}
			Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
			Err(error) => return Err(error.into()),
		}
		let file = path.file_name().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/"));
		let parent = path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
		match (file, parent) {
			(Some(file), Some(parent)) => {
				Ok(Self { directory: into(parent)?, name: Some(file.to_owned()), path: path.to_owned() })
			}
			_ => Err(Errno::NOENT.into()),
		}
	}
}
