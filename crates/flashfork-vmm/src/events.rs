//! What happens in a VM and must be acted on outside: one queue per machine, with an eventfd for who polls.

use crate::cpu::{Exit, RunError};
use flashfork_proto::Generation;
use std::{
	collections::VecDeque,
	fmt, io,
	mem::discriminant,
	os::fd::{AsFd, AsRawFd, BorrowedFd},
	sync::{Arc, Condvar, Mutex, PoisonError},
	time::Duration,
};
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

/// More than a guest signals that its host listens to, however long the controller has to wait for a processor.
const WAITING: usize = 8;

/// Where events are put in.
#[derive(Clone)]
pub struct Outbox(Arc<Shared>);

/// Where they come out.
#[derive(Debug)]
pub struct Inbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
	events: Mutex<VecDeque<Event>>,
	/// For who waits in [`Inbox::take`].
	some: Condvar,
	/// For who polls.
	wake: EventFd,
}

/// A queue.
pub fn queue() -> io::Result<(Outbox, Inbox)> {
	let wake = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
	let shared = Arc::new(Shared { events: Mutex::default(), some: Condvar::new(), wake });
	Ok((Outbox(shared.clone()), Inbox(shared)))
}

impl Outbox {
	/// Puts an event in. A machine that is going away listens no more; nothing is lost by that.
	///
	/// Laps and signs of life the guest makes as fast as it likes: of each kind at most [`WAITING`] are kept until they
	/// are taken, and a new one takes the place of the last. Of all others there are no more than the machine's owner
	/// asked for.
	pub(crate) fn put(&self, event: Event) {
		let Shared { events, some, wake } = &*self.0;
		let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
		let unasked = matches!(event, Event::Lap(_) | Event::Alive(_));
		let alike = |other: &Event| discriminant(other) == discriminant(&event);
		let full = unasked && events.iter().filter(|other| alike(other)).count() >= WAITING;
		match events.iter_mut().rfind(|other| full && alike(other)) {
			Some(last) => *last = event,
			None => events.push_back(event),
		}
		drop(events);
		some.notify_one();
		// A full counter wakes as well as one more.
		let _ = wake.write(1);
	}
}

impl Inbox {
	/// The next event; none within `timeout`, or `None` of it: waits for ever.
	pub(crate) fn take(&self, timeout: Option<Duration>) -> Option<Event> {
		let Shared { events, some, .. } = &*self.0;
		let events = events.lock().unwrap_or_else(PoisonError::into_inner);
		let empty = |events: &mut VecDeque<Event>| events.is_empty();
		let mut events = match timeout {
			None => some.wait_while(events, empty).unwrap_or_else(PoisonError::into_inner),
			Some(timeout) => some.wait_timeout_while(events, timeout, empty).unwrap_or_else(PoisonError::into_inner).0,
		};
		events.pop_front()
	}

	/// Makes the eventfd unreadable until the next event; take what is there afterwards.
	pub(crate) fn rearm(&self) {
		let _ = self.0.wake.read();
	}

	/// Makes the eventfd readable: there may be events that were not taken.
	pub(crate) fn remind(&self) {
		// A full counter wakes as well as one more.
		let _ = self.0.wake.write(1);
	}
}

impl AsFd for Inbox {
	/// Readable when there are events, or were since the last [`Inbox::rearm`].
	fn as_fd(&self) -> BorrowedFd<'_> {
		// SAFETY: open as long as `self` lives.
		unsafe { BorrowedFd::borrow_raw(self.0.wake.as_raw_fd()) }
	}
}

impl fmt::Debug for Outbox {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		f.debug_struct("Outbox").finish_non_exhaustive()
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_guest_that_signals_all_the_time_fills_no_memory_and_no_lap_of_a_few_is_lost() {
		let (outbox, inbox) = queue().unwrap();
		for lap in 0..1000 {
			outbox.put(Event::Lap(lap));
			outbox.put(Event::Alive([7; 16]));
		}
		outbox.put(Event::Trouble("a line".into()));
		outbox.put(Event::Trouble("another".into()));
		let events: Vec<_> = std::iter::from_fn(|| inbox.take(Some(Duration::ZERO))).collect();
		let laps: Vec<_> =
			events.iter().filter_map(|event| if let Event::Lap(lap) = event { Some(*lap) } else { None }).collect();
		assert_eq!(laps, [0, 1, 2, 3, 4, 5, 6, 999], "the first, in their order, and the latest");
		assert_eq!(events.iter().filter(|event| matches!(event, Event::Alive(_))).count(), WAITING);
		let [.., Event::Trouble(first), Event::Trouble(_)] = &events[..] else { panic!("{events:?}") };
		assert_eq!(first, "a line");
	}
}
