//! What the guest wrote to its console, until the controller sends it: a guest writes byte by byte, the daemon gets
//! packets.

use std::{
	io::{self, Write},
	os::fd::{AsFd, AsRawFd, BorrowedFd},
	sync::{Arc, Mutex, PoisonError},
};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Greatest number of bytes kept; and so the greatest packet. More than that is lost, as on a line without a listener.
const ROOM: usize = 64 << 10;

/// Both ends of the console's output.
#[derive(Debug, Clone)]
pub(super) struct Output(Arc<Shared>);

#[derive(Debug)]
struct Shared {
	bytes: Mutex<Vec<u8>>,
	wake: EventFd,
}

impl Output {
	pub(super) fn new() -> io::Result<Self> {
		let wake = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
		Ok(Self(Arc::new(Shared { bytes: Mutex::new(Vec::with_capacity(ROOM)), wake })))
	}

	/// What was written since the last time; afterwards the descriptor is unreadable until more is.
	pub(super) fn take(&self) -> Vec<u8> {
		let mut bytes = self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner);
		let _ = self.0.wake.read();
		let taken = bytes.clone();
		bytes.clear();
		taken
	}
}

impl Write for Output {
	fn write(&mut self, new: &[u8]) -> io::Result<usize> {
		let mut bytes = self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner);
		if bytes.is_empty() {
			self.0.wake.write(1)?;
		}
		let room = ROOM - bytes.len();
		bytes.extend_from_slice(&new[..new.len().min(room)]);
		Ok(new.len())
	}

	fn flush(&mut self) -> io::Result<()> {
		Ok(())
	}
}

impl AsFd for Output {
	/// Readable when there is something to take.
	fn as_fd(&self) -> BorrowedFd<'_> {
		// SAFETY: open as long as `self` lives.
		unsafe { BorrowedFd::borrow_raw(self.0.wake.as_raw_fd()) }
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_guest_that_never_stops_writing_fills_one_packet() {
		let mut output = Output::new().unwrap();
		for _ in 0..3 * ROOM / 1000 {
			assert_eq!(output.write(&[7; 1000]).unwrap(), 1000);
		}
		assert_eq!(output.take().len(), ROOM);
		assert_eq!(output.take().len(), 0);
		output.write_all(b"more").unwrap();
		assert_eq!(output.take(), b"more");
	}
}
