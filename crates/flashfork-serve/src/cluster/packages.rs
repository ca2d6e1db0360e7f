//! Functions, as all nodes have them: configurations in a bucket that each node watches, packages in another one from
//! which it fetches what it is to warm.

use super::{Cluster, events::patiently, secrets::Key, streams, wire::away};
use crate::{
	error::{ApiError, Result},
	locked,
	pool::Function,
	store::Config,
};
use async_nats::jetstream::{
	Context, ContextBuilder,
	kv::{self, Entry, Operation, UpdateErrorKind},
	object_store::{GetErrorKind, ObjectMetadata, ObjectStore},
};
use axum::{body::Bytes, http::StatusCode};
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use flashfork_terminal::CliError;
use futures_util::{
	StreamExt, TryStreamExt,
	future::{BoxFuture, FutureExt, Shared},
};
use serde::{Deserialize, Serialize};
use std::{
	collections::{BTreeMap, BTreeSet},
	io::ErrorKind,
	sync::{Arc, Mutex},
	time::Duration,
};
use tokio::{
	io::AsyncReadExt,
	sync::{Notify, Semaphore},
	time::timeout,
};
use tracing::error;

/// Where it is noted whether nodes have a key. Functions' keys are OWNER.NAME.
const KEY: &str = "key";
/// What is sealed there.
const KEY_TEST: &str = "flashfork";

/// How long NATS may take to answer where a call waits for that.
const SOON: Duration = Duration::from_secs(1);
/// How long a package may take to go on coming.
const STALL: Duration = Duration::from_secs(10);
/// Megabytes of packages on their way.
const ROOM: u32 = 256;

/// A function in the bucket.
#[derive(Serialize, Deserialize)]
struct Record {
	/// A `Config` without secrets, in JSON: secrets open with this very text alone, which names the package's digest.
	config: String,
	/// Sealed, in base64.
	secrets: Option<String>,
}

/// The two buckets.
pub struct Packages {
	pub configs: kv::Store,
	/// By revisions' ids; their descriptions are keys of functions.
	pub objects: ObjectStore,
	/// The same two, as calls ask them.
	soon: (kv::Store, ObjectStore),
	key: Option<Key>,
	/// Of each function that was ever seen the last revision of its key.
	seen: Mutex<BTreeMap<String, u64>>,
	/// Told when NATS is there again, or may have lost what was seen: all is looked at anew.
	anew: Arc<Notify>,
	/// Packages on their way, by revisions' ids, and room for them, in megabytes.
	fetches: Mutex<BTreeMap<String, Fetch>>,
	room: Semaphore,
}

type Fetch = Shared<BoxFuture<'static, Result<()>>>;

impl Packages {
	pub async fn open(
		jetstream: &Context,
		key: Option<Key>,
		anew: Arc<Notify>,
	) -> std::result::Result<Packages, CliError> {
		let configs = streams::bucket(jetstream, "flashfork_functions", None).await?;
		let objects = streams::objects(jetstream, "flashfork_packages").await?;
		let asked = ContextBuilder::new().timeout(SOON).build(jetstream.client());
		let soon = (
			asked.get_key_value("flashfork_functions").await.map_err(streams::unable)?,
			asked.get_object_store("flashfork_packages").await.map_err(streams::unable)?,
		);
		Ok(Packages {
			configs,
			objects,
			soon,
			key,
			seen: Mutex::default(),
			anew,
			fetches: Mutex::default(),
			room: Semaphore::new(ROOM as usize),
		})
	}

	/// Checks that this node has the key that the others have, or none; notes it where it is `alone`.
	pub async fn agree(&self, alone: bool) -> std::result::Result<(), CliError> {
		let noted = self.configs.entry(KEY).await.map_err(streams::unable)?;
		let unable = |why: &str| Err(CliError::Unable(why.into()));
		match (&self.key, noted) {
			(None, Some(_)) => unable("the nodes of this cluster have a --cluster-key: give it to this one, too"),
			(Some(key), Some(noted)) if key.open(KEY, &noted.value).as_deref() != Some(KEY_TEST.as_bytes()) => {
				unable("the nodes of this cluster have another --cluster-key")
			}
			(Some(_), None) if !alone => {
				unable("the nodes of this cluster have no --cluster-key: end them all, and start them with it")
			}
			(Some(key), None) => {
				let sealed = key.seal(KEY, KEY_TEST.as_bytes());
				self.configs.create(KEY, sealed.into()).await.map(drop).map_err(streams::unable)
			}
			_ => Ok(()),
		}
	}

