//! What `flashfork-vmd` does: templates, clones, their names.
//!
//! | file | what |
//! |---|---|
//! | `boot` | from power-on to a template |
//! | `templates` | made, saved, loaded, removed |
//! | `clones` | made, rolled back, removed |
//! | `claim` | from a shell to a clone |
//! | `clone` | one clone: its shell and the thread that listens to it |
//! | `fork` | a clone that runs becomes a template |
//! | `agent` | calls of guests' agents |
//! | `console` | the end of what a guest wrote, and who listens |
//! | `kept` | what an earlier daemon has left is taken over |
//! | `host` | what KVM can do here, by trying |
//! | `socket` | one daemon per socket, and what a killed one left |
//! | `memory` | what a shell or clone takes |
//! | `error` | why a request was not done |
//!
//! The daemon runs no guest: guests run in shells. It trusts neither.

mod agent;
mod boot;
mod claim;
mod clone;
mod clones;
mod console;
mod disks;
mod error;
mod fork;
mod host;
mod kept;
mod memory;
mod own_fork;
mod socket;
mod templates;

pub use clones::Typist;
pub use error::DaemonError;
pub use socket::{Socket, SocketError};

use crate::{
	pool::{Pools, Program},
	store::Store,
};
use clone::Running;
use flashfork_cgroup::Cgroups;
use flashfork_proto::api::{self, is_name};
use kvm_ioctls::Kvm;
use std::{
	collections::{BTreeMap, BTreeSet, VecDeque},
	os::fd::{AsRawFd, BorrowedFd},
	path::PathBuf,
	sync::{
		Arc, Mutex, MutexGuard, PoisonError, Weak,
		atomic::{AtomicU32, AtomicU64, Ordering},
	},
};
use templates::Entry;

/// vsock context ids from here on are guests' (0 to 2 have meanings of their own).
const FIRST_CID: u32 = 3;

/// What a daemon is told at its start.
#[derive(Debug, Clone)]
pub struct Settings {
	/// The shell program.
	pub shell: Program,
	/// The guest agent, a static program, for the default guest.
	pub agent: PathBuf,
	/// Where the default guest is kept.
	pub cache: PathBuf,
	/// Shells kept ready for each shape with a template.
	pub pool: u32,
	/// Ended clones that are remembered.
	pub remember: usize,
}

/// A daemon without its socket.
#[derive(Debug)]
pub struct Daemon {
	settings: Settings,
	hardware: Result<Hardware, kvm_ioctls::Error>,
	/// Why shells have no cgroups, if they have none.
	limits: Result<(), String>,
	store: Arc<Store>,
	state: Mutex<State>,
	next_cid: AtomicU32,
	clones_made: AtomicU64,
}

#[derive(Debug)]
struct Hardware {
	kvm: Kvm,
	pools: Arc<Pools>,
}

impl Hardware {
	fn new(kvm: Kvm, settings: &Settings, cgroups: Option<Cgroups>, store: Arc<Store>) -> Result<Self, DaemonError> {
		// SAFETY: open as long as `kvm` is.
		let descriptor = unsafe { BorrowedFd::borrow_raw(kvm.as_raw_fd()) };
		let of_shells =
			descriptor.try_clone_to_owned().map_err(|e| DaemonError::System("duplicate a descriptor", e))?;
		let pools = Pools::new(settings.shell.clone(), of_shells, cgroups, store)
			.map_err(|e| DaemonError::System("start a thread", e))?;
		Ok(Self { kvm, pools: Arc::new(pools) })
	}
}

