//! The coordinator's side: start a worker, ask it, reap it.

use std::time::Duration;

use super::{Subject, channel::Channel};
use crate::Result;

/// A running worker. Dropping it ends and reaps the process.
#[derive(Debug)]
pub struct Worker<S: Subject> {
	channel: Channel,
	ready: S::Ready,
}

impl<S: Subject> Worker<S> {
	/// Starts a worker and waits until it has prepared `spec`. `name` is used in errors, for example "seal 1G".
	pub fn start(name: impl Into<String>, spec: &S::Spec) -> Result<Self> {
		let mut channel = Channel::open(S::NAME, name.into(), S::environment(spec))?;
		channel.write(spec)?;
		let ready = channel.read()?;
		Ok(Self { channel, ready })
	}

	/// What the worker said when it was prepared.
	pub fn ready(&self) -> &S::Ready {
		&self.ready
	}

	/// The worker's process id.
	pub fn pid(&self) -> u32 {
		self.channel.pid()
	}

	/// Asks and waits for the answer.
	pub fn ask(&mut self, ask: &S::Ask) -> Result<S::Reply> {
		self.send(ask)?;
		self.receive()
	}

	/// Asks without waiting; to be followed by [`Worker::receive`]. This is how several workers act at the same time.
	pub fn send(&mut self, ask: &S::Ask) -> Result {
		self.channel.write(ask)
	}

	/// Waits for the answer to what was sent.
	pub fn receive(&mut self) -> Result<S::Reply> {
		self.channel.read()
	}

	/// Whether [`Worker::receive`] would return at once, waiting at most `patience` for that. For coordinators that
	/// watch something while the worker works.
	pub fn answered_within(&self, patience: Duration) -> Result<bool> {
		self.channel.readable_within(patience)
	}
}
