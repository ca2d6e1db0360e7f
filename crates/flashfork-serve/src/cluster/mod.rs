//! Many servers as one: nodes that share functions, calls and events by NATS (docs/SERVE.md).
//!
//! Who is there, and where a call goes, NATS knows: by subscriptions, which are there while a node lives and is ready.
//! There is no list of nodes, no leader, and no state of a cluster but what lies in JetStream.

mod ask;
mod commands;
mod connection;
mod events;
mod packages;
mod secrets;
mod status;
mod streams;
mod sweep;
mod wire;
mod work;

use ask::Doubt;
pub use commands::ClusterArgs;

use crate::{
	closed,
	deploys::Deploys,
	error::Result,
	pool::{Functions, Pool, uuid},
	store::{Store, is_plain},
};
use async_nats::{
	Client, ConnectOptions, Event,
	connection::State,
	jetstream,
	service::{Request, ServiceExt},
};
use axum::{body::Bytes, http::HeaderValue};
use connection::Access;
use events::Queue;
use flashfork_terminal::CliError;
use futures_util::StreamExt;
use packages::Packages;
use std::{
	collections::{BTreeMap, BTreeSet},
	path::{Path, PathBuf},
	sync::{
		Arc, Mutex,
		atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
	},
	time::Duration,
};
use tokio::{
	signal::unix::{SignalKind, signal},
	sync::{Notify, Semaphore, oneshot, watch},
	time::{sleep, timeout},
};
use tracing::info;

/// The name of the service that nodes are.
const SERVICE: &str = "flashfork";

/// The state of a node before it takes part.
const STARTING: &str = "starting";

/// What makes a server a node.
#[derive(clap::Args)]
#[command(next_help_heading = "On many machines")]
pub struct NodeArgs {
	/// NATS servers, with which this server becomes a node (docs/SERVE.md)
	#[arg(long, value_name = "URL", value_delimiter = ',')]
	nats: Vec<String>,
	#[command(flatten)]
	access: Access,
	/// Name of this node, which no other one has [default: this machine's]
	#[arg(long, value_name = "NAME", requires = "nats")]
	node_name: Option<String>,
	/// File of 32 random bytes, of mode 600, the same for all nodes, which seals functions' secrets in NATS
	#[arg(long, value_name = "FILE", requires = "nats")]
	cluster_key: Option<PathBuf>,
}

/// What a node starts from, after all files have been read that only root may.
pub struct Start {
	servers: Vec<String>,
	options: ConnectOptions,
	node: String,
	key: Option<secrets::Key>,
}

impl NodeArgs {
	/// Reads its files; `None` for a server alone. `has_keys`: requests are signed.
	pub fn read(&self, state: &Path, has_keys: bool) -> std::result::Result<Option<Start>, CliError> {
		if self.nats.is_empty() {
			return Ok(None);
		}
		if has_keys && !self.access.has_credentials() {
			let why = "functions could ask NATS for what --keys denies them: have it ask for a password, and give --nats-credentials";
			return Err(CliError::Unable(why.into()));
		}
		let own = || rustix::system::uname().nodename().to_string_lossy().replace('.', "-");
		let node = self.node_name.clone().unwrap_or_else(own);
		if !is_plain(&node) {
			return Err(CliError::Unable(format!(
				"{node} is no name for a node: give --node-name, letters, digits, '_' and '-'"
			)));
		}
		let key = self.cluster_key.as_ref();
		let key = key.map(|path| secrets::Key::new(path, &closed::read(path, Some(state))?)).transpose()?;
		let options = self.access.options(Some(state))?.name(format!("flashfork {node}"));
		Ok(Some(Start { servers: self.nats.clone(), options, node, key }))
	}
}

/// A call, for whichever node runs it.
#[derive(Clone)]
pub struct Call {
	/// The request's id.
	pub id: String,
	pub payload: Bytes,
	pub context: Option<HeaderValue>,
}

/// A call of another node's or an event, until what has come of it is told or recorded.
struct Open(Arc<Cluster>);

