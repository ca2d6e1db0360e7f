//! The thread that serves all virtio devices of a VM.

use super::Transport;
use event_manager::{EventManager, RemoteEndpoint, SubscriberOps};
use std::{
	fmt, io,
	sync::{
		Arc, Mutex,
		atomic::{AtomicBool, Ordering},
		mpsc,
	},
	thread::{self, JoinHandle},
};

/// Runs until it is dropped.
pub struct Service {
	endpoint: RemoteEndpoint<Arc<Mutex<Transport>>>,
	ended: Arc<AtomicBool>,
	thread: Option<JoinHandle<()>>,
}

impl Service {
	pub(in crate::devices) fn start(transports: &[Arc<Mutex<Transport>>]) -> io::Result<Self> {
		let mut manager = EventManager::new().map_err(io::Error::other)?;
		for transport in transports {
			manager.add_subscriber(transport.clone());
		}
		let endpoint = manager.remote_endpoint();
		let ended = Arc::new(AtomicBool::new(false));
		let end = ended.clone();
		let (begun, wait) = mpsc::channel();
		let thread = thread::Builder::new().name("devices".into()).spawn(move || {
			drop(begun);
			// An epoll that fails has lost its descriptors: there is nothing left to serve.
			while !end.load(Ordering::Acquire) && manager.run().is_ok() {}
		})?;
		// What a thread does to begin with, a locked-in shell may not. Nothing is sent: the end of the channel says it.
		let _ = wait.recv() as Result<(), _>;
		Ok(Self { endpoint, ended, thread: Some(thread) })
	}
}

impl Drop for Service {
	fn drop(&mut self) {
		self.ended.store(true, Ordering::Release);
		// Wakes the thread; fails if it has ended by itself.
		let _ = self.endpoint.kick();
		if let Some(thread) = self.thread.take() {
			let _ = thread.join();
		}
	}
}

impl fmt::Debug for Service {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		f.debug_struct("Service").finish_non_exhaustive()
	}
}
