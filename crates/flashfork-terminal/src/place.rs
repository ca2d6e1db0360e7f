//! Where a command writes a file: aside, to become it when it is complete. Until then an older one stays.

use crate::error::CliError;
use std::{
	fs::{File, Permissions},
	io::{self, ErrorKind, Seek, Write},
	os::unix::fs::PermissionsExt,
	path::{Path, PathBuf},
};
use tempfile::NamedTempFile;

/// A place that can be written to.
pub enum Place {
	/// A file.
	File(PathBuf),
	/// A device or FIFO, or a file in a directory where no other can be made; open all the time, or a FIFO's reader
	/// would see its end.
	Open(File, PathBuf),
	/// What a descriptor of this process leads to (`/dev/stdout`): others write there too, and what they wrote stays.
	Descriptor(File, PathBuf),
}

impl Place {
	/// Finds out whether it can be written to, and changes nothing there.
	pub fn open(path: &Path) -> Result<Self, CliError> {
		let failed = || CliError::file("write", path);
		match std::fs::metadata(path) {
			Ok(found) if found.is_file() && is_descriptor(path) => {
				let file = File::options().append(true).open(path).map_err(failed())?;
				Ok(Self::Descriptor(file, path.to_owned()))
			}
			Ok(found) if found.is_dir() => Err(failed()(ErrorKind::IsADirectory.into())),
			Ok(found) if !found.is_file() => {
				let mut file = File::options().write(true).open(path).map_err(failed())?;
				// Nothing is written, but a device that takes nothing, such as /dev/full, says so.
				let _none = file.write(&[]).map_err(failed())?;
				Ok(Self::Open(file, path.to_owned()))
			}
			// Not a symlink is replaced, but what it leads to.
			Ok(_) => {
				let path = path.canonicalize().map_err(failed())?;
				match (aside(&path), File::options().write(true).open(&path)) {
					(Err(_), Ok(file)) => Ok(Self::Open(file, path)),
					(aside, _) => aside.map_err(failed()).map(|_trial| Self::File(path)),
				}
			}
			Err(e) if e.kind() == ErrorKind::NotFound && !path.is_symlink() => {
				let directory = directory(path);
				// Said in words: the error of a file beside it would name that one.
				if !directory.exists() {
					let (path, directory) = (path.display(), directory.display());
					return Err(CliError::Unable(format!("can't write {path}: there is no directory {directory}")));
				}
				aside(path).map_err(failed()).map(|_trial| Self::File(path.to_owned()))
			}
			// One that leads to nothing yet.
			Err(e) if e.kind() == ErrorKind::NotFound => {
				let leads_to = std::fs::read_link(path).map_err(failed())?;
				Self::open(&directory(path).join(leads_to))
			}
			Err(e) => Err(failed()(e)),
		}
	}

	/// Writes all of it.
	pub fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CliError> {
		match self {
			Self::Descriptor(mut file, path) => write(&mut file).map_err(CliError::file("write", path)),
			Self::Open(mut file, path) => {
				let is_file = file.metadata().is_ok_and(|about| about.is_file());
				let emptied = if is_file { file.set_len(0).and_then(|()| file.rewind()) } else { Ok(()) };
				emptied.and_then(|()| write(&mut file)).map_err(CliError::file("write", path))
			}
			Self::File(path) => {
				let written = aside(&path).and_then(|mut file| {
					write(&mut file)?;
					file.persist(&path).map(drop).map_err(|e| e.error)
				});
				written.map_err(CliError::file("write", path))
			}
		}
	}
}

fn is_descriptor(path: &Path) -> bool {
	let mut at = path.to_owned();
	// No more links than the kernel follows.
	for _ in 0..40 {
		let parent = directory(&at).canonicalize().unwrap_or_default();
		if parent.starts_with("/proc") && parent.ends_with("fd") {
			return true;
		}
		match std::fs::read_link(&at) {
			Ok(next) => at = parent.join(next),
			Err(_) => return false,
		}
	}
	false
}

fn directory(path: &Path) -> &Path {
	path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file beside `path`, gone unless it becomes that one; readable as that is, or by everyone whom the mask lets.
fn aside(path: &Path) -> io::Result<NamedTempFile> {
	let mode = path.metadata().map_or(0o666, |about| about.permissions().mode());
	tempfile::Builder::new()
		.prefix(".flashfork-")
		.permissions(Permissions::from_mode(mode & 0o777))
		.tempfile_in(directory(path))
}
