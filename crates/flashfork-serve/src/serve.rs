//! `flashfork serve`: what it stands on, and its start.

use crate::{
	closed,
	cluster::{self, NodeArgs, Start},
	events::Events,
	front::{self, Server},
	groups::Groups,
	keys::Keys,
	listen, log,
	machine::MachineArgs,
	operations,
	pool::{Function, Pool},
	programs::Programs,
	store::Store,
	systemd, tls, watches,
};
use flashfork_cgroup::Cgroups;
use flashfork_terminal::{CliError, output, places};
use futures_util::{StreamExt, stream};
use rustix::{
	fs::FlockOperation,
	process::{DumpableBehavior, Resource, getrlimit, setrlimit},
};
use std::{
	ffi::CString,
	fs::{self, File},
	future::pending,
	net::SocketAddr,
	os::unix::fs::DirBuilderExt,
	path::{Path, PathBuf},
	process::ExitCode,
	sync::{Arc, atomic::Ordering::Relaxed},
	time::Duration,
};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tracing::info;

/// Control groups, or why there are none.
type Delegated = std::result::Result<Cgroups, String>;

/// Most connections for metrics and health at a time.
const MOST_OPERATORS: usize = 64;

/// Serve functions by AWS Lambda's APIs, each call in a fresh clone of a warmed process
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flashfork serve --python venv/bin/python --node-modules functions/node_modules
  flashfork serve --listen 127.0.0.1:8080 --state functions
  flashfork serve --listen 0.0.0.0:9001 --keys keys.toml --tls-certificate server.pem --tls-key server.key
  flashfork serve --nats nats://10.0.0.1,nats://10.0.0.2 --nats-credentials nats.password

Python needs AWS's runtime client (pip install awslambdaric), and so do Node (npm install --prefix functions \
aws-lambda-ric@3) and Java (--java-jars); each is looked for when a function needs it. Started by root it becomes another user first (--user).")]
pub struct ServeArgs {
	/// Address to listen on; any but a loopback address takes --keys and TLS
	#[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9001")]
	listen: SocketAddr,
	/// Python that functions run in
	#[arg(long, value_name = "PATH", default_value = "python3")]
	python: PathBuf,
	/// Node that functions run in
	#[arg(long, value_name = "PATH", default_value = "node")]
	node: PathBuf,
	/// Directory node_modules in which Node's functions find AWS's runtime client (aws-lambda-ric), not in /tmp
	#[arg(long, value_name = "DIR")]
	node_modules: Option<PathBuf>,
	/// Java in which functions run
	#[arg(long, value_name = "PATH", default_value = "java")]
	java: PathBuf,
	/// Directory with the jars of AWS's runtime client for Java (aws-lambda-java-runtime-interface-client), not in /tmp
	#[arg(long, value_name = "DIR")]
	java_jars: Option<PathBuf>,
	/// File of keys with which requests are to be signed, of mode 600 (docs/SERVE.md); without it all users of this
	/// machine may ask
	#[arg(long, value_name = "FILE")]
	keys: Option<PathBuf>,
	/// Certificate of the server for TLS, and those that lead to it (PEM)
	#[arg(long, value_name = "FILE", requires = "tls_key")]
	tls_certificate: Option<PathBuf>,
	/// Its private key (PEM), of mode 600
	#[arg(long, value_name = "FILE", requires = "tls_certificate")]
	tls_key: Option<PathBuf>,
	/// Certificates (PEM) of which one must have signed each client's own
	#[arg(long, value_name = "FILE", requires = "tls_certificate")]
	client_ca: Option<PathBuf>,
	/// Directory for functions and events, not in /tmp [default: ~/.local/state/flashfork-serve; root's:
	/// /var/lib/flashfork-serve]
	#[arg(long, value_name = "DIR")]
	state: Option<PathBuf>,
	/// Calls that run at a time
	#[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
	concurrency: u32,
	/// Calls that may wait for others to end
	#[arg(long, value_name = "N", default_value_t = 256)]
	queue: u32,
	/// Seconds after which an event that has failed is tried again
	#[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(..=604_800))]
	event_retry: u64,
	/// Address at which metrics (/metrics, for Prometheus) and health (/livez, /readyz) are, for whoever can reach it
	#[arg(long, value_name = "ADDRESS:PORT")]
	operations: Option<SocketAddr>,
	/// How what happens is logged, on standard error
	#[arg(long, value_enum, default_value_t)]
	log: log::Format,
	/// User to become when root starts it
	#[arg(long, value_name = "NAME", default_value = "nobody")]
	user: String,
	#[command(flatten)]
	machines: MachineArgs,
	#[command(flatten)]
	cluster: NodeArgs,
}

