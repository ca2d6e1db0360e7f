//! Functions in virtual machines: each has a template of the VM daemon's of its own, and each call a clone of that.
//!
//! Warming makes a clone of the template that was asked for, with the function's package in it, whose runtime is
//! started by the guest's agent (`flashfork_proto::function`). Once that asks for its first call the clone is forked
//! into the function's template. What is the server's bears its name: whatever an earlier one has left is removed.

mod agent;
mod daemon;
mod running;
mod warm;
mod watch;

pub use running::Running;
pub use warm::Template;
pub use watch::{WATCHER, main};

use crate::{
	error::{ApiError, Result},
	locked,
	pool::uuid,
	store, warden,
};
use daemon::{Daemon, Refusal};
use flashfork_proto::api::{self, CreateClones, is_name};
use flashfork_terminal::{CliError, places};
use serde::{Serialize, de::DeserializeOwned};
use std::{
	io::ErrorKind,
	path::{Path, PathBuf},
	process::ChildStdin,
	sync::{
		Arc, Mutex,
		atomic::{AtomicU64, Ordering::Relaxed},
	},
};
use tracing::warn;

/// What names of servers' own templates and clones begin with.
const OWN: &str = "serve.";

/// Where functions in virtual machines may run.
#[derive(clap::Args)]
#[command(next_help_heading = "In virtual machines")]
pub struct MachineArgs {
	/// Socket of the VM daemon, of this server's own user [default: as of `flashfork vm`]
	#[arg(long, value_name = "PATH")]
	vm_socket: Option<PathBuf>,
	/// Templates of that daemon's that functions may be made of [default: all; with --keys none]
	#[arg(long, value_name = "NAME", value_delimiter = ',')]
	vm_template: Vec<String>,
}

/// The daemon, and what is this server's there.
pub struct Machines {
	daemon: Daemon,
	state: PathBuf,
	/// `None`: all.
	templates: Option<Vec<String>>,
	/// What the names begin with that servers with this directory give, and those that this one gives.
	all: String,
	run: String,
	/// Removes these when the server ends; there is one when there are any.
	watcher: Mutex<Option<ChildStdin>>,
	made: AtomicU64,
}

impl MachineArgs {
	/// Nobody is asked before a function needs it. `has_keys`: owners don't trust each other.
	pub fn open(&self, state: &Path, has_keys: bool) -> std::result::Result<Machines, CliError> {
		let socket = self.vm_socket.clone().unwrap_or_else(places::vm_socket);
		let daemon = Daemon { socket: std::path::absolute(&socket).map_err(CliError::file("find", &socket))? };
		let path = state.join("machines");
		let id = std::fs::read_to_string(&path).or_else(|e| match e.kind() {
			ErrorKind::NotFound => {
				let id = uuid()[..18].to_owned();
				store::write(&path, id.as_bytes()).map(|()| id)
			}
			_ => Err(e),
		});
		let id = id.and_then(|id| if store::is_plain(&id) { Ok(id) } else { Err(ErrorKind::InvalidData.into()) });
		let all = format!("{OWN}{}.", id.map_err(CliError::file("read", path))?);
		let run = format!("{all}{}.", &uuid()[..8]);
		let templates = (has_keys || !self.vm_template.is_empty()).then(|| self.vm_template.clone());
		let (state, watcher, made) = (state.to_owned(), Mutex::default(), AtomicU64::new(0));
		Ok(Machines { daemon, state, templates, all, run, watcher, made })
	}
}

impl Machines {
	/// How many megabytes a function has that is made of this template; or why it may not.
	pub async fn memory(&self, template: &str) -> Result<u64> {
		if !is_name(template) || template.starts_with(OWN) {
			return Err(ApiError::invalid(format!(
				"Vm is the name of a template of the VM daemon's, and not {template:?}"
			)));
		}
		if self.templates.as_ref().is_some_and(|all| !all.iter().any(|one| one == template)) {
			let why =
				format!("functions may be made of the template {template} if --vm-template of the server says so");
			return Err(ApiError::denied(why));
		}
		let found: api::Template = self.daemon.get(&format!("/v1/templates/{template}")).await?;
		let socket = self.daemon.socket.canonicalize()?;
		if !warden::hidden(&self.state).iter().any(|place| socket.starts_with(place)) {
			return Err(ApiError::not_ready(format!(
				"functions without --vm see the VM daemon's socket {}: have it listen in {}, and give --vm-socket",
				socket.display(),
				self.state.display()
			)));
		}
		Ok(found.shape.memory_mib.into())
	}

	/// A name that nothing has had.
	fn name(&self) -> String {
		format!("{}{}", self.run, self.made.fetch_add(1, Relaxed))
	}

	/// What is to be a template (`templates`) or clone of this name.
	fn owned(&self, kind: &str, name: &str, of: Option<Arc<Template>>) -> Owned {
		Owned { daemon: self.daemon.clone(), path: format!("/v1/{kind}/{name}"), _of: of }
	}

	/// Has all that this run makes go with it.
	fn watch(&self) -> std::io::Result<()> {
		let mut watcher = locked(&self.watcher);
		if watcher.is_none() {
			*watcher = Some(watch::start(&self.daemon, &self.run)?);
		}
		Ok(())
	}

	/// Removes what earlier runs of this server have left, and nobody else's. There may be no daemon any more.
	pub async fn tidy(&self) {
		let is_left = |name: &str| name.starts_with(&self.all) && !name.starts_with(&self.run);
		if let Err(refusal @ (Refusal::Absent(_) | Refusal::Other(_))) = watch::sweep(&self.daemon, is_left).await {
			warn!("what the last server has left with the VM daemon stays: {}", ApiError::from(refusal).why);
		}
	}
}

/// A template or clone, which goes when nobody has this any more.
struct Owned {
	daemon: Daemon,
	/// Empty once it is gone.
	path: String,
	/// What may not go before.
	_of: Option<Arc<Template>>,
}

impl Owned {
	/// Asks for it, to the end: what nobody waits for any more goes at once.
	async fn make<T: DeserializeOwned + Send + 'static>(
		self,
		path: &str,
		body: &impl Serialize,
	) -> std::result::Result<(T, Owned), Refusal> {
		let (path, body) = (format!("/v1/{path}"), serde_json::json!(body));
		let made = tokio::spawn(async move { self.daemon.post::<T>(&path, &body).await.map(|made| (made, self)) });
		made.await.unwrap_or_else(|e| Err(Refusal::Other(e.to_string())))
	}

	/// Returns when it is gone.
	async fn remove(mut self) {
		let path = std::mem::take(&mut self.path);
		if let Err(refusal) = self.daemon.delete(&path).await {
			warn!("{path} stays with the VM daemon until the server's next start: {}", ApiError::from(refusal).why);
		}
	}
}

impl Drop for Owned {
	fn drop(&mut self) {
		let path = std::mem::take(&mut self.path);
		// A server that ends leaves it to its watcher.
		if let (false, Ok(runtime)) = (path.is_empty(), tokio::runtime::Handle::try_current()) {
			runtime.spawn(Owned { daemon: self.daemon.clone(), path, _of: self._of.take() }.remove());
		}
	}
}

/// A function's template isn't there any more.
pub struct Gone;

/// What is asked of the daemon, but the clone's name.
fn one_clone() -> CreateClones {
	CreateClones { count: 1, name: None, job: String::new(), wait: true, forks: 0, disks: Vec::new() }
}
