//! Deployments: of one function one at a time, so that nobody tidies away what another one has just unpacked. Those of
//! others don't wait while a function is warmed, which may take long.

use crate::locked;
use std::{
	collections::BTreeMap,
	sync::{Arc, Mutex},
};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

#[derive(Default)]
pub struct Deploys {
	/// By functions' full names.
	names: Mutex<BTreeMap<String, Arc<AsyncMutex<()>>>>,
	/// Packages are large: one is unpacked at a time.
	pub unpacking: AsyncMutex<()>,
}

impl Deploys {
	/// Waits until no other deployment of this function is under way, and keeps others back.
	pub async fn of(&self, name: &str) -> OwnedMutexGuard<()> {
		let lock = {
			let mut names = locked(&self.names);
			names.retain(|_, lock| Arc::strong_count(lock) > 1);
			names.entry(name.to_owned()).or_default().clone()
		};
		lock.lock_owned().await
	}
}