impl ServeArgs {
	/// Serves until a signal ends it.
	pub fn main(&self) -> Result<ExitCode, CliError> {
		// A client that goes while it is answered is no end of the server.
		output::outlive_the_pipe();
		let unable = |why: String| CliError::Unable(why);
		if !self.listen.ip().is_loopback() && (self.keys.is_none() || self.tls_key.is_none()) {
			let why = "is no loopback address: give --keys, --tls-certificate and --tls-key";
			return Err(unable(format!("{} {why}", self.listen)));
		}
		let shim = places::shim()?;
		let state = self.state()?;
		let keys = self.keys.as_ref().map(|path| Keys::read(path, &closed::read(path, Some(&state))?)).transpose()?;
		let tls = self.tls_certificate.as_ref().zip(self.tls_key.as_ref());
		let tls = tls.map(|(certificate, key)| {
			tls::acceptor(certificate, &closed::read(key, Some(&state))?, self.client_ca.as_deref())
		});
		let start = self.cluster.read(&state, keys.is_some())?;
		let secure = (keys, tls.transpose()?);
		let made = !state.exists();
		fs::DirBuilder::new().recursive(true).mode(0o700).create(&state).map_err(CliError::file("create", &state))?;
		let state = state.canonicalize().map_err(CliError::file("find", &state))?;
		if ["/tmp", "/dev/shm"].iter().any(|place| state.starts_with(place)) {
			return Err(unable(format!(
				"{} is in a directory of which each call has its own: give another --state",
				state.display()
			)));
		}
		let mut groups = Cgroups::delegated("flashfork-serve");
		// A thread for each clone that is being made, for a call, ahead, or as a template's first, and for what is
		// done with files.
		let threads = 3 * self.concurrency as usize + 128;
		// Its watches of epoll are counted for who makes it: if that is root, functions can't use them up.
		let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().max_blocking_threads(threads).build();
		let runtime = runtime.map_err(CliError::file("start", "the server"))?;
		if rustix::process::geteuid().is_root() {
			become_user(&self.user, &state, made, &mut groups)?;
		} else {
			give(&mut groups, rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
		}
		// No other process of this user reads its memory, in which keys are.
		rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
			.map_err(|e| CliError::file("close", "/proc/self/mem")(e.into()))?;
		let most = raise_descriptors().map_err(CliError::file("raise the limit of", "open files"))?;
		log::begin(self.log, runtime.handle()).map_err(unable)?;
		runtime.block_on(self.serve(shim, state, secure, start, (most, groups)))
	}

	fn state(&self) -> Result<PathBuf, CliError> {
		let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state/flashfork-serve"));
		let own = if rustix::process::geteuid().is_root() { Some("/var/lib/flashfork-serve".into()) } else { home() };
		self.state.clone().or(own).ok_or_else(|| CliError::Unable("there is no HOME: give --state".into()))
	}

	async fn serve(
		&self,
		shim: PathBuf,
		state: PathBuf,
		(keys, tls): (Option<Keys>, Option<TlsAcceptor>),
		start: Option<Start>,
		(descriptors, groups): (usize, Delegated),
	) -> Result<ExitCode, CliError> {
		let file = |what| CliError::file(what, &state);
		let lock = File::create(state.join("lock")).map_err(file("write to"))?;
		rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
			CliError::Unable(format!("another server has {}: end it, or give another --state", state.display()))
		})?;
		// SAFETY: this is the one place that asks, and nothing here takes descriptors by their numbers.
		let listener = match unsafe { systemd::opened(self.listen) }? {
			Some(listener) => tokio::net::TcpListener::from_std(listener),
			None => tokio::net::TcpListener::bind(self.listen).await,
		};
		let listener = listener.map_err(|e| CliError::Unable(format!("can't listen on {}: {e}", self.listen)))?;
		let address = listener.local_addr().map_err(CliError::file("find", "its address"))?;
		let machines = Arc::new(self.machines.open(&state, keys.is_some())?);
		let no_limit = |why: &String| info!("calls have a limit of memory for each process, but none together: {why}");
		let pool = Pool {
			groups: groups.inspect_err(no_limit).ok().map(|groups| Arc::new(Groups::new(groups))),
			state: state.clone(),
			programs: Programs {
				python: self.python.clone(),
				node: self.node.clone(),
				modules: self.node_modules.clone(),
				java: self.java.clone(),
				jars: self.java_jars.clone(),
			},
			shim,
			machines: machines.clone(),
			slots: Arc::new(Semaphore::new(self.concurrency as usize)),
			concurrency: self.concurrency as usize,
			fresh: Arc::new(Semaphore::new(self.concurrency as usize)),
			used: Arc::new(Semaphore::new(self.concurrency as usize)),
			warmed: Arc::new(Semaphore::new(self.concurrency as usize)),
			queue: Semaphore::new(self.queue as usize),
			most_wait: self.queue as usize,
			changed: Default::default(),
			metrics: Default::default(),
		};
		let operations = match self.operations {
			Some(address) => {
				let listener = tokio::net::TcpListener::bind(address).await;
				Some(listener.map_err(|e| CliError::Unable(format!("can't listen on {address}: {e}")))?)
			}
			None => None,
		};
		let (events, waiting) = Events::open(&state, keys.is_some()).map_err(file("read events in"))?;
		let retry = Duration::from_secs(self.event_retry);
		let server = Server::new(Arc::new(pool), Store::new(state.clone()), events, retry, keys);
		let mut server = server.map_err(|e| CliError::Unable(e.to_string()))?;
		match start {
			Some(start) => server.join(start, self.concurrency).await?,
			None => server.tidy(),
		}
		tokio::spawn(async move { machines.tidy().await });
		let server = Arc::new(server);
		// A node warms what it has the package of; all else when it is asked for.
		let here = |function: &Arc<Function>| server.cluster.is_none() || function.config.code(&state).exists();
		let before: Vec<_> = server.functions().into_iter().filter(here).collect();
		server.warming.store(before.len(), Relaxed);
		// All at once none might be warm in time.
		let (warmer, at_a_time) = (server.clone(), std::thread::available_parallelism().map_or(1, usize::from));
		tokio::spawn(stream::iter(before).for_each_concurrent(at_a_time, move |function| {
			let server = warmer.clone();
			async move {
				// Why it can't be it has said.
				let _ = function.warm(&server.pool).await;
				server.warming.fetch_sub(1, Relaxed);
			}
		}));
		for event in waiting {
			tokio::spawn(server.clone().run(event));
		}
		let scheme = if tls.is_some() { "https" } else { "http" };
		let mut said = format!("flashfork serves functions on {scheme}://{address}");
		if let Some(listener) = operations {
			let address = listener.local_addr().map_err(CliError::file("find", "its address"))?;
			said.push_str(&format!(", metrics and health on http://{address}"));
			tokio::spawn(listen::serve(listener, None, operations::router(server.clone()), MOST_OPERATORS, pending()));
		}
		watches::guard(self.concurrency as usize).map_err(CliError::file("watch", "epoll"))?;
		output::say(&said)?;
		systemd::ready()?;
		// Until a signal: however the server ends, all that it has started does (`warden.rs`).
		let node = server.cluster.clone();
		let drained = async {
			match node {
				Some(node) => node.drained_by_signal().await,
				None => cluster::signals(1).await,
			}
		};
		tokio::select! {
			() = front::serve(listener, tls, server, descriptors, drained) => {}
			() = cluster::signals(2) => {}
		}
		drop(lock);
		Ok(ExitCode::SUCCESS)
	}
}

