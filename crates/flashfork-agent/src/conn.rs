//! A connection: any descriptor to read from and write to, shared by the threads of a session.

use std::{
	fs::File,
	io::{self, Read},
	os::fd::{AsFd, BorrowedFd},
	sync::{Arc, Mutex, PoisonError},
};

use flashfork_proto::{
	agent::{MAX_FRAME, Reply},
	frame,
};
use rustix::net::{Shutdown, shutdown};

/// A connection whose replies don't mix. After one that could not be sent whole, none is sent.
#[derive(Clone)]
pub struct Conn {
	reader: Arc<File>,
	writer: Arc<Mutex<Option<File>>>,
}

impl Conn {
	/// The connection over a stream.
	pub fn new(stream: File) -> io::Result<Self> {
		let writer = stream.try_clone()?;
		Ok(Self { reader: Arc::new(stream), writer: Arc::new(Mutex::new(Some(writer))) })
	}

	/// Sends raw bytes: the preamble.
	pub fn write(&self, send: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
		let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
		match writer.as_mut() {
			Some(file) => send(file).inspect_err(|_| *writer = None),
			None => Err(io::ErrorKind::BrokenPipe.into()),
		}
	}

	/// Sends a reply; says whether it went out.
	pub fn send(&self, reply: &Reply) -> bool {
		self.write(|file| frame::write(file, reply, MAX_FRAME).map_err(io::Error::other)).is_ok()
	}

	/// Sends nothing from now on.
	pub fn close(&self) {
		*self.writer.lock().unwrap_or_else(PoisonError::into_inner) = None;
	}

	/// Ends it in both directions: who waits for it goes on, and is told so.
	pub fn hang_up(&self) {
		// Fails if the host has gone already, and for a line, which has no end.
		let _ = shutdown(&self.reader, Shutdown::Both);
	}
}

impl AsFd for Conn {
	fn as_fd(&self) -> BorrowedFd<'_> {
		self.reader.as_fd()
	}
}

impl Read for Conn {
	fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
		(&*self.reader).read(buffer)
	}
}
