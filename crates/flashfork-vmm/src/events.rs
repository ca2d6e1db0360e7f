//! What happens in a VM and must be acted on outside: one queue per machine, with an eventfd for who polls.

use crate::cpu::{Exit, RunError};
use flashfork_proto::Generation;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{fmt, io};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A vCPU stopped.
    Exit {
        /// Its number.
        vcpu: u8,
        /// Why.
        exit: Result<Exit, RunError>,
    },
    /// The guest says that it has its entropy, clock and hooks; the generation is the clone's own. It goes on.
    Alive(Generation),
    /// The guest restarted its timer, which had run for so many nanoseconds. It goes on.
    Lap(u64),
    /// Something went wrong that the machine goes on with: one line, once for each kind and generation.
    Trouble(String),
}

/// Where events are put in.
#[derive(Clone)]
pub struct Outbox {
    sender: mpsc::Sender<Event>,
    wake: Arc<EventFd>,
}

/// Where they come out.
#[derive(Debug)]
pub struct Inbox {
    receiver: mpsc::Receiver<Event>,
    wake: Arc<EventFd>,
}

/// A queue.
pub fn queue() -> io::Result<(Outbox, Inbox)> {
    let (sender, receiver) = mpsc::channel();
    let wake = Arc::new(EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?);
    Ok((Outbox { sender, wake: wake.clone() }, Inbox { receiver, wake }))
}

impl Outbox {
    /// Puts an event in. A machine that is going away listens no more; nothing is lost by that.
    pub(crate) fn put(&self, event: Event) {
        if self.sender.send(event).is_ok() {
            // A full counter wakes as well as one more.
            let _ = self.wake.write(1);
        }
    }
}

impl Inbox {
    /// The next event; none within `timeout`, or `None` of it: waits for ever.
    pub(crate) fn take(&self, timeout: Option<Duration>) -> Option<Event> {
        match timeout {
            // The machine has senders as long as it lives.
            None => self.receiver.recv().ok(),
            Some(timeout) => self.receiver.recv_timeout(timeout).ok(),
        }
    }

    /// Makes the eventfd unreadable until the next event; take what is there afterwards.
    pub(crate) fn rearm(&self) {
        let _ = self.wake.read();
    }
}

impl AsFd for Inbox {
    /// Readable when there are events, or were since the last [`Inbox::rearm`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.wake.as_raw_fd()) }
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}
