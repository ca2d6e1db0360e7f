//! Templates: made, saved, loaded, removed.

use super::{Daemon, State, boot, clone::Running, disks, error::DaemonError, kept};
use crate::{
	machine::Frozen,
	pool::{Origin, Shell, ShellFailure},
	store::{Held, Kind, Store},
	template::{self, Quota, Template},
};
use flashfork::Headroom;
use flashfork_proto::{
	api::{self, CreateTemplate, LoadTemplate, SaveTemplate},
	shape::{Pages, Shape},
	shell::{self, Run},
};
use std::{
	collections::BTreeMap,
	os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
	path::Path,
	sync::{
		Arc, MutexGuard, OnceLock, Weak,
		atomic::{AtomicU64, Ordering},
	},
	time::SystemTime,
};

#[derive(Debug)]
pub(super) struct Entry {
	pub(super) template: Template,
	/// For claims.
	pub(super) origin: shell::Origin,
	pub(super) boot_ns: Option<u64>,
	/// On the clock that [`kept::monotonic_ns`] gives.
	pub(super) made_ns: u64,
	pub(super) forked_from: Option<String>,
	/// Clones that are.
	pub(super) alive: AtomicU64,
	/// What a clone had written when its agent first answered, as the first one told: the next will write the same.
	pub(super) written: OnceLock<Vec<Run>>,
	/// From before anybody can ask for it, or for a clone of it. Goes last: where nobody waits for its memory.
	pub(super) held: OnceLock<Arc<Held>>,
}

impl Daemon {
	/// Boots a guest and makes a template of it. The boot ends once nobody has `client` any more.
	pub fn create_template(&self, request: &CreateTemplate, client: &Weak<()>) -> Result<api::Template, DaemonError> {
		let hardware = self.hardware()?;
		let _reserved = self.reserve("template", &request.name)?;
		request.shape.check()?;
		if request.shape.disk != request.disk.is_some() {
			return Err(DaemonError::Invalid("a disk needs an image, and an image a shape with a disk".into()));
		}
		enough_memory(&request.shape)?;
		let (frozen, boot_ns) = boot::boot(&self.settings, &hardware.pools, request, self.cid(), client)?;
		let tenant = rustix::process::geteuid().as_raw();
		let quota = Arc::new(Quota::new(tenant, request.max_clones));
		self.adopt(&request.name, Template { frozen, quota, created_s: now_s() }, Some(boot_ns))
	}

	fn adopt(&self, name: &str, template: Template, boot_ns: Option<u64>) -> Result<api::Template, DaemonError> {
		let entry = Arc::new(Entry::new(template, boot_ns, None)?);
		self.publish(name, &entry)?;
		Ok(entry.show(name))
	}

	/// Makes a template one that can be asked for, under a name that is reserved.
	pub(super) fn publish(&self, name: &str, entry: &Arc<Entry>) -> Result<(), DaemonError> {
		entry.hold(&self.store, Some(name))?;
		let pools = &self.hardware()?.pools;
		let mut state = self.lock();
		state.templates.insert(name.to_owned(), entry.clone());
		// Before anybody removes it.
		pools.keep(entry.shape(), self.settings.pool);
		Ok(())
	}

	/// Loads one from a directory. Each load counts its clones for itself, from the number saved on.
	pub fn load_template(&self, request: &LoadTemplate) -> Result<api::Template, DaemonError> {
		let hardware = self.hardware()?;
		let _reserved = self.reserve("template", &request.name)?;
		absolute(&request.directory)?;
		let template = template::load(&request.directory, &hardware.kvm)?;
		self.adopt(&request.name, template, None)
	}

	/// Saves one to a directory.
	pub fn save_template(&self, name: &str, request: &SaveTemplate) -> Result<api::Template, DaemonError> {
		let entry = self.entry(name)?;
		absolute(&request.directory)?;
		template::save(&entry.template, &request.directory, &self.hardware()?.kvm)?;
		Ok(entry.show(name))
	}

	/// Shows one.
	///
	/// # Errors
	/// [`DaemonError::Unknown`].
	pub fn template(&self, name: &str) -> Result<api::Template, DaemonError> {
		Ok(self.entry(name)?.show(name))
	}

	/// Shows all.
	pub fn templates(&self) -> Vec<api::Template> {
		// What is shown is asked of the kernel, without the lock.
		let entries = self.lock().templates.clone();
		entries.iter().map(|(name, entry)| entry.show(name)).collect()
	}

