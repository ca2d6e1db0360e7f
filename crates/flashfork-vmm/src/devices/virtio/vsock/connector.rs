//! The way into the device from outside: its context id, and streams to connect.

use crate::devices::lock;
use std::{
	io,
	os::fd::OwnedFd,
	sync::{
		Arc, Mutex,
		atomic::{AtomicU32, Ordering},
	},
};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// A VM that was not told another has this context id: the first that isn't reserved.
const FIRST_CID: u32 = 3;
/// Streams that may wait for a guest that doesn't take them. More are closed at once.
const MAX_WAITING: usize = 256;

/// Held by the VM and by its device.
#[derive(Debug, Clone)]
pub struct Connector(Arc<Shared>);

#[derive(Debug)]
struct Shared {
	cid: AtomicU32,
	waiting: Mutex<Vec<(OwnedFd, u32)>>,
	wake: EventFd,
}

impl Connector {
	/// For a new VM.
	pub fn new() -> io::Result<Self> {
		let wake = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
		Ok(Self(Arc::new(Shared { cid: AtomicU32::new(FIRST_CID), waiting: Mutex::default(), wake })))
	}

	/// The VM's context id.
	pub fn cid(&self) -> u32 {
		self.0.cid.load(Ordering::Relaxed)
	}

	/// Gives the VM another context id, 3 or more; paused, before its state is restored.
	pub fn set_cid(&self, cid: u32) {
		self.0.cid.store(cid, Ordering::Relaxed);
	}

	/// Connects `stream`, a stream socket, to `port` of the guest as soon as that runs and has a driver. Whether
	/// somebody listens there shows on the stream: it ends if not.
	pub fn connect(&self, stream: OwnedFd, port: u32) {
		let mut waiting = lock(&self.0.waiting);
		if waiting.len() < MAX_WAITING {
			waiting.push((stream, port));
			// A full counter wakes as well.
			let _ = self.0.wake.write(1);
		}
	}

	pub(super) fn wake(&self) -> &EventFd {
		&self.0.wake
	}

	pub(super) fn take(&self) -> Vec<(OwnedFd, u32)> {
		std::mem::take(&mut lock(&self.0.waiting))
	}
}
