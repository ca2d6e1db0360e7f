//! Files that come, from whomever.
//!
//! Whoever sends is hostile. Each name must be a single one, and is used with the descriptor of the directory that it
//! is in, which was opened here and not by following a link. So nothing that comes can lead anywhere else, neither by
//! its name nor by a link that came before.

use crate::{Destination, MOST_NESTED, link::leads_inside, printable};
use flashfork_proto::agent::Piece;
use rustix::{
	fs::{AtFlags, FileType, Mode, OFlags, fchmod, mkdirat, openat, statat, symlinkat, unlinkat},
	io::Errno,
};
use std::{
	ffi::{OsStr, OsString},
	fs::File,
	io::{self, ErrorKind, Write},
	os::{fd::OwnedFd, unix::ffi::OsStrExt},
};

const DIRECTORY: OFlags = OFlags::CLOEXEC.union(OFlags::DIRECTORY);

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
	/// The host, to a guest that it may do anything with.
	Host,
	/// A guest. Its files are nobody else's on the host (no set-user-ID, no set-group-ID), and its links lead nowhere
	/// but into the copy.
	Guest,
}

/// What comes makes no sense: the sender is broken or hostile.
#[derive(Debug, thiserror::Error)]
#[error("what is copied makes no sense: {0}; its sender is broken or hostile")]
pub struct Nonsense(&'static str);

/// A directory that things are made in.
#[derive(Debug)]
struct Level {
	directory: OwnedFd,
	/// Permissions that it gets when all is in it: none if it was there before.
	mode: Option<u32>,
}

#[derive(Debug)]
enum Current {
	None,
	File {
		file: File,
		mode: u32,
	},
	/// One that can't be written.
	Skipped,
}

/// Makes what comes.
#[derive(Debug)]
pub struct Receiver {
	destination: Destination,
	sender: Sender,
	levels: Vec<Level>,
	/// Directories in one another that can't be made.
	skipped: usize,
	current: Current,
	begun: bool,
	ended: bool,
	/// Names from the copy's own on.
	names: Vec<OsString>,
}

impl Receiver {
	/// Of one copy.
	#[must_use]
	pub fn new(destination: Destination, sender: Sender) -> Self {
		let current = Current::None;
		Self {
			destination,
			sender,
			levels: Vec::new(),
			skipped: 0,
			current,
			begun: false,
			ended: false,
			names: Vec::new(),
		}
	}

	/// Whether all has come.
	#[must_use]
	pub fn has_ended(&self) -> bool {
		self.ended
	}

	/// Takes the next piece. What can't be made, or was left out by the sender, is told in one line, and left out with
	/// all that is in it.
	///
	/// # Errors
	/// [`Nonsense`]: no more must be taken.
	pub fn take(&mut self, piece: Piece) -> Result<Option<String>, Nonsense> {
		if self.ended {
			return Err(Nonsense("more after its end"));
		}
		let in_file = !matches!(self.current, Current::None);
		match piece {
			Piece::Bytes(bytes) if in_file => Ok(self.write(&bytes)),
			Piece::FileEnd if in_file => Ok(self.finish_file()),
			Piece::Trouble(said) => {
				self.drop_file();
				Ok(Some(printable(&said)))
			}
			_ if in_file => Err(Nonsense("something else in the middle of a file")),
			Piece::Directory { name, mode } => {
				self.enter(&name)?;
				Ok(self.begin_directory(mode))
			}
			Piece::File { name, mode } => {
				if !self.begun && self.destination.name.is_none() {
					return Err(Nonsense("a file in place of a directory's content"));
				}
				self.enter(&name)?;
				Ok(self.begin_file(mode))
			}
			Piece::Link { name, target } => {
				self.enter(&name)?;
				if self.levels.is_empty() && self.skipped == 0 {
					return Err(Nonsense("a link that is in no directory"));
				}
				Ok(self.link(OsStr::from_bytes(&target)))
			}
			Piece::Leave => self.leave(),
			Piece::End if self.begun && self.names.is_empty() => {
				self.ended = true;
				Ok(None)
			}
			Piece::End => Err(Nonsense("its end before all was sent")),
			Piece::Bytes(_) | Piece::FileEnd => Err(Nonsense("content of no file")),
		}
	}

	fn enter(&mut self, name: &[u8]) -> Result<(), Nonsense> {
		if self.names.is_empty() {
			if self.begun {
				return Err(Nonsense("more than was asked for"));
			}
			self.begun = true;
			// Whatever the sender calls it.
			self.names.push(self.destination.name.clone().unwrap_or_default());
			return Ok(());
		}
		if name.is_empty() || matches!(name, b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
			return Err(Nonsense("a name that is none"));
		}
		if self.names.len() > MOST_NESTED {
			return Err(Nonsense("too many directories in one another"));
		}
		self.names.push(OsStr::from_bytes(name).to_owned());
		Ok(())
	}

	/// What is under way couldn't be made.
	fn trouble(&self, why: &dyn std::fmt::Display) -> Option<String> {
		let mut path = self.destination.path.clone();
		path.extend(self.names.iter().skip(1));
		Some(format!("{}: {why}", printable(&path.to_string_lossy())))
	}

	/// The directory of what is under way, and its name in it.
	fn place(&self) -> (&OwnedFd, &OsStr) {
		let directory = self.levels.last().map_or(&self.destination.directory, |level| &level.directory);
		(directory, self.names.last().map_or(OsStr::new(""), OsString::as_os_str))
	}

	fn begin_directory(&mut self, mode: u32) -> Option<String> {
		if self.skipped > 0 {
			self.skipped += 1;
			return None;
		}
		let (parent, name) = self.place();
		let opened = if name.is_empty() {
			// The destination itself; only it has no name.
			parent.try_clone().map(|directory| Level { directory, mode: None })
		} else {
			directory(parent, name, mode).map_err(io::Error::from)
		};
		match opened {
			Ok(level) => {
				self.levels.push(level);
				None
			}
			Err(error) => {
				self.skipped = 1;
				let there = error.raw_os_error() == Some(Errno::NOTDIR.raw_os_error());
				if there { self.trouble(&"is there already and is no directory") } else { self.trouble(&error) }
			}
		}
	}

	fn leave(&mut self) -> Result<Option<String>, Nonsense> {
		let left = if self.skipped > 0 {
			self.skipped -= 1;
			None
		} else {
			let Some(level) = self.levels.pop() else { return Err(Nonsense("the end of no directory")) };
			let mode = level.mode.map(|mode| self.mode(mode));
			let set = mode.map_or(Ok(()), |mode| fchmod(&level.directory, mode));
			set.err().and_then(|error| self.trouble(&format!("can't be given its permissions: {error}")))
		};
		self.names.pop();
		Ok(left)
	}

	fn begin_file(&mut self, mode: u32) -> Option<String> {
		self.current = Current::Skipped;
		if self.skipped > 0 {
			return None;
		}
		let (parent, name) = self.place();
		let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
		let made = clear(parent, name).and_then(|()| Ok(openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?));
		match made {
			Ok(fd) => {
				self.current = Current::File { file: fd.into(), mode };
				None
			}
			Err(error) => self.trouble(&error),
		}
	}

	fn write(&mut self, bytes: &[u8]) -> Option<String> {
		let Current::File { file, .. } = &mut self.current else { return None };
		let error = file.write_all(bytes).err()?;
		self.remove_file();
		self.current = Current::Skipped;
		self.trouble(&format!("can't be written: {error}"))
	}

	fn finish_file(&mut self) -> Option<String> {
		let said = match std::mem::replace(&mut self.current, Current::None) {
			Current::File { file, mode } => {
				let set = fchmod(&file, self.mode(mode));
				set.err().and_then(|error| self.trouble(&format!("can't be given its permissions: {error}")))
			}
			Current::None | Current::Skipped => None,
		};
		self.names.pop();
		said
	}

	/// A file that can't be had whole isn't had.
	fn drop_file(&mut self) {
		match std::mem::replace(&mut self.current, Current::None) {
			Current::None => return,
			Current::File { .. } => self.remove_file(),
			Current::Skipped => {}
		}
		self.names.pop();
	}

	fn remove_file(&self) {
		let (parent, name) = self.place();
		// It may be removed by somebody else.
		let _ = unlinkat(parent, name, AtFlags::empty());
	}

	fn link(&mut self, target: &OsStr) -> Option<String> {
		let said = if self.skipped > 0 {
			None
		} else if self.sender == Sender::Guest && !leads_inside(target, self.levels.len() - 1) {
			self.trouble(&format!("a link that leads out of the copy, to {target:?}: left out"))
		} else {
			let (parent, name) = self.place();
			let made = clear(parent, name).and_then(|()| Ok(symlinkat(target, parent, name)?));
			made.err().and_then(|error| self.trouble(&error))
		};
		self.names.pop();
		said
	}

	fn mode(&self, mode: u32) -> Mode {
		Mode::from_raw_mode(mode & if self.sender == Sender::Guest { 0o777 } else { 0o7777 })
	}
}

impl Drop for Receiver {
	/// What was cut off in the middle leaves no half of a file.
	fn drop(&mut self) {
		self.drop_file();
	}
}

/// Makes a directory that only this process may enter as yet, or opens the one that is there.
fn directory(parent: &OwnedFd, name: &OsStr, mode: u32) -> rustix::io::Result<Level> {
	let mode = match mkdirat(parent, name, Mode::RWXU) {
		Ok(()) => Some(mode),
		Err(Errno::EXIST) => None,
		Err(error) => return Err(error),
	};
	let directory = openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
	Ok(Level { directory, mode })
}

/// Removes the file or link that is in the way. Anything else stays, and is an error.
fn clear(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
	let found = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
		Err(Errno::NOENT) => return Ok(()),
		found => FileType::from_raw_mode(found?.st_mode),
	};
	match found {
		FileType::RegularFile | FileType::Symlink => Ok(unlinkat(parent, name, AtFlags::empty())?),
		FileType::Directory => Err(io::Error::new(ErrorKind::IsADirectory, "is there already and is a directory")),
		_ => Err(io::Error::new(ErrorKind::AlreadyExists, "is there already and is no file")),
	}
}