	/// Forgets one with no clones.
	pub fn remove_template(&self, name: &str) -> Result<(), DaemonError> {
		let state = self.lock();
		let unknown = || DaemonError::Unknown { kind: "template", name: name.into() };
		let entry = state.templates.get(name).cloned().ok_or_else(unknown)?;
		let alive = entry.alive.load(Ordering::Acquire);
		if alive > 0 {
			let s = if alive == 1 { "" } else { "s" };
			return Err(DaemonError::Conflict(format!(
				"template {name} has {alive} clone{s}, without forks of theirs: remove what it has first (vm ls --tree)"
			)));
		}
		self.forget_template(state, name, &entry)
	}

	/// Removes one that has just been published, whatever there is of it: clones of it go on, and its memory goes with
	/// the last.
	pub(super) fn withdraw(&self, name: &str, entry: &Arc<Entry>) -> Result<(), DaemonError> {
		let state = self.lock();
		let is_there = state.templates.get(name).is_some_and(|there| Arc::ptr_eq(there, entry));
		if is_there { self.forget_template(state, name, entry) } else { Ok(()) }
	}

	fn forget_template(
		&self,
		mut state: MutexGuard<'_, State>,
		name: &str,
		entry: &Arc<Entry>,
	) -> Result<(), DaemonError> {
		let removed = state.templates.remove(name);
		let shape = entry.shape();
		if state.templates.values().all(|other| other.shape() != shape) {
			self.hardware()?.pools.keep(shape, 0);
		}
		self.unprime(entry)?;
		// The kernel frees its memory with the last descriptor, which takes as long as there is memory.
		drop(state);
		if Arc::strong_count(entry) > 2 {
			// Its clones go on.
			entry.hold(&self.store, None)?;
		}
		drop(removed);
		Ok(())
	}

	/// No shell has the memory of `entry` before it is a clone any more.
	pub(super) fn unprime(&self, entry: &Arc<Entry>) -> Result<(), DaemonError> {
		let origin: Arc<dyn Origin> = entry.clone();
		self.hardware()?.pools.forget(entry.shape(), &origin);
		Ok(())
	}
}

impl Origin for Entry {
	fn prime(&self, shell: &mut Shell) -> Result<(), ShellFailure> {
		let written = self.written.get().map_or(&[][..], Vec::as_slice);
		shell.prime(self.origin.clone(), &self.descriptors(), self.disk_limit(), written)
	}
}

impl Entry {
	pub(super) fn new(
		template: Template,
		boot_ns: Option<u64>,
		forked_from: Option<String>,
	) -> Result<Self, DaemonError> {
		let origin = origin(&template.frozen)?;
		let (alive, written, held) = (AtomicU64::new(0), OnceLock::new(), OnceLock::new());
		Ok(Self { template, origin, boot_ns, made_ns: kept::monotonic_ns(), forked_from, alive, written, held })
	}

	/// Of what a clone was when it was forked.
	pub(super) fn forked(template: Template, from: &str) -> Result<Self, DaemonError> {
		Self::new(template, None, Some(from.to_owned()))
	}

	/// Has `store` hold it, as `name` from now on, or as that of clones alone.
	pub(super) fn hold(&self, store: &Arc<Store>, name: Option<&str>) -> Result<(), DaemonError> {
		let record = kept::template(self, name, self.template.quota.hold(store));
		match self.held.get() {
			Some(held) => held.change(Kind::Template, record),
			None => {
				let Frozen { ram, disks, .. } = &self.template.frozen;
				let mut files = kept::shared(ram.files());
				for disk in disks {
					files.extend(kept::of_disk(disk)?);
				}
				// Nobody else does.
				let _ = self.held.set(store.hold(Kind::Template, record, files)?);
			}
		}
		Ok(())
	}

	/// Whether `clone` was forked to make it, and not another one of that name.
	pub(super) fn is_forked_from(&self, clone: &Running) -> bool {
		self.forked_from.as_deref() == Some(clone.name()) && clone.made_ns() < self.made_ns
	}

	/// A clone's shell, whatever became of that, says that its guest has written these pages. The first one counts.
	pub(super) fn learn(&self, runs: Vec<Run>) {
		let Shape { pages, memory_mib, .. } = self.shape();
		if pages == Pages::Small && !runs.is_empty() && Run::fit(&runs, u64::from(memory_mib) << 8) {
			let _ = self.written.set(runs);
		}
	}

	pub(super) fn shape(&self) -> Shape {
		self.template.frozen.state.shape
	}

