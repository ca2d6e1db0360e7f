//! The VM daemon: templates and clones behind a Unix socket.

use clap::Parser;
use flashfork_cgroup::Cgroups;
use flashfork_vmm::{
	api,
	daemon::{Daemon, DaemonError, Settings, Socket, SocketError},
	pool::{NAME, Program},
	store::{self, Kept, Place, Store, StoreError},
	template::drop_drafts,
};
use kvm_ioctls::Kvm;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;
use std::{
	io::{self, Write},
	os::fd::{FromRawFd, OwnedFd},
	path::{Path, PathBuf},
	process::ExitCode,
	sync::Arc,
};
use tokio::{
	net::UnixListener,
	signal::unix::{Signal, SignalKind, signal},
};

/// The daemon behind `flashfork vm`: keeps templates, makes clones of them. The command starts it when it is needed.
#[derive(Parser)]
#[command(name = "flashfork-vmd", version, after_help = "Example: flashfork-vmd --socket /run/flashfork/vmd.sock")]
struct Args {
	/// Where to listen [default: at the socket that systemd has started it for]
	#[arg(long, value_name = "PATH")]
	socket: Option<PathBuf>,
	/// Shells kept ready for each shape of VM with a template
	#[arg(long, default_value_t = 4, value_name = "N")]
	pool: u32,
	/// Ended clones that are remembered, with how they ended and the end of their console
	#[arg(long, default_value_t = flashfork_proto::api::MAX_ENDED, value_name = "N")]
	remember: usize,
	/// The shell program [default: in ../lib/flashfork or beside this program]
	#[arg(long, value_name = "PATH")]
	shell: Option<PathBuf>,
	/// The guest agent [default: in ../lib/flashfork or beside this program]
	#[arg(long, value_name = "PATH")]
	agent: Option<PathBuf>,
	/// Where the default guest is kept
	#[arg(long, default_value = "/var/cache/flashfork/vm", value_name = "DIR")]
	cache: PathBuf,
	/// Print a description of the interface (OpenAPI) and end
	#[arg(long)]
	openapi: bool,
	/// Be what holds templates and clones over the daemon's end. Started by the daemon
	#[arg(long, hide = true)]
	store: bool,
}