/// As many as may be, for each connection and each clone has some; tells how many.
fn raise_descriptors() -> std::io::Result<usize> {
	let mut limit = getrlimit(Resource::Nofile);
	limit.current = limit.maximum;
	setrlimit(Resource::Nofile, limit)?;
	Ok(limit.maximum.map_or(usize::MAX, |most| most as usize))
}

/// Gives them to who this process is to be.
fn give(groups: &mut Delegated, user: u32, group: u32) {
	if let Ok(given) = groups
		&& let Err(e) = given.give_to(user, group)
	{
		*groups = Err(format!("its cgroup can't be its user's: {e}"));
	}
}

/// Functions are never root.
fn become_user(name: &str, state: &Path, made: bool, groups: &mut Delegated) -> Result<(), CliError> {
	let unable = |why: &str| CliError::Unable(format!("can't become {name}: {why}; give another --user"));
	let text = CString::new(name).map_err(|_| unable("no name"))?;
	// SAFETY: a string; the structure is copied before anything else is asked; no other thread asks.
	unsafe {
		let found = libc::getpwnam(text.as_ptr());
		if found.is_null() || (*found).pw_uid == 0 {
			return Err(unable("there is no such user, or it is root"));
		}
		let (user, group) = ((*found).pw_uid, (*found).pw_gid);
		if made {
			std::os::unix::fs::chown(state, Some(user), Some(group)).map_err(CliError::file("give away", state))?;
		}
		give(groups, user, group);
		if libc::setgroups(0, std::ptr::null()) != 0
			|| libc::setresgid(group, group, group) != 0
			|| libc::setresuid(user, user, user) != 0
		{
			return Err(unable(&std::io::Error::last_os_error().to_string()));
		}
	}
	Ok(())
}