	fn record(&self, config: &Config) -> Result<Record> {
		let mut plain = config.clone();
		let secrets = std::mem::take(&mut plain.secrets);
		let text = serde_json::to_string(&plain).map_err(ApiError::service)?;
		let sealed = match &self.key {
			_ if secrets.is_empty() => None,
			None => {
				return Err(ApiError::invalid(
					"secrets would lie in NATS for all to read who may ask it: give all nodes a --cluster-key",
				));
			}
			Some(key) => {
				Some(BASE64.encode(key.seal(&text, &serde_json::to_vec(&secrets).map_err(ApiError::service)?)))
			}
		};
		Ok(Record { config: text, secrets: sealed })
	}

	pub fn read(&self, key: &str, value: &[u8]) -> Result<Config> {
		let bad = |why: &str| ApiError::service(format!("{key} in the bucket of functions is left out: {why}"));
		let record: Record = serde_json::from_slice(value).map_err(|e| bad(&e.to_string()))?;
		let mut config: Config = serde_json::from_str(&record.config).map_err(|e| bad(&e.to_string()))?;
		config.check_known().map_err(|e| bad(&e.why))?;
		if config_key(&config) != key {
			return Err(bad("it has another one's name"));
		}
		if let Some(sealed) = record.secrets {
			let opened = BASE64.decode(sealed).ok().zip(self.key.as_ref());
			let opened = opened.and_then(|(sealed, key)| key.open(&record.config, &sealed));
			let opened = opened
				.ok_or_else(|| bad("its secrets are sealed with another --cluster-key, or for another package"))?;
			config.secrets = serde_json::from_slice(&opened).map_err(|e| bad(&e.to_string()))?;
		}
		Ok(config)
	}
}

fn config_key(config: &Config) -> String {
	format!("{}.{}", config.owner, config.function_name)
}

impl Cluster {
	/// Whether a function could be deployed with these secrets, before it is warmed.
	pub fn may_have(&self, config: &Config) -> Result<()> {
		self.connected()?;
		self.packages.record(config).map(drop)
	}

	/// Makes a function that is warm here all nodes'.
	pub async fn deploy(&self, function: Arc<Function>, package: &[u8]) -> Result<()> {
		let (packages, config) = (&self.packages, &function.config);
		let key = config_key(config);
		let record = serde_json::to_vec(&packages.record(config)?).map_err(ApiError::service)?;
		let old = packages.configs.entry(&key).await.map_err(away)?;
		let object = config.revision_id.as_str();
		let said = ObjectMetadata { name: object.into(), description: Some(key.clone()), ..Default::default() };
		packages.objects.put(said, &mut &*package).await.map_err(away)?;
		let last = old.as_ref().map_or(0, |old| old.revision);
		let at = match packages.configs.update(&key, record.clone().into(), last).await {
			Ok(at) => Some(at),
			Err(e) if e.kind() == UpdateErrorKind::WrongLastRevision => None,
			// Its answer may be lost: what the bucket has now counts.
			Err(e) => match patiently(|| async { packages.configs.entry(&key).await.map_err(away) }).await {
				Ok(Some(now)) if now.value == record => Some(now.revision),
				Ok(now) if now.as_ref().map_or(0, |now| now.revision) != last => None,
				// It may come yet, and finds its package then.
				_ => return Err(away(format!("{e}: the function is not deployed, and may be yet"))),
			},
		};
		let Some(at) = at else {
			let _ = packages.objects.delete(object).await;
			let why = "somebody else has deployed or undeployed this function at the same time";
			return Err(ApiError::conflict(why));
		};
		self.put_written(config.full_name(), at, Some(function.clone()));
		if let Some(old) = old.filter(|old| old.operation == Operation::Put)
			&& let Ok(old) = packages.read(&key, &old.value)
		{
			self.drop_package(&old).await;
		}
		Ok(())
	}

	/// Takes a function from all nodes.
	pub async fn undeploy(&self, config: &Config) -> Result<()> {
		self.connected()?;
		let key = config_key(config);
		let configs = &self.packages.configs;
		let entry = configs.entry(&key).await.map_err(away)?;
		let entry = entry.filter(|entry| entry.operation == Operation::Put);
		let entry = entry.ok_or_else(|| ApiError::not_found("somebody else has undeployed this function"))?;
		if let Err(e) = configs.delete_expect_revision(&key, Some(entry.revision)).await {
			// Its answer may be lost: what the bucket has now counts.
			let now = patiently(|| async { configs.entry(&key).await.map_err(away) }).await?;
			if now.is_some_and(|now| now.operation == Operation::Put) {
				return Err(away(e));
			}
		}
		self.put_written(config.full_name(), entry.revision + 1, None);
		if let Ok(config) = self.packages.read(&key, &entry.value) {
			self.drop_package(&config).await;
		}
		Ok(())
	}