impl Drop for Open {
	fn drop(&mut self) {
		self.0.open.send_modify(|open| *open -= 1);
	}
}

/// This node.
pub struct Cluster {
	node: String,
	id: String,
	/// Whether no other node has its name.
	started: AtomicBool,
	client: Client,
	jetstream: jetstream::Context,
	pool: Arc<Pool>,
	store: Store,
	functions: Functions,
	/// Held while a function is deployed here.
	deploys: Arc<Deploys>,
	packages: Packages,
	queue: Queue,
	/// Calls that may run at a time.
	slots: u32,
	draining: watch::Sender<bool>,
	/// Whether functions are offered no more, which comes a while after that.
	parted: watch::Sender<bool>,
	/// Calls of other nodes and events, until what has come of them is told or recorded.
	open: watch::Sender<usize>,
	/// For each call of another node's what ends it by its going.
	callers: Mutex<BTreeMap<String, oneshot::Sender<()>>>,
	/// Functions that another node is asked to warm, too.
	growing: Mutex<BTreeSet<String>>,
	/// Calls that wait for another node to warm their functions.
	waiting: Semaphore,
	/// By functions.
	doubts: Mutex<BTreeMap<String, Doubt>>,
	/// Calls that have begun here.
	calls: AtomicU64,
}

impl Cluster {
	/// Becomes a node. `retry` is how long after its first failure an event is tried again.
	pub async fn join(
		start: Start,
		(pool, store, functions): (Arc<Pool>, Store, Functions),
		deploys: Arc<Deploys>,
		slots: u32,
		retry: Duration,
	) -> std::result::Result<Arc<Cluster>, CliError> {
		let Start { servers, options, node, key } = start;
		let back = Arc::new(Notify::new());
		let anew = back.clone();
		let client = connection::connect(&servers, options, move |event| match event {
			Event::Connected | Event::Disconnected | Event::LameDuckMode | Event::ServerError(_) => {
				info!("NATS: {event}");
				if event == Event::Connected {
					back.notify_one();
				}
			}
			_ => {}
		});
		let client = client.await?;
		let others = status::all(&client).await?;
		let taken = |node: &str| CliError::Unable(format!("there is a node {node} already: give another --node-name"));
		if others.iter().any(|other| other.node == node) {
			return Err(taken(&node));
		}
		let jetstream = jetstream::new(client.clone());
		let waiting = Semaphore::new(slots as usize + pool.most_wait);
		let packages = Packages::open(&jetstream, key, anew).await?;
		packages.agree(others.is_empty()).await?;
		let queue = Queue::open(&jetstream, retry).await?;
		let cluster = Cluster {
			node,
			id: uuid(),
			started: AtomicBool::default(),
			client,
			jetstream,
			pool,
			store,
			functions,
			deploys,
			packages,
			queue,
			slots,
			draining: watch::Sender::new(false),
			parted: watch::Sender::new(false),
			open: watch::Sender::new(0),
			callers: Mutex::default(),
			growing: Mutex::default(),
			waiting,
			doubts: Mutex::default(),
			calls: AtomicU64::default(),
		};
		let cluster = Arc::new(cluster);
		cluster.load().await?;
		cluster.clone().listen().await.map_err(|e| CliError::Unable(format!("NATS: {e}")))?;
		// Of two that begin at the same time neither has seen the other before. The first by its number stays, once the
		// others have gone; but who has seen nobody is in service.
		loop {
			let all = status::all(&cluster.client).await?;
			let mut rivals = all.iter().filter(|other| other.node == cluster.node && other.id != cluster.id).peekable();
			if rivals.peek().is_none() {
				break;
			}
			if rivals.any(|other| other.state != STARTING || other.id < cluster.id) {
				return Err(taken(&cluster.node));
			}
		}
		// One that began at the same time may have noted its key.
		cluster.packages.agree(false).await?;
		cluster.started.store(true, Relaxed);
		cluster.clone().work();
		Ok(cluster)
	}

