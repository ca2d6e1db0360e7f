//! A clone's console: the end of what was written, and who listens.

use std::{
	collections::VecDeque,
	pin::pin,
	sync::{Mutex, PoisonError},
	task::{Context, Poll, Waker},
};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

/// Bytes kept for who comes later.
const KEPT: usize = 64 << 10;

/// Bytes that a slow listener may be behind; then it is cut off.
const BEHIND: usize = 4 * KEPT;

#[derive(Debug, Default)]
pub(super) struct Console(Mutex<State>);

#[derive(Debug, Default)]
struct State {
	kept: VecDeque<u8>,
	listeners: Vec<DuplexStream>,
	ended: bool,
}

impl Console {
	pub(super) fn write(&self, bytes: &[u8]) {
		let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
		state.kept.extend(bytes);
		let surplus = state.kept.len().saturating_sub(KEPT);
		state.kept.drain(..surplus);
		state.listeners.retain_mut(|listener| put(listener, bytes));
	}

	/// What was kept, then everything until the end.
	pub(super) fn listen(&self) -> DuplexStream {
		let (mut ours, theirs) = duplex(BEHIND);
		let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
		// There is room for it.
		put(&mut ours, state.kept.make_contiguous());
		if !state.ended {
			state.listeners.push(ours);
		}
		theirs
	}

	/// No more will come.
	pub(super) fn end(&self) {
		let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
		state.ended = true;
		state.listeners.clear();
	}

	/// The last line that has something on it, for messages.
	pub(super) fn last_line(&self) -> Option<String> {
		let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
		let bytes: Vec<u8> = state.kept.iter().copied().collect();
		let text = String::from_utf8_lossy(&bytes);
		let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
		Some(line.chars().filter(|c| !c.is_control()).take(200).collect())
	}
}

/// Whether there was room for all of it.
fn put(listener: &mut DuplexStream, bytes: &[u8]) -> bool {
	let write = pin!(listener.write(bytes));
	let written = write.poll(&mut Context::from_waker(Waker::noop()));
	matches!(written, Poll::Ready(Ok(count)) if count == bytes.len())
}

#[cfg(test)]
mod tests {
	use super::*;
	use tokio::io::AsyncReadExt;

	#[test]
	fn listeners_get_what_was_kept_and_what_comes_until_they_are_too_far_behind() {
		let console = Console::default();
		console.write(&[b'x'; KEPT]);
		console.write(b"one\ntwo\r\n\n");
		let mut listener = console.listen();
		(KEPT..BEHIND).for_each(|_| console.write(b"3"));
		console.write(b"lost");
		let (runtime, mut heard) = (tokio::runtime::Builder::new_current_thread().build().unwrap(), Vec::new());
		runtime.block_on(listener.read_to_end(&mut heard)).unwrap();
		assert!(heard.len() == BEHIND && heard.ends_with(b"3"));
		assert!(console.last_line().unwrap().starts_with("33"));
	}
}
