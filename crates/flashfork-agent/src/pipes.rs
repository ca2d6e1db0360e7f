//! Reading and writing of pipes that give up when a command has ended.

use std::{
	fs::File,
	io::{self, ErrorKind, PipeReader, Read, Write},
	os::fd::AsFd,
};

use rustix::{
	event::{PollFd, PollFlags, poll},
	fs::{OFlags, fcntl_getfl, fcntl_setfl},
};

/// After the command's end, no more than this is read of what its descendants go on writing.
const REST: usize = 1 << 20;

/// Makes reads and writes of `file` return at once.
pub fn set_nonblocking(file: &impl AsFd) -> io::Result<()> {
	Ok(fcntl_setfl(file, fcntl_getfl(file)? | OFlags::NONBLOCK)?)
}

/// Whether `flags` came up on `file` before the other end of `ended` was closed.
fn wait(file: &impl AsFd, flags: PollFlags, ended: &PipeReader) -> io::Result<bool> {
	loop {
		let mut fds = [PollFd::new(file, flags), PollFd::new(ended, PollFlags::empty())];
		match poll(&mut fds, None) {
			Err(rustix::io::Errno::INTR) => {}
			Err(errno) => return Err(errno.into()),
			// The file first: what was there at the end counts.
			Ok(_) => return Ok(!fds[0].revents().is_empty()),
		}
	}
}

/// Passes all that can be read from `from` to `take`, up to its end or, once `ended`, what is there.
/// `from` must not block.
pub fn drain(from: &mut File, ended: &PipeReader, chunk: usize, mut take: impl FnMut(&[u8])) -> io::Result<()> {
	let mut buffer = vec![0; chunk];
	let mut rest = REST;
	loop {
		let before_end = !has_ended(ended)?;
		match from.read(&mut buffer) {
			Ok(0) => return Ok(()),
			Ok(count) => {
				take(&buffer[..count]);
				if !before_end {
					rest = rest.saturating_sub(count);
					if rest == 0 {
						return Ok(());
					}
				}
			}
			Err(error) if error.kind() == ErrorKind::Interrupted => {}
			Err(error) if error.kind() == ErrorKind::WouldBlock => {
				if !before_end {
					return Ok(());
				}
				wait(from, PollFlags::IN, ended)?;
			}
			// A terminal whose other side is closed.
			Err(error) if error.raw_os_error() == Some(libc::EIO) => return Ok(()),
			Err(error) => return Err(error),
		}
	}
}

/// Writes all of `bytes` to `to`, which must not block, unless `ended` comes first.
pub fn write_all(to: &mut File, mut bytes: &[u8], ended: &PipeReader) -> io::Result<()> {
	while !bytes.is_empty() {
		match to.write(bytes) {
			Ok(count) => bytes = &bytes[count..],
			Err(error) if error.kind() == ErrorKind::Interrupted => {}
			Err(error) if error.kind() == ErrorKind::WouldBlock => {
				if !wait(to, PollFlags::OUT, ended)? {
					return Err(ErrorKind::BrokenPipe.into());
				}
			}
			Err(error) => return Err(error),
		}
	}
	Ok(())
}

fn has_ended(ended: &PipeReader) -> io::Result<bool> {
	let mut fds = [PollFd::new(ended, PollFlags::empty())];
	let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
	match poll(&mut fds, Some(&none)) {
		Ok(count) => Ok(count > 0),
		Err(rustix::io::Errno::INTR) => Ok(false),
		Err(errno) => Err(errno.into()),
	}
}
