//! What `flashfork-vmd` does: templates, clones, their names.
//!
//! | file | what |
//! |---|---|
//! | `boot` | from power-on to a template |
//! | `clone` | one clone: its shell and the thread that listens to it |
//! | `console` | the end of what a guest wrote, and who listens |
//! | `host` | what KVM can do here, by trying |
//! | `socket` | one daemon per socket, and what a killed one left |
//! | `memory` | what a shell or clone takes |
//! | `error` | why a request was not done |
//!
//! The daemon runs no guest: guests run in shells, which die with it. It trusts neither.

mod boot;
mod clone;
mod console;
mod error;
mod host;
mod memory;
mod socket;

pub use error::DaemonError;
pub use socket::{Socket, SocketError};

use crate::pool::{Pools, Program};
use crate::template::{self, Quota, Template};
use clone::{Born, Running};
use flashfork_proto::agent::CloneIdentity;
use flashfork_proto::api::{
    self, CreateClones, CreateTemplate, LoadTemplate, MAX_CLONES_AT_ONCE, SaveTemplate, is_name,
};
use flashfork_proto::shape::Shape;
use flashfork_proto::shell::{Claim, Renewal};
use flashfork_proto::signal::MAX_JOB;
use kvm_ioctls::Kvm;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Instant, SystemTime};

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
    /// Shells kept ready for each shape that has a template.
    pub pool: u32,
    /// Ended clones that are remembered.
    pub remember: usize,
}

/// A daemon without its socket.
#[derive(Debug)]
pub struct Daemon {
    settings: Settings,
    hardware: Result<Hardware, kvm_ioctls::Error>,
    state: Mutex<State>,
    next_cid: AtomicU32,
    clones_made: AtomicU64,
}

/// What guests run on.
#[derive(Debug)]
struct Hardware {
    kvm: Kvm,
    pools: Arc<Pools>,
}