	/// Puts what the bucket has just taken. Where something newer was seen NATS may have lost that.
	fn put_written(&self, name: String, at: u64, function: Option<Arc<Function>>) {
		if locked(&self.packages.seen).get(&name).is_some_and(|seen| *seen > at) {
			self.packages.anew.notify_one();
		}
		self.put(name, at, function);
	}

	async fn drop_package(&self, config: &Config) {
		if let Err(e) = self.packages.objects.delete(&config.revision_id).await {
			error!("a package of {} that is not needed any more stays in NATS: {e}", config.full_name());
		}
	}

	/// A function; asks NATS for one that this node has not heard of.
	pub async fn find(&self, owner: &str, name: &str) -> Result<Option<Arc<Function>>> {
		match self.known(owner, name) {
			Some(function) => Ok(Some(function)),
			None => self.look(owner, name).await,
		}
	}

	pub fn known(&self, owner: &str, name: &str) -> Option<Arc<Function>> {
		locked(&self.functions).get(&format!("{owner}:{name}")).cloned()
	}

	/// A function as the bucket has it now.
	async fn look(&self, owner: &str, name: &str) -> Result<Option<Arc<Function>>> {
		self.connected()?;
		if let Some(entry) = self.packages.soon.0.entry(format!("{owner}.{name}")).await.map_err(away)? {
			self.take(entry);
		}
		Ok(self.known(owner, name))
	}

	/// Whether the bucket has one of this name, which this node may not be able to read.
	pub async fn is_in_bucket(&self, owner: &str, name: &str) -> Result<bool> {
		let entry = self.packages.configs.entry(format!("{owner}.{name}")).await.map_err(away)?;
		Ok(entry.is_some_and(|entry| entry.operation == Operation::Put))
	}

	/// All that the bucket has now; their packages are here if the last server had them. Others' go.
	pub async fn load(&self) -> std::result::Result<(), CliError> {
		let configs = &self.packages.configs;
		let keys: Vec<_> =
			configs.keys().await.map_err(streams::unable)?.try_collect().await.map_err(streams::unable)?;
		for key in keys {
			if let Some(entry) = configs.entry(key).await.map_err(streams::unable)? {
				self.take(entry);
			}
		}
		let functions = locked(&self.functions);
		for name in self.store.names() {
			let keep: Vec<_> = functions.get(&name).iter().map(|function| &function.config).collect();
			self.store.tidy(&name, &keep);
		}
		Ok(())
	}

	/// Follows the bucket.
	pub async fn watch(self: Arc<Self>) {
		let mut why = String::new();
		loop {
			tokio::select! {
				followed = self.follow() => {
					if let Err(e) = followed && e.why != why {
						error!("what is deployed and undeployed at other nodes is not heard of: {e}");
						why = e.why;
					}
					tokio::time::sleep(Duration::from_secs(1)).await;
				}
				() = self.packages.anew.notified() => why.clear(),
			}
		}
	}

	/// Takes what the bucket has, whatever was seen before, and then what comes. Functions that it has not go.
	async fn follow(&self) -> Result<()> {
		let (packages, configs) = (&self.packages, &self.packages.configs);
		locked(&packages.seen).clear();
		let keys: BTreeSet<String> = configs.keys().await.map_err(away)?.try_collect().await.map_err(away)?;
		let mut watch = configs.watch_with_history(">").await.map_err(away)?;
		let known: Vec<_> = locked(&self.functions).values().map(|function| config_key(&function.config)).collect();
		for key in known.iter().filter(|key| !keys.contains(*key)) {
			// Unless it has come since.
			self.put(key.replacen('.', ":", 1), 0, None);
		}
		while let Some(entry) = watch.next().await {
			self.take(entry.map_err(away)?);
		}
		Ok(())
	}

	/// Takes note of what the bucket has, or had.
	fn take(&self, entry: Entry) {
		let Some((owner, name)) = entry.key.split_once('.') else { return };
		let full = format!("{owner}:{name}");
		let config = match entry.operation {
			Operation::Put => self.packages.read(&entry.key, &entry.value).map(Some),
			Operation::Delete | Operation::Purge => Ok(None),
		};
		match config {
			Ok(config) => {
				let function = config.map(|config| {
					let lease = self.store.lease(&config);
					Arc::new(Function::new(config, lease))
				});
				self.put(full, entry.revision, function);
			}
			Err(e) => {
				let mut seen = locked(&self.packages.seen);
				if entry.revision > seen.get(&full).copied().unwrap_or_default() {
					seen.insert(full, entry.revision);
					error!("{}", e.why);
				}
			}
		}
	}