	/// What a shell gets with the state.
	pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
		let Frozen { ram, disks, .. } = &self.template.frozen;
		ram.files().iter().map(AsFd::as_fd).chain(disks.iter().flat_map(disks::descriptors)).collect()
	}

	pub(super) fn disk_limit(&self) -> u64 {
		self.template.frozen.state.disk_limit()
	}

	/// The files of its memory and of what was written to its disks.
	pub(super) fn files(&self) -> impl Iterator<Item = &Arc<OwnedFd>> {
		let Frozen { ram, disks, .. } = &self.template.frozen;
		ram.files().iter().chain(disks.iter().flat_map(|disk| disk.overlay.files()))
	}

	pub(super) fn show(&self, name: &str) -> api::Template {
		// What is held has each file, too.
		let own = 1 + usize::from(self.held.get().is_some());
		api::Template {
			name: name.into(),
			shape: self.shape(),
			created_s: self.template.created_s,
			made_ns: self.made_ns,
			clones_made: self.template.quota.made(),
			clones_alive: self.alive.load(Ordering::Relaxed),
			max_clones: self.template.quota.max(),
			forked_from: self.forked_from.clone(),
			resident_bytes: self.files().map(bytes).sum(),
			shared_bytes: self.files().filter(|file| Arc::strong_count(file) > own).map(bytes).sum(),
			boot_ns: self.boot_ns,
		}
	}
}

/// What shells get of it, beside descriptors.
fn origin(frozen: &Frozen) -> Result<shell::Origin, DaemonError> {
	let disks = frozen.disks.iter().map(|disk| disk.overlay.extents().to_vec()).collect();
	Ok(shell::Origin { state: frozen.state.encode()?, ram: frozen.ram.extents().to_vec(), disks })
}

/// Bytes of memory that a file takes.
pub(super) fn bytes(file: impl AsFd) -> u64 {
	rustix::fs::fstat(file).map_or(0, |stat| stat.st_blocks.unsigned_abs()) * 512
}

/// Bytes of memory that templates take, those without a name too, which the clones have that were forked from others.
/// What several have in common counts once.
pub(super) fn resident(named: &[Arc<Entry>], clones: &[Arc<Running>]) -> u64 {
	let unnamed = clones.iter().filter_map(|clone| clone.template().ok());
	let entries: Vec<_> = named.iter().cloned().chain(unnamed).collect();
	let files: BTreeMap<_, _> = entries.iter().flat_map(|entry| entry.files()).map(|f| (f.as_raw_fd(), f)).collect();
	files.into_values().map(bytes).sum()
}