	/// Begins to hear what is asked of this node.
	async fn listen(self: Arc<Self>) -> std::result::Result<(), async_nats::Error> {
		let own = |what: &str| wire::own(&self.node, what);
		let gone = self.client.subscribe(own("gone.*")).await?;
		let bids = self.client.subscribe(wire::bid("*", "*")).await?;
		let parts = self.client.subscribe(wire::PART).await?;
		let telling = self.clone();
		let service = self.client.service_builder().description(format!("node {}", self.node));
		let service = service
			.stats_handler(move |_, _| serde_json::json!(telling.state()))
			.start(SERVICE, env!("CARGO_PKG_VERSION"))
			.await?;
		let endpoint = |what: &str| service.endpoint_builder().name(what).add(own(what));
		let message = |asked: Request| asked.message;
		let run = endpoint("run").await?.map(message);
		let warm = endpoint("warm").await?.map(message);
		let drain = endpoint("drain").await?.map(message);
		tokio::spawn(self.clone().obey(gone, Self::gone));
		tokio::spawn(self.clone().obey(bids, Self::bid_for));
		tokio::spawn(self.clone().obey(parts, Self::parts));
		tokio::spawn(self.clone().obey(run, Self::run_for));
		tokio::spawn(self.clone().obey(warm, Self::warm_for));
		let draining = self.clone().obey(drain, Self::drain_for);
		tokio::spawn(async move {
			draining.await;
			drop(service);
		});
		Ok(())
	}

	/// Begins to take its share.
	fn work(self: Arc<Self>) {
		tokio::spawn(self.clone().offer());
		tokio::spawn(self.clone().watch());
		tokio::spawn(self.clone().take_events());
		tokio::spawn(self.sweep());
	}

	/// Whether NATS is there.
	fn connected(&self) -> Result<()> {
		match self.client.connection_state() {
			State::Connected => Ok(()),
			_ => Err(wire::away("this node has no connection, and tries to make one")),
		}
	}

	pub fn is_draining(&self) -> bool {
		*self.draining.borrow()
	}

	fn state(&self) -> status::Node {
		let free = self.pool.slots.available_permits();
		let functions = crate::locked(&self.functions);
		let warm = functions.iter().filter(|(_, function)| function.is_warm());
		status::Node {
			node: self.node.clone(),
			id: self.id.clone(),
			state: match self.is_draining() {
				_ if !self.started.load(Relaxed) => STARTING,
				false => "ready",
				true if free < self.slots as usize || *self.open.borrow() > 0 => "draining",
				true => "drained",
			}
			.into(),
			warm: warm.map(|(name, _)| name.clone()).collect(),
			free,
			slots: self.slots,
			calls: self.calls.load(Relaxed),
			memory: status::free_memory(),
		}
	}

	/// Takes no new calls and events from now on, and returns when none runs any more and all is said of them.
	async fn drain(&self) {
		self.draining.send_replace(true);
		// Without NATS nobody hears it, and nobody asks.
		let _ = timeout(wire::PATIENCE, self.part(&self.state().warm)).await;
		self.parted.send_replace(true);
		// What waits here for a slot comes first. Each call ends by its function's limit.
		let _ = self.pool.slots.acquire_many(self.slots).await;
		let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
		// Nobody waits longer for what is said.
		let _ = timeout(wire::PATIENCE, self.client.flush()).await;
	}

	/// Notes that a call of another node's or an event has come, until that is dropped.
	fn opened(self: &Arc<Self>) -> Open {
		self.open.send_modify(|open| *open += 1);
		Open(self.clone())
	}

	/// Drains this node when `SIGTERM` comes, and returns then.
	pub async fn drained_by_signal(&self) {
		signals(1).await;
		info!("node {} is being drained, and ends then", self.node);
		// Whoever was told before that a function is warm here may have sent a call, which would be lost.
		tokio::join!(self.drain(), sleep(wire::PATIENCE));
	}
}

/// Returns when so many `SIGTERM` have come.
pub async fn signals(count: usize) {
	let mut signals = signal(SignalKind::terminate()).expect("the kernel takes a handler of SIGTERM");
	for _ in 0..count {
		signals.recv().await;
	}
}
