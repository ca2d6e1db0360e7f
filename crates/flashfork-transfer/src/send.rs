//! Files on their way out.

use crate::MOST_NESTED;
use flashfork_proto::agent::{CHUNK, Piece};
use rustix::{
	fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, readlinkat, statat},
	io::Errno,
};
use serde_bytes::ByteBuf;
use std::{
	ffi::{CString, OsStr},
	fs::File,
	io::{self, ErrorKind, Read},
	os::{
		fd::{AsFd, OwnedFd},
		unix::ffi::OsStrExt,
	},
	path::{Path, PathBuf},
};

/// A file is opened without waiting for anybody, should it be none.
const FILE: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

const DIRECTORY: OFlags = OFlags::CLOEXEC.union(OFlags::DIRECTORY);

/// What a copy of `path` is called; none if its content is meant: of `.`, `..`, `/` and what ends so.
#[must_use]
pub fn name_of(path: &Path) -> Option<&OsStr> {
	let bytes = path.as_os_str().as_bytes();
	let content = bytes == b"." || bytes.ends_with(b"/.") || bytes.ends_with(b"/./");
	path.file_name().filter(|_| !content)
}

/// A file or directory to be sent.
#[derive(Debug)]
pub struct Source {
	path: PathBuf,
	kind: FileType,
	mode: u32,
	fd: OwnedFd,
}

impl Source {
	/// Opens what is at `path`; if that is a symbolic link, what it leads to.
	///
	/// # Errors
	/// The system's, and [`ErrorKind::InvalidInput`] for what is neither file nor directory.
	pub fn open(path: &Path) -> io::Result<Self> {
		let kind = FileType::from_raw_mode(statat(CWD, path, AtFlags::empty())?.st_mode);
		let flags = match kind {
			FileType::Directory => DIRECTORY,
			FileType::RegularFile => FILE,
			_ => return Err(io::Error::new(ErrorKind::InvalidInput, "it is neither a file nor a directory")),
		};
		let fd = openat(CWD, path, flags, Mode::empty())?;
		let found = fstat(&fd)?;
		if FileType::from_raw_mode(found.st_mode) != kind {
			return Err(Errno::AGAIN.into());
		}
		Ok(Self { path: path.to_owned(), kind, mode: found.st_mode & 0o7777, fd })
	}

	/// Passes it, piece by piece, to `pass`, which may end that with an error. What can't be read is told by a piece,
	/// and the rest sent all the same.
	///
	/// # Errors
	/// Those of `pass`.
	pub fn send<E>(self, pass: &mut dyn FnMut(Piece) -> Result<(), E>) -> Result<(), E> {
		let mut walk = Walk { path: self.path, buffer: vec![0; CHUNK], pass };
		if self.kind == FileType::Directory {
			walk.directory(self.fd, &[], self.mode, 1)?;
		} else {
			walk.file(self.fd.into(), &[], self.mode)?;
		}
		(walk.pass)(Piece::End)
	}
}

struct Walk<'a, E> {
	/// Where it is, for people.
	path: PathBuf,
	buffer: Vec<u8>,
	pass: &'a mut dyn FnMut(Piece) -> Result<(), E>,
}

impl<E> Walk<'_, E> {
	fn trouble(&mut self, why: &dyn std::fmt::Display) -> Result<(), E> {
		(self.pass)(Piece::Trouble(format!("{}: {why}", crate::printable(&self.path.to_string_lossy()))))
	}

	fn file(&mut self, mut file: File, name: &[u8], mode: u32) -> Result<(), E> {
		(self.pass)(Piece::File { name: ByteBuf::from(name), mode })?;
		loop {
			match file.read(&mut self.buffer) {
				Ok(0) => return (self.pass)(Piece::FileEnd),
				Ok(count) => (self.pass)(Piece::Bytes(ByteBuf::from(&self.buffer[..count])))?,
				Err(error) if error.kind() == ErrorKind::Interrupted => {}
				Err(error) => return self.trouble(&format!("can't be read: {error}")),
			}
		}
	}

	/// The directory, as the `depth`th in one another.
	fn directory(&mut self, fd: OwnedFd, name: &[u8], mode: u32, depth: usize) -> Result<(), E> {
		(self.pass)(Piece::Directory { name: ByteBuf::from(name), mode })?;
		match list(&fd) {
			Ok(names) => names.iter().try_for_each(|name| {
				self.path.push(OsStr::from_bytes(name.as_bytes()));
				let done = self.entry(&fd, name, depth);
				self.path.pop();
				done
			})?,
			Err(error) => self.trouble(&format!("can't be listed: {error}"))?,
		}
		(self.pass)(Piece::Leave)
	}

	fn entry(&mut self, parent: &OwnedFd, name: &CString, depth: usize) -> Result<(), E> {
		match open_entry(parent, name) {
			Ok(Entry::Directory(..)) if depth == MOST_NESTED => {
				self.trouble(&format!("lies in {MOST_NESTED} directories, as deep as can be copied: left out"))
			}
			Ok(Entry::Directory(fd, mode)) => self.directory(fd, name.as_bytes(), mode, depth + 1),
			Ok(Entry::File(file, mode)) => self.file(file, name.as_bytes(), mode),
			Ok(Entry::Link(target)) => {
				let target = ByteBuf::from(target.into_bytes());
				(self.pass)(Piece::Link { name: ByteBuf::from(name.as_bytes()), target })
			}
			Ok(Entry::Other) => self.trouble(&"is neither a file nor a directory or link: left out"),
			Err(error) => self.trouble(&format!("can't be read: {error}")),
		}
	}
}

enum Entry {
	Directory(OwnedFd, u32),
	File(File, u32),
	Link(CString),
	Other,
}

/// Opens what is called `name` in a directory, and follows no link. Devices aren't opened: some do something then.
fn open_entry(parent: &OwnedFd, name: &CString) -> rustix::io::Result<Entry> {
	let kind = FileType::from_raw_mode(statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
	let flags = match kind {
		FileType::Directory => DIRECTORY,
		FileType::RegularFile => FILE,
		FileType::Symlink => return Ok(Entry::Link(readlinkat(parent, name, Vec::new())?)),
		_ => return Ok(Entry::Other),
	};
	let fd = openat(parent, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
	let found = fstat(&fd)?;
	let mode = found.st_mode & 0o7777;
	match FileType::from_raw_mode(found.st_mode) {
		FileType::Directory => Ok(Entry::Directory(fd, mode)),
		FileType::RegularFile => Ok(Entry::File(fd.into(), mode)),
		// It has become something else meanwhile.
		_ => Ok(Entry::Other),
	}
}

/// What is in a directory, in the order of its names.
fn list(fd: impl AsFd) -> rustix::io::Result<Vec<CString>> {
	let mut names = Vec::new();
	for entry in Dir::read_from(fd)? {
		let name = entry?.file_name().to_owned();
		if !matches!(name.as_bytes(), b"." | b"..") {
			names.push(name);
		}
	}
	names.sort();
	Ok(names)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_copy_is_called_as_what_it_is_of_unless_its_content_is_meant() {
		for (path, name) in [("/a/b", Some("b")), ("b/", Some("b")), ("/a/.", None), (".", None), ("..", None)] {
			assert_eq!(name_of(Path::new(path)), name.map(OsStr::new), "{path}");
		}
		assert_eq!(name_of(Path::new("/")), None);
	}
}
