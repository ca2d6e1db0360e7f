//! Deployments: of one function one at a time, so that nobody tidies away what another one has just unpacked. Those of
//! others don't wait while a function is warmed, which may take long.

use crate::{
	error::{ApiError, Result},
	locked,
};
use std::{
	collections::BTreeMap,
	sync::{Arc, Mutex},
};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Most that are under way or wait for others, of one function and in all.
const MOST_OF_ONE: usize = 4;
const MOST: usize = 128;

pub struct Deploys {
	/// By functions' full names.
	names: Mutex<BTreeMap<String, Arc<AsyncMutex<()>>>>,
	/// Packages are large: one is unpacked at a time.
	pub unpacking: AsyncMutex<()>,
	places: Arc<Semaphore>,
}

impl Default for Deploys {
	fn default() -> Deploys {
		let (names, unpacking) = (Mutex::default(), AsyncMutex::default());
		Deploys { names, unpacking, places: Arc::new(Semaphore::new(MOST)) }
	}
}

impl Deploys {
	/// Waits until no other deployment of this function is under way, and keeps others back; refused where many do.
	pub async fn begin(&self, name: &str) -> Result<(OwnedMutexGuard<()>, OwnedSemaphorePermit)> {
		let full = "as many functions are being deployed as may; try again later";
		let place = self.places.clone().try_acquire_owned().map_err(|_| ApiError::too_many(full))?;
		let lock = self.lock(name);
		// The map has one of them.
		if Arc::strong_count(&lock) > MOST_OF_ONE + 1 {
			let why = "updates of this function are in progress; try again later";
			return Err(ApiError::conflict(why));
		}
		Ok((lock.lock_owned().await, place))
	}

	/// Waits until none of this function is under way, and keeps others back.
	pub async fn none(&self, name: &str) -> OwnedMutexGuard<()> {
		self.lock(name).lock_owned().await
	}

	fn lock(&self, name: &str) -> Arc<AsyncMutex<()>> {
		let mut names = locked(&self.names);
		names.retain(|_, lock| Arc::strong_count(lock) > 1);
		names.entry(name.to_owned()).or_default().clone()
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use futures_util::FutureExt;

	#[tokio::test]
	async fn so_many_of_one_function_wait_and_no_more() {
		let deploys = Deploys::default();
		let _first = deploys.begin("a").await.unwrap();
		let mut waiting: Vec<_> = (1..MOST_OF_ONE).map(|_| Box::pin(deploys.begin("a"))).collect();
		assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));
		assert_eq!(deploys.begin("a").await.unwrap_err().kind, "ResourceConflictException");
		drop(deploys.begin("b").await.unwrap());
	}
}
