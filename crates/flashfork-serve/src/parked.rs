//! Clones of a function that wait for its next call, where its policy is to use them again.

use crate::instance::Instance;
use crate::locked;
use crate::pool::Pool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

/// How long one waits.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Parked(Arc<Mutex<Vec<Waiting>>>);

struct Waiting {
	instance: Instance,
	since: Instant,
	_place: OwnedSemaphorePermit,
}

impl Parked {
	/// The one that has waited least, which has most in the caches.
	pub fn take(&self) -> Option<Instance> {
		loop {
			let instance = locked(&self.0).pop()?.instance;
			if instance.speaks() {
				return Some(instance);
			}
		}
	}

	/// Has one wait, until there is no call for it in time; gives it back where there is no place.
	pub fn put(&self, pool: &Pool, instance: Instance) -> Option<Instance> {
		let Ok(place) = pool.parking.clone().try_acquire_owned() else { return Some(instance) };
		locked(&self.0).push(Waiting { instance, since: Instant::now(), _place: place });
		let all = Arc::downgrade(&self.0);
		tokio::spawn(async move {
			tokio::time::sleep(PATIENCE).await;
			if let Some(all) = all.upgrade() {
				locked(&all).retain(|waiting| waiting.since.elapsed() < PATIENCE);
			}
		});
		None
	}
}
