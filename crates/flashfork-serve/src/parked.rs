//! Clones of a function that wait for its next call: one made ahead of it, and where the function's policy is to use
//! them again, those that have been used. They are not frozen: that would take time of each call's, and can't be done
//! to all processes of one at once.

use crate::{
	instance::Instance,
	locked,
	usage::{self, Used},
};
use std::{
	collections::BTreeMap,
	sync::{Arc, Mutex, Weak},
	time::{Duration, Instant},
};
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
	/// What it had used when it was looked at last, and how often in a row that was too much.
	used: Option<Used>,
	busy: u32,
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
		let mut all = locked(&self.0);
		all.push(Waiting { instance, since: Instant::now(), used: None, busy: 0, _place: place });
		if Arc::weak_count(&self.0) == 0 {
			tokio::spawn(watch(Arc::downgrade(&self.0)));
		}
		Some(sender)
	}
}

/// Ends those that have waited in vain, or that go on to compute, while any wait.
async fn watch(weak: Weak<Mutex<Vec<Waiting>>>) {
	loop {
		tokio::time::sleep(LOOK).await;
		let known: Vec<_> = {
			let Some(all) = weak.upgrade() else { return };
			let mut all = locked(&all);
			all.retain(|one| one.since.elapsed() < PATIENCE);
			if all.is_empty() {
				// Whoever puts one there next sees that nobody looks.
				return drop(weak);
			}
			look(&mut all)
		};
		let (since, clones): (Vec<_>, Vec<_>) = known.into_iter().unzip();
		// It fails when the server ends.
		let used = tokio::task::spawn_blocking(move || usage::used(&clones)).await.unwrap_or_default();
		let used: BTreeMap<_, _> = since.into_iter().zip(used).collect();
		let Some(all) = weak.upgrade() else { return };
		locked(&all).retain_mut(|one| used.get(&one.since).is_none_or(|used| one.goes_on(*used)));
	}
}

/// What is known of those that have been made; what could not be made waits no more.
fn look(all: &mut Vec<Waiting>) -> Vec<(Instant, usage::Known)> {
	let known = all.iter_mut().filter_map(|one| Some((one.since, one.known()?))).collect();
	all.retain(|one| !one.instance.is_terminated());
	known
}

impl Waiting {
	/// Whether it may wait on, having used that much.
	fn goes_on(&mut self, used: Option<Used>) -> bool {
		let little =
			|used: Used, before: Used| used.hundredths <= before.hundredths + MOST && !(used.runs && before.runs);
		let idles = used.is_some_and(|used| self.used.is_none_or(|before| little(used, before)));
		(self.used, self.busy) = (used, if idles { 0 } else { self.busy + 1 });
		if self.busy > 1 {
			info!("a clone that computes, or can't be seen, while it waits for a call is ended");
		}
		self.busy < 2
	}

	/// Of one that has been made.
	fn known(&mut self) -> Option<usage::Known> {
		let instance = self.instance.try_recv().ok()?;
		let known = instance.usage();
		let (sender, receiver) = oneshot::channel();
		self.instance = receiver;
		// Received when a call takes it.
		let _ = sender.send(instance);
		known
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[tokio::test]
	async fn all_that_wait_are_looked_at_by_one() {
		let (parked, places) = (Parked::default(), Arc::new(Semaphore::new(9)));
		let _senders = [(); 9].map(|()| parked.place(&places).unwrap());
		assert_eq!(Arc::weak_count(&parked.0), 1);
	}

	#[tokio::test]
	async fn one_that_could_not_be_made_is_no_end_of_the_server_once_it_has_been_looked_at() {
		let (parked, places) = (Parked::default(), Arc::new(Semaphore::new(2)));
		let senders = [(); 2].map(|()| parked.place(&places).unwrap());
		assert!(look(&mut locked(&parked.0)).is_empty() && places.available_permits() == 0);
		drop(senders);
		assert!(look(&mut locked(&parked.0)).is_empty());
		assert!(parked.take().await.is_none() && places.available_permits() == 2);
	}
}
