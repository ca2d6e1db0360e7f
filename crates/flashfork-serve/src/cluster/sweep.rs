//! Packages that no function has: a node has ended, or has lost NATS, while it deployed or undeployed.

use super::Cluster;
use super::wire::away;
use crate::error::Result;
use async_nats::jetstream::kv::Operation;
use async_nats::jetstream::object_store::ObjectInfo;
use futures_util::TryStreamExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tracing::error;

/// Of what is younger the deployment may go on; it would be told that somebody else deploys.
const YOUNG: Duration = Duration::from_secs(600);

impl Cluster {
	/// Deletes them from NATS.
	pub async fn sweep(self: Arc<Self>) {
		let all = match self.old_packages().await {
			Ok(all) => all,
			Err(e) => return error!("packages that no function has may stay in NATS: {e}"),
		};
		for package in all {
			// One that doesn't say whose it is was put there by an older program.
			let Some(key) = package.description else { continue };
			if let Err(e) = self.sweep_one(&key, &package.name).await {
				error!("a package of {key} that may not be needed any more stays in NATS: {e}");
			}
		}
	}

	async fn old_packages(&self) -> Result<Vec<ObjectInfo>> {
		let all = self.packages.objects.list().await.map_err(away)?;
		let is_old =
			|package: &ObjectInfo| package.modified.is_some_and(|at| SystemTime::from(at) + YOUNG < SystemTime::now());
		all.try_filter(|package| std::future::ready(is_old(package))).try_collect().await.map_err(away)
	}

	/// Deletes a package unless its function has it. Before that the function's entry is written anew as it is: a
	/// deployment that has put the package there has looked at the entry before, and its own writing of it fails from
	/// now on, however late it comes.
	async fn sweep_one(&self, key: &str, revision_id: &str) -> Result<()> {
		let configs = &self.packages.configs;
		let entry = configs.entry(key).await.map_err(away)?;
		let at = entry.as_ref().map_or(0, |entry| entry.revision);
		match entry.filter(|entry| entry.operation == Operation::Put) {
			Some(entry) => {
				if self.packages.read(key, &entry.value)?.revision_id == revision_id {
					return Ok(());
				}
				configs.update(key, entry.value, at).await.map_err(away)?;
			}
			None => configs.delete_expect_revision(key, Some(at)).await.map_err(away)?,
		}
		self.packages.objects.delete(revision_id).await.map_err(away)
	}
}
