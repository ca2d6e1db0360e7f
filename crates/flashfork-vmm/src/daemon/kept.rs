//! What is written down of templates and clones, and how the next daemon takes them over.

use super::{
	Daemon,
	claim::Claimed,
	clone::{Born, Running},
	clones::Alive,
	disks::Attached,
	error::DaemonError,
	own_fork::{Budget, OwnForks},
	templates::Entry,
};
use crate::{
	devices::virtio::blk::{FrozenDisk, Seen},
	machine::Frozen,
	memory::Layered,
	pool::Shell,
	state::MachineState,
	store::{self, Descriptor, Held, Kept, Kind},
	template::{Quota, Template},
};
use flashfork_proto::{
	Generation,
	shape::Shape,
	shell::{BootDisk, Channel, ClaimTimes, Ended, Extent},
	signal::AttachedDisk,
};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::{
	collections::BTreeMap,
	io, iter,
	os::fd::OwnedFd,
	path::PathBuf,
	sync::{Arc, Weak, atomic::Ordering},
	thread,
	time::{Duration, Instant},
};

/// Descriptors that are to be left when all is taken over, for what is asked for then.
const ROOM: usize = 64;

/// A template, beside its files: of RAM, then of each disk.
#[derive(Serialize, Deserialize)]
struct TemplateRecord {
	name: Option<String>,
	created_s: u64,
	made_ns: u64,
	boot_ns: Option<u64>,
	forked_from: Option<String>,
	quota: u64,
	#[serde(with = "serde_bytes")]
	state: Vec<u8>,
	ram: Vec<Extent>,
	disks: Vec<Disk>,
}

/// A disk, beside its files: the image, and what was written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Disk {
	overlay: Vec<Extent>,
	attached: Option<BootDisk>,
	seen: Option<Seen>,
}

/// What doesn't change of a clone, beside its process, its channel and the files of its disks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Clone {
	pub(super) name: String,
	pub(super) template: String,
	pub(super) forked_from: Option<String>,
	pub(super) made_ns: u64,
	/// What its template is held as.
	pub(super) origin: Option<u64>,
	pub(super) budget: Option<u64>,
	#[serde(with = "serde_bytes")]
	pub(super) job: Vec<u8>,
	pub(super) disks: Vec<Disk>,
	pub(super) told: Vec<AttachedDisk>,
	pub(super) cid: u32,
	pub(super) pid: u32,
	pub(super) shape: Shape,
	pub(super) cgroup: Option<PathBuf>,
}

/// What does.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CloneRecord {
	pub(super) clone: Clone,
	/// On the clock that [`monotonic_ns`] gives.
	pub(super) started_ns: u64,
	pub(super) generation: Generation,
	pub(super) claim: ClaimTimes,
	pub(super) first_exit_ns: u64,
	pub(super) ready_ns: Option<u64>,
	pub(super) trouble: Option<String>,
	pub(super) rolls_back: bool,
	pub(super) ended: Option<Ended>,
}

impl Disk {
	pub(super) fn of(disk: &FrozenDisk) -> Self {
		let seen = disk.seen.as_deref().cloned();
		Self { overlay: disk.overlay.extents().to_vec(), attached: disk.attached.clone(), seen }
	}

	fn adopt(self, files: &mut Files<'_>) -> Result<FrozenDisk, DaemonError> {
		let image = files.next()?.try_clone().map_err(descriptor)?;
		let overlay = files.memory(self.overlay)?;
		Ok(FrozenDisk { image, overlay, attached: self.attached, seen: self.seen.map(Arc::new) })
	}
}

fn descriptor(e: io::Error) -> DaemonError {
	DaemonError::System("duplicate a descriptor", e)
}

pub(super) fn template(entry: &Entry, name: Option<&str>, quota: u64) -> Vec<u8> {
	let Frozen { ram, disks, .. } = &entry.template.frozen;
	store::seal(&TemplateRecord {
		name: name.map(str::to_owned),
		created_s: entry.template.created_s,
		made_ns: entry.made_ns,
		boot_ns: entry.boot_ns,
		forked_from: entry.forked_from.clone(),
		quota,
		state: entry.origin.state.clone(),
		ram: ram.extents().to_vec(),
		disks: disks.iter().map(Disk::of).collect(),
	})
}

/// Files for who holds them, too.
pub(super) fn shared(files: &[Arc<OwnedFd>]) -> Vec<Arc<dyn Descriptor>> {
	files.iter().cloned().map(|file| file as Arc<dyn Descriptor>).collect()
}

/// Those of a disk.
pub(super) fn of_disk(disk: &FrozenDisk) -> Result<Vec<Arc<dyn Descriptor>>, DaemonError> {
	let image = Arc::new(disk.image.try_clone().map_err(descriptor)?);
	Ok([shared(&[image]), shared(disk.overlay.files())].concat())
}