impl Hardware {
    fn new(kvm: Kvm, settings: &Settings) -> Result<Self, DaemonError> {
        // SAFETY: open as long as `kvm` is.
        let descriptor = unsafe { BorrowedFd::borrow_raw(kvm.as_raw_fd()) };
        let of_shells =
            descriptor.try_clone_to_owned().map_err(|e| DaemonError::System("duplicate a descriptor", e))?;
        let pools =
            Pools::new(settings.shell.clone(), of_shells).map_err(|e| DaemonError::System("start a thread", e))?;
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

/// A clone that keeps its template from being removed, from before its claim to its end.
struct Alive(Arc<Entry>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A template and what the daemon knows of it.
#[derive(Debug)]
struct Entry {
    template: Template,
    /// For claims.
    state: Vec<u8>,
    boot_ns: Option<u64>,
    alive: AtomicU64,
}

/// A name that is taken while something is made.
struct Reserved<'a>(&'a Daemon, (&'static str, String));

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.0.lock().reserved.remove(&self.1);
    }
}

impl Daemon {
    /// A daemon without templates. `kvm` is `/dev/kvm`; without it the daemon can say so, and nothing else.
    ///
    /// # Errors
    /// If its threads can't be started.
    pub fn new(settings: Settings, kvm: Result<Kvm, kvm_ioctls::Error>) -> Result<Self, DaemonError> {
        let hardware = match kvm {
            Ok(kvm) => Ok(Hardware::new(kvm, &settings)?),
            Err(e) => Err(e),
        };
        Ok(Self {
            settings,
            hardware,
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
        let mut state = self.lock();
        let there =
            if kind == "template" { state.templates.contains_key(name) } else { state.clones.contains_key(name) };
        let key = (kind, name.to_owned());
        if there || !state.reserved.insert(key.clone()) {
            return Err(DaemonError::Taken { kind, name: name.into() });
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

    /// Boots a guest and makes a template of it.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn create_template(&self, request: &CreateTemplate) -> Result<api::Template, DaemonError> {
        let hardware = self.hardware()?;
        let _reserved = self.reserve("template", &request.name)?;
        request.shape.check()?;
        if request.shape.disk != request.disk.is_some() {
            return Err(DaemonError::Invalid("a disk needs an image, and an image a shape with a disk".into()));
        }
        enough_memory(&request.shape)?;
        let (frozen, boot_ns) = boot::boot(&self.settings, &hardware.pools, request, self.cid())?;
        let tenant = rustix::process::geteuid().as_raw();
        let quota = Quota::new(tenant, request.max_clones);
        let created_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
        self.adopt(&request.name, Template { frozen, quota, created_s }, Some(boot_ns))
    }

    fn adopt(&self, name: &str, template: Template, boot_ns: Option<u64>) -> Result<api::Template, DaemonError> {
        let state = template.frozen.state.encode()?;
        let shape = template.frozen.state.shape;
        let entry = Arc::new(Entry { template, state, boot_ns, alive: AtomicU64::new(0) });
        self.lock().templates.insert(name.to_owned(), entry.clone());
        self.hardware()?.pools.keep(shape, self.settings.pool);
        Ok(entry.show(name))
    }

    /// Loads one from a directory. Each load counts its clones for itself, from the number that was saved on.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn load_template(&self, request: &LoadTemplate) -> Result<api::Template, DaemonError> {
        let hardware = self.hardware()?;
        let _reserved = self.reserve("template", &request.name)?;
        absolute(&request.directory)?;
        let template = template::load(&request.directory, &hardware.kvm)?;
        self.adopt(&request.name, template, None)
    }

    /// Saves one to a directory.
    ///
    /// # Errors
    /// [`DaemonError`].
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
        self.lock().templates.iter().map(|(name, entry)| entry.show(name)).collect()
    }

    /// Forgets one that has no clones.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn remove_template(&self, name: &str) -> Result<(), DaemonError> {
        let mut state = self.lock();
        let unknown = || DaemonError::Unknown { kind: "template", name: name.into() };
        let entry = state.templates.get(name).cloned().ok_or_else(unknown)?;
        let alive = entry.alive.load(Ordering::Acquire);
        if alive > 0 {
            return Err(DaemonError::Conflict(format!("template {name} has {alive} clones: remove them first")));
        }
        state.templates.remove(name);
        let shape = entry.shape();
        if state.templates.values().all(|other| other.shape() != shape) {
            self.hardware()?.pools.keep(shape, 0);
        }
        Ok(())
    }

    /// Makes clones: all that were asked for, or none.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn create_clones(
        self: &Arc<Self>,
        template: &str,
        request: &CreateClones,
        started: Instant,
    ) -> Result<Vec<api::Clone>, DaemonError> {
        let entry = self.entry(template)?;
        if !(1..=MAX_CLONES_AT_ONCE).contains(&request.count) {
            return Err(DaemonError::Invalid(format!("{} clones: ask for 1 to {MAX_CLONES_AT_ONCE}", request.count)));
        }
        if request.name.is_some() && request.count != 1 {
            return Err(DaemonError::Invalid("one name for several clones: leave it out, or ask for one".into()));
        }
        if request.job.len() > MAX_JOB {
            return Err(DaemonError::Invalid(format!("a job of {} bytes: {MAX_JOB} fit", request.job.len())));
        }
        let tenant = rustix::process::geteuid().as_raw();
        let numbers = entry.template.quota.take(tenant, request.count.into())?;
        let mut made = Vec::new();
        for index in numbers {
            match self.create_clone(template, &entry, request, index, started) {
                Ok(clone) => made.push(clone),
                Err(error) => {
                    self.take_back(&made);
                    return Err(error);
                }
            }
        }
        if request.wait
            && let Err(error) = made.iter().try_for_each(|clone| clone.wait_ready())
        {
            self.take_back(&made);
            return Err(error);
        }
        Ok(made.iter().map(|clone| clone.show()).collect())
    }

    fn take_back(&self, made: &[Arc<Running>]) {
        for clone in made {
            clone.stop();
            self.lock().forget(clone);
        }
    }

    fn create_clone(
        self: &Arc<Self>,
        template: &str,
        entry: &Arc<Entry>,
        request: &CreateClones,
        index: u64,
        started: Instant,
    ) -> Result<Arc<Running>, DaemonError> {
        let name = request.name.clone().unwrap_or_else(|| format!("{template}-{}", index + 1));
        let _reserved = self.reserve("clone", &name)?;
        let alive = self.count(template, entry)?;
        let renewal = renewal(&name, index, request.job.as_bytes())?;
        let (generation, cid) = (renewal.identity.generation, self.cid());
        let frozen = &entry.template.frozen;
        let fds: Vec<_> = [frozen.ram.as_fd()]
            .into_iter()
            .chain(frozen.disk.iter().flat_map(|disk| [disk.image.as_fd(), disk.overlay.as_fd()]))
            .collect();
        let claim = Claim { renewal, cid, state: entry.state.clone() };
        let pools = &self.hardware()?.pools;
        let shell = pools.take(entry.shape())?;
        let (claim, early) = match clone::claim(&shell, claim, &fds) {
            Ok(claimed) => claimed,
            Err(failure) => {
                pools.bury(shell);
                return Err(failure.into());
            }
        };
        self.clones_made.fetch_add(1, Ordering::Relaxed);
        let daemon = Arc::downgrade(self);
        let gone = move |clone: &Arc<Running>| {
            drop(alive);
            if let Some(daemon) = daemon.upgrade() {
                daemon.note_end(clone);
            }
        };
        let origin = Arc::downgrade(entry);
        let job = request.job.as_bytes().to_vec();
        let born =
            Born { name: name.clone(), template: template.into(), origin, job, cid, generation, started, claim, early };
        let clone = Running::start(shell, born, pools, gone)?;
        self.lock().clones.insert(name, clone.clone());
        Ok(clone)
    }

    /// Counts a clone of `entry`, unless that was removed since it was looked up.
    fn count(&self, template: &str, entry: &Arc<Entry>) -> Result<Alive, DaemonError> {
        let state = self.lock();
        if !state.templates.get(template).is_some_and(|named| Arc::ptr_eq(named, entry)) {
            return Err(DaemonError::Unknown { kind: "template", name: template.into() });
        }
        entry.alive.fetch_add(1, Ordering::AcqRel);
        Ok(Alive(entry.clone()))
    }

    /// Remembers that `clone` has ended, and forgets the one that did longest ago, so that a daemon doesn't grow.
    fn note_end(&self, clone: &Arc<Running>) {
        let mut state = self.lock();
        state.ended.push_back(Arc::downgrade(clone));
        if state.ended.len() > self.settings.remember
            && let Some(oldest) = state.ended.pop_front().and_then(|oldest| oldest.upgrade())
        {
            state.forget(&oldest);
        }
    }

    /// Shows one.
    ///
    /// # Errors
    /// [`DaemonError::Unknown`].
    pub fn show_clone(&self, name: &str) -> Result<api::Clone, DaemonError> {
        Ok(self.running(name)?.show())
    }

    /// Shows all.
    pub fn clones(&self) -> Vec<api::Clone> {
        self.lock().clones.values().map(|clone| clone.show()).collect()
    }

    /// Ends one and forgets it.
    ///
    /// # Errors
    /// [`DaemonError::Unknown`].
    pub fn remove_clone(&self, name: &str) -> Result<(), DaemonError> {
        let clone = self.running(name)?;
        clone.stop();
        self.lock().forget(&clone);
        Ok(())
    }

    /// Sends one back to its template, with its job, and waits until it is ready if it ever was. That makes another clone of
    /// the template, with an index of its own, and counts as one.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn rollback(&self, name: &str) -> Result<api::Clone, DaemonError> {
        let clone = self.running(name)?;
        let entry = clone.template()?;
        let was_ready = clone.show().ready_ns.is_some();
        let tenant = rustix::process::geteuid().as_raw();
        let index = entry.template.quota.take(tenant, 1)?.start;
        clone.rollback(renewal(name, index, clone.job())?)?;
        self.clones_made.fetch_add(1, Ordering::Relaxed);
        if was_ready {
            clone.wait_ready()?;
        }
        Ok(clone.show())
    }