	/// Takes a function into service that the bucket has since this revision, or out of it, unless something newer has
	/// been seen.
	fn put(&self, name: String, at: u64, function: Option<Arc<Function>>) {
		// Held until it is done: what is older may come at the same time.
		let mut seen = locked(&self.packages.seen);
		let last = seen.get(&name).copied();
		// One that was deployed here is warm, and may have been seen in the bucket before.
		let is_known = Some(at) == last && function.as_ref().is_some_and(|function| function.is_warm());
		if last.is_some_and(|last| at <= last) && !is_known {
			return;
		}
		seen.insert(name.clone(), at);
		let mut functions = locked(&self.functions);
		let revision = |function: &Arc<Function>| function.config.revision_id.clone();
		if !is_known && function.is_some() && function.as_ref().map(revision) == functions.get(&name).map(revision) {
			// Its entry was written anew as it is.
			return;
		}
		let old = match function {
			Some(function) => {
				self.pool.metrics.know(&name);
				functions.insert(name.clone(), function)
			}
			None => functions.remove(&name).inspect(|_| self.pool.metrics.forget(&name)),
		};
		drop((functions, seen, old));
		self.tidy(name);
	}

	/// Removes packages that a function had. Not while one is being deployed here.
	fn tidy(&self, name: String) {
		self.pool.changed.notify_one();
		let (store, functions, deploys) = (self.store.clone(), self.functions.clone(), self.deploys.clone());
		tokio::spawn(async move {
			let _none = deploys.none(&name).await;
			let now = locked(&functions).get(&name).cloned();
			let keep: Vec<_> = now.iter().map(|function| &function.config).collect();
			store.tidy(&name, &keep);
		});
	}

	/// The function, of which the package is here now; or the one that has replaced it, and taken its package away.
	pub async fn fetched(self: &Arc<Self>, function: &Arc<Function>) -> Result<Arc<Function>> {
		let (owner, name) = (&function.config.owner, &function.config.function_name);
		let e = match self.fetch(&function.config).await {
			Ok(()) => return Ok(function.clone()),
			Err(e) if e.status == StatusCode::SERVICE_UNAVAILABLE => return Err(e),
			Err(e) => e,
		};
		match self.look(owner, name).await? {
			Some(now) if now.config.revision_id == function.config.revision_id => Err(e),
			Some(now) => self.fetch(&now.config).await.map(|()| now),
			None => Err(ApiError::no_function(name)),
		}
	}

	/// Sees to it that a package is here, once for all who ask for it.
	async fn fetch(self: &Arc<Self>, config: &Config) -> Result<()> {
		let id = config.revision_id.clone();
		let begin = || {
			let (cluster, config, id) = (self.clone(), config.clone(), id.clone());
			// To its end, also when who asks for it goes; and it is over when it has panicked, too.
			let fetched = tokio::spawn(async move {
				let fetcher = cluster.clone();
				let done = tokio::spawn(async move { fetcher.fetch_now(&config).await }).await;
				locked(&cluster.packages.fetches).remove(&id);
				done.map_err(ApiError::service)?
			});
			fetched.map(|done| done.map_err(ApiError::service)?).boxed().shared()
		};
		let fetch = locked(&self.packages.fetches).entry(id.clone()).or_insert_with(begin).clone();
		fetch.await
	}

	async fn fetch_now(&self, config: &Config) -> Result<()> {
		if config.code(&self.pool.state).exists() {
			return Ok(());
		}
		self.connected()?;
		let mut object = self.packages.soon.1.get(&config.revision_id).await.map_err(|e| match e.kind() {
			GetErrorKind::NotFound => lacking(config, &e),
			_ => away(e),
		})?;
		let room = (object.info().size >> 20).min(ROOM as usize) as u32;
		let _room = self.packages.room.acquire_many(room).await.map_err(ApiError::service)?;
		let mut package = Vec::new();
		loop {
			match timeout(STALL, object.read_buf(&mut package)).await {
				Ok(Ok(0)) => break,
				Ok(Ok(_)) => {}
				Ok(Err(e)) if e.kind() == ErrorKind::InvalidData => return Err(lacking(config, &e)),
				Ok(Err(e)) => return Err(away(e)),
				// Of what is deleted meanwhile nothing comes any more.
				Err(e) => return self.connected().and(Err(lacking(config, &e))),
			}
		}
		let (store, config, package) = (self.store.clone(), config.clone(), Bytes::from(package));
		let done = tokio::task::spawn_blocking(move || store.fetched(&config, &package)).await;
		done.map_err(ApiError::service)?
	}
}

/// NATS has no such package, or not all of it.
fn lacking(config: &Config, why: &dyn std::fmt::Display) -> ApiError {
	let name = config.full_name();
	ApiError::not_ready(format!("NATS does not give the package of {name}: {why}; deploy the function anew"))
}