/// On a clock that goes on from one daemon to the next.
pub(super) fn monotonic_ns() -> u64 {
	let now = clock_gettime(ClockId::Monotonic);
	now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Files that are open at the same time, by device, inode and change: where the kernel gives inodes' numbers of 32 bits
/// that come again while an older one is there (hugetlbfs), it takes longer than a change of the clock. One changed
/// meanwhile, as only a disk's image can be, is two.
type Known = BTreeMap<(u64, u64, i64, u64), Arc<OwnedFd>>;

/// Files that came with something that is held, one after the other.
struct Files<'a> {
	all: std::vec::IntoIter<OwnedFd>,
	taken: Vec<Arc<OwnedFd>>,
	/// What several have in common is one file here, too.
	known: &'a mut Known,
}

impl<'a> Files<'a> {
	fn of(descriptors: Vec<OwnedFd>, known: &'a mut Known) -> Self {
		Self { all: descriptors.into_iter(), taken: Vec::new(), known }
	}

	fn next(&mut self) -> Result<Arc<OwnedFd>, DaemonError> {
		let file = self.all.next().ok_or_else(|| missing("a descriptor"))?;
		let stat = rustix::fs::fstat(&file).map_err(|e| descriptor(e.into()))?;
		let key = (stat.st_dev, stat.st_ino, stat.st_ctime, stat.st_ctime_nsec);
		let file = self.known.entry(key).or_insert_with(|| Arc::new(file)).clone();
		self.taken.push(file.clone());
		Ok(file)
	}

	fn memory(&mut self, extents: Vec<Extent>) -> Result<Layered, DaemonError> {
		let count = extents.iter().map(|extent| usize::from(extent.file) + 1).max().unwrap_or(1);
		let files = (0..count).map(|_| self.next()).collect::<Result<_, _>>()?;
		let memory = Layered::shared(files, extents);
		memory.check(memory.length())?;
		Ok(memory)
	}

	fn disks(&mut self, disks: Vec<Disk>) -> Result<Vec<FrozenDisk>, DaemonError> {
		disks.into_iter().map(|disk| disk.adopt(self)).collect()
	}
}

fn missing(what: &str) -> DaemonError {
	DaemonError::Conflict(format!("{what} is missing"))
}

/// All that was left, as far as it has been looked at.
#[derive(Default)]
struct Found {
	files: Known,
	quotas: BTreeMap<u64, Arc<Quota>>,
	budgets: BTreeMap<u64, Arc<Budget>>,
	templates: BTreeMap<u64, (Option<String>, Arc<Entry>)>,
	clones: Vec<Arc<Running>>,
	roll_back: Vec<String>,
}

impl Daemon {
	/// Takes over what an earlier daemon has left. What can't be by any is ended, and `say` is told why.
	///
	/// # Errors
	/// [`DaemonError::Kvm`] and [`DaemonError::Left`]: then all of it is left to the next, and this one is to end.
	pub fn take_over(self: &Arc<Self>, mut kept: Vec<Kept>, say: fn(&str)) -> Result<(), DaemonError> {
		if kept.is_empty() {
			return Ok(());
		}
		// Else what is dropped would be no more.
		self.hardware().inspect_err(|_| self.store.leave())?;
		let wait = |why| {
			self.store.leave();
			DaemonError::Left(Box::new(why))
		};
		let room: io::Result<Vec<_>> = iter::repeat_with(|| self.store.leash()).take(ROOM).collect();
		let room = room.map_err(|e| wait(descriptor(e)))?;
		let order = [Kind::Quota, Kind::Budget, Kind::Template, Kind::Clone, Kind::Ended];
		kept.sort_by_key(|kept| (order.iter().position(|kind| *kind == kept.kind), kept.held.id()));
		let mut found = Found::default();
		for Kept { held, kind, record, descriptors } in kept {
			let id = held.id();
			let taken = match kind {
				Kind::Quota => Quota::adopt(&record, held.clone()).map_err(DaemonError::from).map(|quota| {
					found.quotas.insert(id, Arc::new(quota));
				}),
				Kind::Budget => Budget::adopt(&record, held.clone()).map_err(DaemonError::from).map(|budget| {
					found.budgets.insert(id, Arc::new(budget));
				}),
				Kind::Template => found.template(held.clone(), &record, descriptors),
				Kind::Clone | Kind::Ended => self.adopt_clone(&mut found, held.clone(), kind, &record, descriptors),
				Kind::Passing | Kind::Leash => Ok(()),
			};
			match taken {
				Ok(()) => {}
				Err(why @ DaemonError::System(..)) => return Err(wait(why)),
				Err(why) => {
					held.kill(None);
					let what = if kind == Kind::Template { "template" } else { "clone" };
					say(&format!("a {what} of an earlier daemon can't be taken over and ends: {why}"));
				}
			}
		}
		drop(room);
		let Found { templates, clones, roll_back, .. } = found;
		for (name, entry) in templates.values() {
			if let Some(name) = name {
				self.lock().templates.insert(name.clone(), entry.clone());
				self.hardware()?.pools.keep(entry.shape(), self.settings.pool);
			}
			for clone in clones.iter().filter(|clone| entry.is_forked_from(clone)) {
				let below: Vec<_> =
					clone.template().iter().flat_map(|origin| origin.files()).map(Arc::as_ptr).collect();
				let own = entry.files().filter(|file| !below.contains(&Arc::as_ptr(file)));
				clone.has_copied(own.map(Arc::downgrade));
			}
		}
		for name in roll_back {
			let daemon = self.clone();
			let again = move || {
				// The clone says so.
				let _ = daemon.rollback(&name);
			};
			let started = thread::Builder::new().name("rollback".into()).spawn(again);
			started.map_err(|e| wait(DaemonError::System("start a thread", e)))?;
		}
		Ok(())
	}