    /// A stream to a vsock port of a clone.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn connect(&self, name: &str, port: u32) -> Result<UnixStream, DaemonError> {
        self.running(name)?.connect(port)
    }

    /// A clone's console: what it wrote, and a way to type.
    ///
    /// # Errors
    /// [`DaemonError::Unknown`].
    pub fn console(&self, name: &str) -> Result<(tokio::sync::mpsc::Receiver<Vec<u8>>, Typist), DaemonError> {
        let clone = self.running(name)?;
        Ok((clone.console(), Typist(clone)))
    }

    /// What there is.
    pub fn stats(&self) -> api::Stats {
        let state = self.lock();
        let templates: Vec<_> = state.templates.values().cloned().collect();
        let alive: Vec<_> = state.clones.values().filter(|clone| !clone.has_ended()).cloned().collect();
        // What follows reads files, and nobody needs to wait for it.
        drop(state);
        let pools = self.hardware.as_ref().ok().map(|hardware| &hardware.pools);
        let waiting = pools.map_or_else(Vec::new, |pools| pools.pids());
        api::Stats {
            templates: templates.len() as u64,
            clones: alive.len() as u64,
            clones_made: self.clones_made.load(Ordering::Relaxed),
            pools: pools.map_or_else(Vec::new, |pools| pools.stats()),
            template_bytes: templates.iter().map(|entry| entry.resident()).sum(),
            clone_bytes: alive.iter().filter_map(|clone| clone.memory()).sum(),
            shell_bytes: waiting.into_iter().filter_map(memory::added).sum(),
        }
    }

    /// What KVM can do here, found out by trying.
    pub fn host(&self) -> api::Host {
        match self.hardware() {
            Ok(hardware) => host::probe(&self.settings, &hardware.pools, self.cid()),
            Err(e) => api::Host { kvm: api::HostKvm::None, detail: e.to_string() },
        }
    }
}