#[derive(Debug, thiserror::Error)]
enum VmdError {
	#[error("there is no socket: give --socket PATH, or have systemd start it (flashfork-vmd.socket)")]
	NoSocket,
	#[error(transparent)]
	Socket(#[from] SocketError),
	#[error(transparent)]
	Daemon(#[from] DaemonError),
	#[error(transparent)]
	Store(#[from] StoreError),
	#[error("cannot serve: {0}")]
	Serve(#[from] std::io::Error),
}

fn main() -> ExitCode {
	match run(&Args::parse()) {
		Ok(()) => ExitCode::SUCCESS,
		Err(e) => {
			eprintln!("flashfork-vmd: {e}");
			ExitCode::FAILURE
		}
	}
}

fn run(args: &Args) -> Result<(), VmdError> {
	if args.openapi {
		return Ok(writeln!(std::io::stdout(), "{}", api::openapi())?);
	}
	if args.store {
		// SAFETY: they are this process's own, which has just begun, and its output is written to no more.
		let (listener, first) = unsafe { (OwnedFd::from_raw_fd(0), OwnedFd::from_raw_fd(1)) };
		return Ok(store::serve(&listener, first)?);
	}
	// The store, which holds the same, does so too.
	let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
	setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).map_err(io::Error::from)?;
	// SAFETY: there is one thread, and it has opened nothing.
	let socket = match unsafe { Socket::inherited() }? {
		Some(socket) => socket,
		None => Socket::bind(args.socket.as_deref().ok_or(VmdError::NoSocket)?)?,
	};
	let exe = std::env::current_exe()?;
	let beside = exe.parent().unwrap_or(Path::new("/"));
	let found = |name: &str| {
		// Cargo puts an agent beside this that isn't static, and starts in no guest.
		let places = [beside.join("../lib/flashfork").join(name), beside.join(name)];
		places.iter().find(|path| path.is_file()).unwrap_or(&places[1]).clone()
	};
	let settings = Settings {
		shell: Program { path: args.shell.clone().unwrap_or_else(|| found("flashfork-shell")), args: Vec::new() },
		agent: args.agent.clone().unwrap_or_else(|| found("flashfork-agent")),
		cache: args.cache.clone(),
		pool: args.pool,
		remember: args.remember,
	};
	let cgroups = Cgroups::delegated(NAME);
	let mut runtime = tokio::runtime::Builder::new_current_thread();
	let runtime = runtime.enable_all().max_blocking_threads(threads()).build()?;
	// Heard from here on, and heeded once everything is taken over: what ended this process before would leave it.
	let signals = {
		let _inside = runtime.enter();
		[signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?]
	};
	let (store, kept) = open_store(&socket, &cgroups, exe)?;
	let daemon = Daemon::new(settings, Kvm::new(), cgroups, store.clone()).inspect_err(|_| store.leave())?;
	let daemon = Arc::new(daemon);
	daemon.take_over(kept, say).inspect_err(|_| store.leave())?;
	// It stays: what is dropped would be no more.
	let served = runtime.block_on(serve(&socket, daemon.clone(), signals));
	// Nobody hears of anything any more, whatever is still done.
	match served {
		Ok(End::ForGood) => store.end(),
		_ if store.holds() => store.leave(),
		_ => store.end(),
	}
	if let Err(e) = &served {
		say(&VmdError::from(io::Error::new(e.kind(), e.to_string())).to_string());
	}
	socket.remove();
	drop_drafts();
	// What still waits for a guest would keep the process.
	std::process::exit(i32::from(served.is_err()))
}

enum End {
	/// The next one has it.
	Next,
	ForGood,
}

fn say(line: &str) {
	eprintln!("flashfork-vmd: {line}");
}

/// What holds templates and clones for the next daemon, and what it holds already.
fn open_store(
	socket: &Socket,
	cgroups: &Result<Cgroups, String>,
	program: PathBuf,
) -> Result<(Arc<Store>, Vec<Kept>), VmdError> {
	if socket.is_inherited() && cgroups.as_ref().is_ok_and(Cgroups::has_moved) {
		// It could start no other daemon beside their control groups.
		say("templates and clones end with this daemon: systemd is older than 254, or DelegateSubgroup= is missing");
		return Ok((Store::none()?, Vec::new()));
	}
	match Store::at(Place { socket: socket.beside(".store"), program }, say) {
		Err(e @ StoreError::Step(..)) => {
			say(&format!("templates and clones end with this daemon: {e}"));
			Ok((Store::none()?, Vec::new()))
		}
		other => Ok(other?),
	}
}

/// Threads on which requests wait, for guests that may hang as long as they like. Each request has a connection, so
/// there are never more than descriptors: none waits for another's thread.
fn threads() -> usize {
	let descriptors = getrlimit(Resource::Nofile).current;
	descriptors.and_then(|count| usize::try_from(count).ok()).unwrap_or(MOST_THREADS).clamp(1, MOST_THREADS)
}

/// Where descriptors have no limit.
const MOST_THREADS: usize = 1 << 20;

async fn serve(socket: &Socket, daemon: Arc<Daemon>, [mut term, mut int]: [Signal; 2]) -> io::Result<End> {
	let listener = socket.listener()?;
	listener.set_nonblocking(true)?;
	// To systemd, where that has started it; else it does nothing.
	sd_notify::notify(&[NotifyState::Ready])?;
	tokio::select! {
		() = api::serve(UnixListener::from_std(listener)?, api::router(daemon)) => Ok(End::ForGood),
		_ = term.recv() => Ok(End::Next),
		_ = int.recv() => Ok(End::ForGood),
	}
}
