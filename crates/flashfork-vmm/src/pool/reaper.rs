//! Ends shells, one by one, where nobody waits for it.

use super::Shell;
use std::{
	io,
	sync::mpsc::{Sender, channel},
	thread::{self, JoinHandle},
};

#[derive(Debug)]
pub(super) struct Reaper {
	graves: Option<Sender<Shell>>,
	thread: Option<JoinHandle<()>>,
}

impl Reaper {
	pub(super) fn start() -> io::Result<Self> {
		let (graves, shells) = channel::<Shell>();
		let thread = thread::Builder::new().name("reaper".into()).spawn(move || {
			// Dropping a shell waits for its end.
			shells.into_iter().for_each(drop);
		})?;
		Ok(Self { graves: Some(graves), thread: Some(thread) })
	}

	/// Kills it now, waits for it later.
	pub(super) fn bury(&self, mut shell: Shell) {
		shell.kill();
		if let Some(graves) = &self.graves {
			// The thread lives as long as `self`.
			let _ = graves.send(shell);
		}
	}
}

impl Drop for Reaper {
	fn drop(&mut self) {
		self.graves = None;
		if let Some(thread) = self.thread.take() {
			let _ = thread.join();
		}
	}
}