/// Types on a clone's console.
#[derive(Debug, Clone)]
pub struct Typist(Arc<Running>);

impl Typist {
    /// Sends bytes.
    ///
    /// # Errors
    /// [`DaemonError::Conflict`] when the clone has ended.
    pub fn type_in(&self, bytes: &[u8]) -> Result<(), DaemonError> {
        self.0.input(bytes)
    }
}

impl Entry {
    fn shape(&self) -> Shape {
        self.template.frozen.state.shape
    }

    /// Bytes of memory that it takes.
    fn resident(&self) -> u64 {
        let frozen = &self.template.frozen;
        let files = [Some(&frozen.ram), frozen.disk.as_ref().map(|disk| &disk.overlay)];
        let blocks = |file| rustix::fs::fstat(file).map_or(0, |stat| stat.st_blocks.unsigned_abs());
        files.into_iter().flatten().map(blocks).sum::<u64>() * 512
    }

    fn show(&self, name: &str) -> api::Template {
        api::Template {
            name: name.into(),
            shape: self.shape(),
            created_s: self.template.created_s,
            clones_made: self.template.quota.made(),
            clones_alive: self.alive.load(Ordering::Relaxed),
            max_clones: self.template.quota.max(),
            resident_bytes: self.resident(),
            boot_ns: self.boot_ns,
        }
    }
}

fn renewal(name: &str, index: u64, job: &[u8]) -> Result<Renewal, DaemonError> {
    let identity = CloneIdentity { name: name.into(), index, generation: random()?, job: job.to_vec() };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(Renewal { identity, realtime_ns: clone::nanoseconds(now), entropy: random()? })
}

fn random<const N: usize>() -> Result<[u8; N], DaemonError> {
    let mut bytes = [0; N];
    // Up to 256 bytes come whole.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| DaemonError::System("get random bytes", e.into()))?;
    Ok(bytes)
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
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let available = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let asked = u64::from(shape.memory_mib);
    match available.map(|kib| kib / 1024) {
        Some(available) if asked > available => Err(DaemonError::Memory { asked, available }),
        _ => Ok(()),
    }
}
