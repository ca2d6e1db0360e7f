//! Clones of a function that wait for its next call: one made ahead of it, and where the function's policy is to use
//! them again, those that have been used. They are not frozen: that would take time of each call's, and can't be done
//! to all processes of one at once.

use crate::instance::Instance;
use crate::locked;
use crate::usage;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::info;

/// How long one waits.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked at, and the hundredths of a second that it may use in between; but for once.
const LOOK: Duration = Duration::from_secs(2);
const MOST: u64 = 20;

#[derive(Default)]
pub struct Parked(Arc<Mutex<Vec<Waiting>>>);

struct Waiting {
	/// It may be in the making.
	instance: oneshot::Receiver<Instance>,
	since: Instant,
	_place: OwnedSemaphorePermit,
}

impl Parked {
	/// The one that has waited least, which has most in the caches.
	pub async fn take(&self) -> Option<Instance> {
		loop {
			let waiting = locked(&self.0).pop()?;
			// One that could not be made gives way to the next, and whoever makes that is told why.
			if let Some(instance) = waiting.instance.await.ok().filter(Instance::speaks) {
				return Some(instance);
			}
		}
	}

	pub fn is_empty(&self) -> bool {
		locked(&self.0).is_empty()
	}

	/// Has one wait, until there is no call for it in time; gives it back where there is no place.
	pub fn put(&self, places: &Arc<Semaphore>, instance: Instance) -> Option<Instance> {
		match self.place(places) {
			Some(sender) => sender.send(instance).err(),
			None => Some(instance),
		}
	}

	/// A place for one, if there is any; from now on a call may wait for what is put there.
	pub fn place(&self, places: &Arc<Semaphore>) -> Option<oneshot::Sender<Instance>> {
		let place = places.clone().try_acquire_owned().ok()?;
		let (sender, instance) = oneshot::channel();
		let since = Instant::now();
		locked(&self.0).push(Waiting { instance, since, _place: place });
		tokio::spawn(watch(Arc::downgrade(&self.0), since));
		Some(sender)
	}
}

/// Ends one that has waited since then when it was in vain, or when it goes on to compute.
async fn watch(all: Weak<Mutex<Vec<Waiting>>>, since: Instant) {
	let (mut before, mut busy) = (None, 0);
	while since.elapsed() < PATIENCE && busy < 2 {
		tokio::time::sleep(LOOK).await;
		let Some(all) = all.upgrade() else { return };
		let known = match locked(&all).iter_mut().find(|waiting| waiting.since == since) {
			Some(waiting) => waiting.known(),
			None => return,
		};
		let Some(known) = known else { continue };
		let Ok(used) = tokio::task::spawn_blocking(move || known.used()).await else { return };
		let idles = used.is_some_and(|used| before.is_none_or(|before| used <= before + MOST));
		(before, busy) = (used, if idles { 0 } else { busy + 1 });
	}
	let Some(all) = all.upgrade() else { return };
	if busy > 1 {
		info!("a clone that computes while it waits for a call is ended");
	}
	locked(&all).retain(|waiting| waiting.since != since);
}

impl Waiting {
	/// Of a process that has been made.
	fn known(&mut self) -> Option<usage::Clone> {
		let instance = self.instance.try_recv().ok()?;
		let known = instance.usage();
		let (sender, receiver) = oneshot::channel();
		self.instance = receiver;
		// Received when a call takes it.
		let _ = sender.send(instance);
		known
	}
}