/// Seconds since 1970-01-01 UTC.
pub(super) fn now_s() -> u64 {
	SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn absolute(path: &Path) -> Result<(), DaemonError> {
	if path.is_absolute() {
		Ok(())
	} else {
		Err(DaemonError::Invalid(format!("{} is not an absolute path", path.display())))
	}
}

/// A guest that doesn't fit would be killed in the middle, or something else would.
fn enough_memory(shape: &Shape) -> Result<(), DaemonError> {
	let headroom = Headroom::now().map_err(|e| DaemonError::System("read how much memory is available", e))?;
	let asked = u64::from(shape.memory_mib);
	let available = headroom.available >> 20;
	if asked > available { Err(DaemonError::Memory { asked, available, limit: headroom.limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
	use super::{super::Settings, *};
	use crate::{machine::Machine, memory::Layered, pool::Program};
	use flashfork_proto::shell::{FromShell, ToShell};
	use kvm_ioctls::Kvm;
	use std::{
		io::{Read, Write},
		net::{Shutdown, TcpListener, TcpStream},
		os::unix::net::UnixStream,
		time::Duration,
	};

	const SHAPE: Shape = Shape { memory_mib: 4, vcpus: 1, pages: Pages::Small, disk: false, disk_slots: 0 };

	/// A descriptor that takes to close until the other end is read: of a connection whose data must arrive first
	/// (SO_LINGER, socket(7)), as memory takes that must be freed first.
	fn lingering() -> (OwnedFd, TcpStream) {
		let listener = TcpListener::bind("127.0.0.1:0").unwrap();
		let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
		let (receiver, _) = listener.accept().unwrap();
		sender.set_nonblocking(true).unwrap();
		// Until the other end's kernel takes no more.
		while sender.write(&[7; 1 << 16]).is_ok() {}
		rustix::net::sockopt::set_socket_linger(&sender, Some(Duration::from_secs(600))).unwrap();
		(sender.into(), receiver)
	}

	fn entry(kvm: &Kvm, ram: Option<OwnedFd>) -> Arc<Entry> {
		let (mut machine, vcpu0) = Machine::prepare(kvm, SHAPE, Box::new(std::io::sink())).unwrap();
		machine.spawn(vcpu0).unwrap();
		machine.boot(&crate::boot::Source::Tiny(vec![0xf4]), None).unwrap();
		let frozen = machine.freeze(false).unwrap();
		let ram = ram.map(|ram| Layered::single(ram, SHAPE.memory_bytes()));
		let frozen = Frozen { ram: ram.unwrap_or(frozen.ram), ..frozen };
		let template = Template { frozen, quota: Arc::new(Quota::new(0, None)), created_s: 0 };
		Arc::new(Entry::new(template, None, None).unwrap())
	}

	fn ask(socket: &std::path::Path, request: &str) -> String {
		let mut stream = UnixStream::connect(socket).unwrap();
		stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
		write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
		let mut answer = String::new();
		stream.read_to_string(&mut answer).expect("an answer while memory is freed");
		answer
	}

	#[test]
	fn while_a_template_s_memory_is_freed_the_daemon_goes_on_answering() {
		let Ok(kvm) = Kvm::new() else { return eprintln!("skipped: no /dev/kvm") };
		let dir = tempfile::tempdir().unwrap();
		let nothing = dir.path().join("none");
		let shell = Program { path: nothing.clone(), args: Vec::new() };
		let settings = Settings { shell, agent: nothing.clone(), cache: nothing, pool: 0, remember: 1 };
		let (ram, mut other_end) = lingering();
		let entries = [("slow", entry(&kvm, Some(ram))), ("stays", entry(&kvm, None))];
		let daemon = Arc::new(Daemon::new(settings, Ok(kvm), Err(String::new()), Store::none().unwrap()).unwrap());
		daemon.lock().templates.extend(entries.map(|(name, entry)| (name.to_owned(), entry)));

		let socket = dir.path().join("socket");
		let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
		listener.set_nonblocking(true).unwrap();
		// Its one thread is the daemon's.
		std::thread::spawn(move || {
			let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
			let serve = async {
				axum::serve(tokio::net::UnixListener::from_std(listener).unwrap(), crate::api::router(daemon)).await
			};
			runtime.block_on(serve).unwrap();
		});
		std::thread::scope(|scope| {
			let removal = scope.spawn(|| ask(&socket, "DELETE /v1/templates/slow"));
			while ask(&socket, "GET /v1/templates").contains("slow") {}
			assert!(!removal.is_finished(), "it is freed while nobody reads the other end");
			let drained = std::thread::spawn(move || {
				// Closing what isn't read would be a reset, and end the wait too.
				let _ = other_end.read_to_end(&mut Vec::new());
				let _ = other_end.shutdown(Shutdown::Both);
			});
			assert!(removal.join().unwrap().starts_with("HTTP/1.1 204"));
			drained.join().unwrap();
		});
	}

	#[test]
	fn what_the_first_clone_had_written_when_its_agent_answered_is_there_in_shells_that_are_primed() {
		let Ok(kvm) = Kvm::new() else { return eprintln!("skipped: no /dev/kvm") };
		let entry = entry(&kvm, None);
		let (clone, shell) = super::super::clone::tests::running(Arc::downgrade(&entry));
		let one = vec![Run { first: 3, pages: 2 }];
		// Each clone is asked once, whether it answers or not.
		let (old, of_old) = super::super::clone::tests::running(Arc::downgrade(&entry));
		old.learn();
		assert_eq!(of_old.receive::<ToShell>().unwrap().0, ToShell::Tell);
		old.learn();
		old.input(b"x").unwrap();
		assert!(matches!(of_old.receive::<ToShell>().unwrap().0, ToShell::Input(_)));
		old.stop();
		clone.learn();
		assert_eq!(shell.receive::<ToShell>().unwrap().0, ToShell::Tell);
		for runs in [vec![Run { first: 1023, pages: 2 }], one.clone(), Vec::new()] {
			shell.send(&FromShell::Written(runs), &[]).unwrap();
		}
		while entry.written.get().is_none() {
			std::thread::yield_now();
		}
		// Nobody is asked again.
		let (other, of_other) = super::super::clone::tests::running(Arc::downgrade(&entry));
		other.learn();
		other.input(b"x").unwrap();
		assert!(matches!(of_other.receive::<ToShell>().unwrap().0, ToShell::Input(_)));
		other.stop();
		let (mut primed, shell) = Shell::played(SHAPE);
		std::thread::scope(|scope| {
			scope.spawn(|| {
				assert!(matches!(shell.receive::<ToShell>().unwrap().0, ToShell::Prime(_)));
				shell.send(&FromShell::Primed, &[]).unwrap();
				assert_eq!(shell.receive::<ToShell>().unwrap().0, ToShell::Populate(one));
				shell.send(&FromShell::Primed, &[]).unwrap();
			});
			entry.prime(&mut primed).unwrap();
		});
		assert!(primed.is_primed());
		clone.stop();
	}
}
