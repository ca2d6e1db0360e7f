//! Clones of a function that wait for its next call: one made ahead of it, and where the function's policy is to use
//! them again, those that have been used.

use crate::instance::Instance;
use crate::locked;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How long one waits.
const PATIENCE: Duration = Duration::from_secs(60);

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
		locked(&self.0).push(Waiting { instance, since: Instant::now(), _place: place });
		let all = Arc::downgrade(&self.0);
		tokio::spawn(async move {
			tokio::time::sleep(PATIENCE).await;
			if let Some(all) = all.upgrade() {
				locked(&all).retain(|waiting| waiting.since.elapsed() < PATIENCE);
			}
		});
		Some(sender)
	}
}
