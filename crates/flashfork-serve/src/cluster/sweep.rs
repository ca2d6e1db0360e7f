//! What is left in NATS. Packages that no function has, or parts of them: a node has ended, or has lost NATS, while it
//! deployed or undeployed. Events that have a result: a NATS server has ended, and has forgotten that they are over.

use super::{Cluster, wire::away};
use crate::error::Result;
use async_nats::jetstream::{
	kv::Operation,
	object_store::ObjectInfo,
	stream::{LastRawMessageErrorKind, Stream},
};
use futures_util::TryStreamExt;
use std::{
	collections::BTreeSet,
	sync::Arc,
	time::{Duration, SystemTime},
};
use tokio::time::sleep;
use tracing::error;

/// Where the parts of an object are, by its id.
const PARTS: &str = "$O.flashfork_packages.C.";

/// Of what is younger the deployment may go on; it would be told that somebody else deploys.
const YOUNG: Duration = Duration::from_secs(600);
/// Of what is younger the rest of the package may yet come.
const IN_PARTS: Duration = Duration::from_secs(3600);
/// How often it is looked for.
const OFTEN: Duration = Duration::from_secs(3600);

impl Cluster {
	/// Deletes it.
	pub async fn sweep(self: Arc<Self>) {
		loop {
			self.sweep_packages().await;
			if let Err(e) = self.sweep_parts().await {
				error!("parts of packages that are none may stay in NATS: {e}");
			}
			if let Err(e) = self.sweep_events().await {
				error!("events that have a result may stay in NATS: {e}");
			}
			sleep(OFTEN).await;
		}
	}

	/// Deletes parts of which no object knows.
	async fn sweep_parts(&self) -> Result<()> {
		let stream = self.jetstream.get_stream("OBJ_flashfork_packages").await.map_err(away)?;
		let all = stream.info_with_subjects(format!("{PARTS}>")).await.map_err(away)?;
		// Before the objects: what comes behind has one, or is young.
		let parts: Vec<_> = all.map_ok(|(subject, _)| subject).try_collect().await.map_err(away)?;
		let objects = self.packages.objects.list().await.map_err(away)?;
		let objects: BTreeSet<_> = objects.map_ok(|object| object.nuid).try_collect().await.map_err(away)?;
		for subject in parts {
			let id = subject.trim_start_matches(PARTS);
			let last = match stream.get_last_raw_message_by_subject(&subject).await {
				Err(e) if e.kind() == LastRawMessageErrorKind::NoMessageFound => continue,
				last => SystemTime::from(last.map_err(away)?.time),
			};
			if is_left(id, &objects, last.elapsed().unwrap_or_default()) {
				delete_all(&stream, &subject).await?;
			}
		}
		Ok(())
	}

	async fn sweep_packages(&self) {
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

/// Deletes the messages of a subject, one by one. Where nats-server 2.9.10 purges a subject, all of the stream's
/// consumers pass over all that is there.
pub async fn delete_all(stream: &Stream, subject: &str) -> Result<()> {
	loop {
		match stream.get_last_raw_message_by_subject(subject).await {
			Ok(last) => stream.delete_message(last.sequence).await.map_err(away)?,
			Err(e) if e.kind() == LastRawMessageErrorKind::NoMessageFound => return Ok(()),
			Err(e) => return Err(away(e)),
		};
	}
}

/// Whether parts of an object, of which the last is so old, belong to none of these, and will to none.
fn is_left(id: &str, objects: &BTreeSet<String>, age: Duration) -> bool {
	!objects.contains(id) && age > IN_PARTS
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn parts_of_a_package_are_left_when_no_object_has_them_for_an_hour() {
		let left = |id: &str, age| is_left(id, &BTreeSet::from(["known".to_owned()]), age);
		assert!(left("other", 2 * IN_PARTS));
		assert!(!left("known", 2 * IN_PARTS) && !left("other", IN_PARTS));
	}
}
