//! A clone of a function's, over the calls that it takes.

use crate::{
	locked, machine, process,
	runtime::{Answer, Call, Line, Served},
	usage,
};
use std::{
	io::{ErrorKind, PipeReader, Result},
	pin::pin,
	sync::Arc,
	time::{Duration, Instant},
};
use tokio::{
	net::unix::pipe::Receiver,
	sync::OwnedSemaphorePermit,
	time::{sleep_until, timeout},
};

/// Most bytes of a call's log.
const CALL_LOG: usize = 64 << 10;
/// Most bytes of why a function can't be loaded.
const MOST_WORDS: usize = 16 << 10;
/// Why a call has failed whose time was up.
pub const TIMED_OUT: &str = "Sandbox.Timedout";

/// The answer to a call, or in AWS's words what has failed and why.
pub type Came = std::result::Result<Answer, (&'static str, String)>;

/// Dropped, it is killed with all that it has started.
pub struct Instance {
	body: Body,
	line: Arc<Line>,
	/// Serves its connections; `None` when these have ended.
	served: Option<Served>,
	log: Log,
	/// How many calls it has taken.
	pub calls: u32,
}

/// What runs: dropped, it ends.
pub enum Body {
	Process(process::Running),
	/// A virtual machine.
	Machine(machine::Running),
}

impl Body {
	/// Returns when it has ended: how.
	async fn ended(&self) -> String {
		match self {
			Body::Process(running) => running.ended().await,
			Body::Machine(running) => running.ended().await,
		}
	}

	fn runs(&self) -> bool {
		match self {
			Body::Process(running) => running.runs(),
			Body::Machine(running) => running.runs(),
		}
	}

	/// Returns when all that it has printed can be read.
	async fn flush(&self) {
		if let Body::Machine(running) = self {
			running.flush().await;
		}
	}
}

impl Instance {
	/// `log` is the other end of what it prints; `serve` serves its connections.
	pub fn new<F: Future<Output = ()> + Send + 'static>(
		body: Body,
		log: PipeReader,
		serve: impl FnOnce(Arc<Line>) -> F,
	) -> Result<Instance> {
		let log = Log { reader: Some(Receiver::from_owned_fd(log.into())?), bytes: Vec::new() };
		let line = Arc::<Line>::default();
		let served = Box::pin(serve(line.clone()));
		Ok(Instance { body, line, served: Some(served), log, calls: 0 })
	}

	/// Waits until it asks for its first call. Else, in words, why it does not.
	pub async fn begin(&mut self) -> std::result::Result<(), String> {
		let mut begins = self.line.begins();
		loop {
			if let Some(begun) = begins.borrow().clone() {
				return begun.map_err(|error| failed(&error));
			}
			tokio::select! {
				biased;
				Ok(()) = begins.changed() => {}
				() = until(&mut self.served) => self.served = None,
				() = self.log.read() => {}
				// What it has said before its end counts.
				_ = self.body.ended() => match self.served.take() {
					Some(served) => drop(timeout(Duration::from_secs(1), served).await),
					None => return Err("its runtime has ended before it asked for a call".into()),
				},
			}
		}
	}

	/// What it answers, by its deadline.
	pub async fn call(&mut self, call: Call, deadline: Instant, limit: Duration) -> Came {
		self.calls += 1;
		let id = call.id.clone();
		let mut answer = self.line.give(call);
		let came = loop {
			tokio::select! {
				biased;
				Ok(answer) = &mut answer => break Ok(answer),
				// It speaks with nobody any more, and may go on until its end, or the deadline.
				() = until(&mut self.served) => self.served = None,
				() = self.log.read() => {}
				how = self.body.ended() => {
					// What it has said before its end counts; it may have handed the connection on.
					if let Some(served) = self.served.take() {
						let _ = timeout(Duration::from_secs(1), served).await;
					}
					break answer.try_recv().map_err(|_| exited(&id, &how));
				}
				() = sleep_until(deadline.into()) => {
					let text = format!("{id} Task timed out after {:.2} seconds", limit.as_secs_f64());
					break Err((TIMED_OUT, text));
				}
			}
		};
		// What it has printed before its answer is its log, by the deadline.
		let mut flushed = pin!(self.body.flush());
		loop {
			tokio::select! {
				biased;
				() = &mut flushed => break,
				() = self.log.read() => {}
				() = sleep_until(deadline.into()) => break,
			}
		}
		while matches!(self.log.take(), Ok(1..)) {}
		came
	}

	/// What it has printed since this was asked last.
	pub fn printed(&mut self) -> Vec<u8> {
		std::mem::take(&mut self.log.bytes)
	}

	/// Whether it knows of the call that it was given last.
	pub fn has_begun(&self) -> bool {
		self.line.has_begun()
	}

	/// What its use of processors is known by; `None` of a machine whose process isn't seen from here.
	pub fn usage(&self) -> Option<usage::Known> {
		match &self.body {
			Body::Process(running) => Some(usage::Known::Process(running.known)),
			Body::Machine(running) => running.usage,
		}
	}

	/// Whether it may take another call.
	pub fn speaks(&self) -> bool {
		self.served.is_some() && self.body.runs()
	}

	/// Has this be free when all of it has ended, or at once where it gives way to another.
	pub fn hold(&mut self, place: Option<Arc<OwnedSemaphorePermit>>) {
		match &mut self.body {
			Body::Process(running) => running.held = place,
			Body::Machine(running) => running.held = place,
		}
	}
}