	fn adopt_clone(
		self: &Arc<Self>,
		found: &mut Found,
		held: Arc<Held>,
		kind: Kind,
		record: &[u8],
		descriptors: Vec<OwnedFd>,
	) -> Result<(), DaemonError> {
		let record: CloneRecord = store::open(record)?;
		let known = record.clone.clone();
		self.next_cid.fetch_max(known.cid + 1, Ordering::Relaxed);
		let origin = known.origin.and_then(|origin| found.templates.get(&origin)).map(|(_, entry)| entry.clone());
		let budget = known.budget.and_then(|budget| found.budgets.get(&budget));
		let since = Duration::from_nanos(monotonic_ns().saturating_sub(record.started_ns));
		let (generation, times, rolls_back) = (record.generation, record.claim, record.rolls_back);
		let mut born = Born {
			name: known.name.clone(),
			template: known.template,
			forked_from: known.forked_from,
			origin: origin.as_ref().map_or_else(Weak::new, Arc::downgrade),
			alive: None,
			own_forks: budget.map_or_else(|| OwnForks::new(self, 0), |budget| OwnForks::of(self, budget.clone())),
			job: known.job,
			disks: Arc::default(),
			cid: known.cid,
			started: Instant::now().checked_sub(since).unwrap_or_else(Instant::now),
			past: Some(record),
		};
		if kind == Kind::Ended {
			let clone = Running::ended(born, generation, times, (known.pid, known.shape), held);
			self.lock().clones.insert(known.name, clone.clone());
			self.note_end(&clone);
			return Ok(());
		}
		let origin = origin.ok_or_else(|| missing("its template"))?;
		let mut files = Files::of(descriptors, &mut found.files);
		// No two have these in common, whatever their inodes are.
		let mut own = || files.all.next().ok_or_else(|| missing("a descriptor"));
		let (process, channel) = (Arc::new(own()?), Arc::new(Channel::new(own()?)));
		born.disks = Arc::new(Attached { disks: files.disks(known.disks)?, told: known.told });
		held.adopt([vec![process.clone(), channel.clone() as Arc<dyn Descriptor>], shared(&files.taken)].concat());
		let shell = Shell::adopt(held, known.pid, process, channel, known.shape, known.cgroup);
		let claimed = Claimed { shell, generation, times, early: Vec::new() };
		born.alive = Some(Alive::of(&origin));
		let clone = Running::start(claimed, born, &self.hardware()?.pools, self.at_end())?;
		found.roll_back.extend(rolls_back.then(|| known.name.clone()));
		found.clones.push(clone.clone());
		self.lock().clones.insert(known.name, clone);
		Ok(())
	}
}

impl Found {
	fn template(&mut self, held: Arc<Held>, record: &[u8], descriptors: Vec<OwnedFd>) -> Result<(), DaemonError> {
		let record: TemplateRecord = store::open(record)?;
		let quota = self.quotas.get(&record.quota).ok_or_else(|| missing("its number of clones"))?.clone();
		let mut files = Files::of(descriptors, &mut self.files);
		let (ram, disks) = (files.memory(record.ram)?, files.disks(record.disks)?);
		held.adopt(shared(&files.taken));
		let state = Arc::new(MachineState::decode(&record.state)?);
		let template = Template { frozen: Frozen { ram, disks, state }, quota, created_s: record.created_s };
		let mut entry = Entry::new(template, record.boot_ns, record.forked_from)?;
		entry.made_ns = record.made_ns;
		let id = held.id();
		// Nobody else does.
		let _ = entry.held.set(held);
		self.templates.insert(id, (record.name, Arc::new(entry)));
		Ok(())
	}
}
