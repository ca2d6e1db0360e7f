//! What a program prints while it is warmed, where lines of it tell that it is ready.

use regex::bytes::Regex;
use std::{
	io::{Error, ErrorKind, PipeReader, Read, Write},
	os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Passes one of its streams on to that of this process.
pub struct Relay {
	from: PipeReader,
	to: Box<dyn Write>,
	line: Vec<u8>,
}

/// Longest line looked at.
const LONGEST: usize = 1 << 16;

impl Relay {
	/// And the end for the program.
	pub fn new(to: impl Write + 'static) -> std::io::Result<(Relay, OwnedFd)> {
		let (from, program) = std::io::pipe()?;
		rustix::io::ioctl_fionbio(&from, true)?;
		Ok((Relay { from, to: Box::new(to), line: Vec::new() }, program.into()))
	}

	/// Passes on what there is; whether a line was whole in which `wanted` is found. The end is an error.
	pub fn pass(&mut self, wanted: &Regex) -> std::io::Result<bool> {
		let mut bytes = [0; 4096];
		let read = match self.from.read(&mut bytes) {
			Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
			Ok(read) => read,
			Err(e) if waits(&e) => return Ok(false),
			Err(e) => return Err(e),
		};
		let bytes = &bytes[..read];
		// Nobody listens, perhaps: the program is warmed all the same.
		let _ = self.to.write_all(bytes).and_then(|()| self.to.flush());
		let mut found = false;
		for byte in bytes {
			if *byte == b'\n' {
				found |= wanted.is_match(&self.line);
				self.line.clear();
			} else if self.line.len() < LONGEST {
				self.line.push(*byte);
			}
		}
		Ok(found)
	}

	/// Passes on what is left of a program that stands still: its clones don't print it.
	pub fn pass_rest(&mut self) {
		let mut bytes = [0; 1 << 16];
		loop {
			match self.from.read(&mut bytes) {
				Ok(0) => return,
				Ok(read) => {
					let _ = self.to.write_all(&bytes[..read]).and_then(|()| self.to.flush());
				}
				Err(e) if e.kind() == ErrorKind::Interrupted => {}
				Err(_) => return,
			}
		}
	}
}

fn waits(e: &Error) -> bool {
	matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl AsFd for Relay {
	fn as_fd(&self) -> BorrowedFd<'_> {
		self.from.as_fd()
	}
}