impl Drop for Instance {
	fn drop(&mut self) {
		match &mut self.body {
			Body::Process(running) => *locked(&running.served) = self.served.take(),
			Body::Machine(running) => *locked(&running.served) = self.served.take(),
		}
	}
}

async fn until(served: &mut Option<Served>) {
	match served {
		Some(served) => served.await,
		None => std::future::pending().await,
	}
}

/// An error of the runtime's, in words.
fn failed(error: &[u8]) -> String {
	let told: serde_json::Value = serde_json::from_slice(error).unwrap_or_default();
	let text = |name: &str| told[name].as_str().map(str::to_owned);
	let mut words = match (text("errorType"), text("errorMessage")) {
		(Some(kind), Some(why)) => format!("{kind}: {why}"),
		_ => String::from_utf8_lossy(error).into_owned(),
	};
	words.truncate(words.floor_char_boundary(MOST_WORDS));
	words
}

fn exited(id: &str, how: &str) -> (&'static str, String) {
	("Runtime.ExitError", format!("RequestId: {id} Error: Runtime exited with error: {how}"))
}

/// What a clone prints.
struct Log {
	/// `None` from its end on.
	reader: Option<Receiver>,
	bytes: Vec<u8>,
}

impl Log {
	/// Reads some, when there is some.
	async fn read(&mut self) {
		let Some(reader) = &self.reader else { return std::future::pending().await };
		match reader.readable().await.and_then(|()| self.take()) {
			Ok(1..) => {}
			Err(e) if e.kind() == ErrorKind::WouldBlock => {}
			_ => self.reader = None,
		}
	}

	/// What there is of it now.
	fn take(&mut self) -> Result<usize> {
		let Some(reader) = &self.reader else { return Ok(0) };
		let mut bytes = [0; 4096];
		let count = reader.try_read(&mut bytes)?;
		self.bytes.extend(&bytes[..count]);
		let more = self.bytes.len().saturating_sub(CALL_LOG);
		self.bytes.drain(..more);
		Ok(count)
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn why_a_function_fails_has_few_words() {
		assert_eq!(failed(br#"{"errorType": "E", "errorMessage": "it"}"#), "E: it");
		assert_eq!(failed(&[b'x'; 2 * MOST_WORDS]).len(), MOST_WORDS);
	}
}
