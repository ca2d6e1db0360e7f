//! A clone's console: the end of what was written, and who listens.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Bytes kept for who comes later.
const KEPT: usize = 64 << 10;

/// Pieces that a slow listener may be behind; then it is cut off.
const BEHIND: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Console(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    kept: VecDeque<u8>,
    listeners: Vec<Sender<Vec<u8>>>,
    ended: bool,
}

impl Console {
    pub(super) fn write(&self, bytes: &[u8]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.kept.extend(bytes);
        let surplus = state.kept.len().saturating_sub(KEPT);
        state.kept.drain(..surplus);
        state.listeners.retain(|listener| listener.try_send(bytes.to_vec()).is_ok());
    }

    /// What was kept, then everything until the end.
    pub(super) fn listen(&self) -> Receiver<Vec<u8>> {
        let (sender, receiver) = channel(BEHIND);
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // There is room for one.
        let _ = sender.try_send(state.kept.iter().copied().collect());
        if !state.ended {
            state.listeners.push(sender);
        }
        receiver
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_get_what_was_kept_and_what_comes() {
        let console = Console::default();
        console.write(&[b'x'; KEPT]);
        console.write(b"one\ntwo\r\n\n");
        let mut listener = console.listen();
        console.write(b"three");
        console.end();
        assert_eq!(listener.blocking_recv().unwrap().len(), KEPT);
        assert_eq!(listener.blocking_recv().unwrap(), b"three");
        assert_eq!(listener.blocking_recv(), None);
        assert_eq!(console.last_line().unwrap(), "three");
    }
}