#[derive(Debug, Default)]
struct State {
	templates: BTreeMap<String, Arc<Entry>>,
	clones: BTreeMap<String, Arc<Running>>,
	/// The last that ended, the oldest first; who has been removed since is gone.
	ended: VecDeque<Weak<Running>>,
	/// Names of what is being made.
	reserved: BTreeSet<(&'static str, String)>,
}

impl State {
	/// Forgets a clone, unless its name is another's by now.
	fn forget(&mut self, clone: &Arc<Running>) {
		let name = clone.name();
		if self.clones.get(name).is_some_and(|named| Arc::ptr_eq(named, clone)) {
			self.clones.remove(name);
		}
	}
}

struct Reserved<'a>(&'a Daemon, (&'static str, String));

impl Drop for Reserved<'_> {
	fn drop(&mut self) {
		self.0.lock().reserved.remove(&self.1);
	}
}

impl Daemon {
	/// A daemon without templates. `kvm` is `/dev/kvm`; without it the daemon can say so, and nothing else. Its shells
	/// are in `cgroups`, or it is said why not, and what it has is held by `store`, too.
	///
	/// # Errors
	/// If its threads can't be started.
	pub fn new(
		settings: Settings,
		kvm: Result<Kvm, kvm_ioctls::Error>,
		cgroups: Result<Cgroups, String>,
		store: Arc<Store>,
	) -> Result<Self, DaemonError> {
		let (cgroups, limits) = match cgroups {
			Ok(cgroups) => (Some(cgroups), Ok(())),
			Err(why) => (None, Err(why)),
		};
		let hardware = match kvm {
			Ok(kvm) => Ok(Hardware::new(kvm, &settings, cgroups, store.clone())?),
			Err(e) => Err(e),
		};
		Ok(Self {
			settings,
			hardware,
			limits,
			store,
			state: Mutex::default(),
			next_cid: AtomicU32::new(FIRST_CID),
			clones_made: AtomicU64::new(0),
		})
	}

	fn hardware(&self) -> Result<&Hardware, DaemonError> {
		self.hardware.as_ref().map_err(|e| DaemonError::Kvm(*e))
	}

	fn lock(&self) -> MutexGuard<'_, State> {
		self.state.lock().unwrap_or_else(PoisonError::into_inner)
	}

	fn cid(&self) -> u32 {
		self.next_cid.fetch_add(1, Ordering::Relaxed)
	}

	fn reserve(&self, kind: &'static str, name: &str) -> Result<Reserved<'_>, DaemonError> {
		if !is_name(name) {
			return Err(DaemonError::Name(name.into()));
		}
		if (kind, name) == ("template", "load") {
			return Err(DaemonError::Invalid("load is no template's name: give another".into()));
		}
		let mut state = self.lock();
		let there =
			if kind == "template" { state.templates.contains_key(name) } else { state.clones.contains_key(name) };
		if there {
			return Err(DaemonError::Taken { kind, name: name.into() });
		}
		let key = (kind, name.to_owned());
		if !state.reserved.insert(key.clone()) {
			return Err(DaemonError::Making { kind, name: name.into() });
		}
		Ok(Reserved(self, key))
	}

	fn entry(&self, name: &str) -> Result<Arc<Entry>, DaemonError> {
		let unknown = || DaemonError::Unknown { kind: "template", name: name.into() };
		self.lock().templates.get(name).cloned().ok_or_else(unknown)
	}

	fn running(&self, name: &str) -> Result<Arc<Running>, DaemonError> {
		let unknown = || DaemonError::Unknown { kind: "clone", name: name.into() };
		self.lock().clones.get(name).cloned().ok_or_else(unknown)
	}

	/// What there is.
	pub fn stats(&self) -> api::Stats {
		let state = self.lock();
		let templates: Vec<_> = state.templates.values().cloned().collect();
		let alive: Vec<_> = state.clones.values().filter(|clone| !clone.has_ended()).cloned().collect();
		// What follows reads files, and nobody needs to wait for it.
		drop(state);
		let pools = self.hardware.as_ref().ok().map(|hardware| &hardware.pools);
		let waiting = pools.map_or_else(Vec::new, |pools| pools.footprints());
		api::Stats {
			templates: templates.len() as u64,
			clones: alive.len() as u64,
			clones_made: self.clones_made.load(Ordering::Relaxed),
			pools: pools.map_or_else(Vec::new, |pools| pools.stats()),
			template_bytes: templates::resident(&templates, &alive),
			clone_bytes: alive.iter().filter_map(|clone| clone.memory()).sum(),
			shell_bytes: waiting.iter().filter_map(memory::added).sum(),
		}
	}

	/// What KVM can do here, found out by trying.
	pub fn host(&self) -> api::Host {
		let (kvm, detail) = match self.hardware() {
			Ok(hardware) => host::probe(&self.settings, &hardware.pools, self.cid()),
			Err(e) => (api::HostKvm::None, e.to_string()),
		};
		let limits = match &self.limits {
			Ok(()) => "each clone has a control group with the memory it was promised".into(),
			Err(why) => format!("clones have resource limits of their own, but no control groups: {why}"),
		};
		api::Host { kvm, detail, limits }
	}
}
