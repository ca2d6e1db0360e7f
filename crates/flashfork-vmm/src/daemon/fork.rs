//! Live forks: a clone that runs becomes a template, and runs on.

use super::{
	Daemon,
	agent::{self, Line},
	clone::{Delta, Forking, LOOK, Running},
	clones::Parent,
	disks::Attached,
	error::DaemonError,
	templates::Entry,
};
use crate::{
	devices::virtio::blk::FrozenDisk,
	machine::Frozen,
	memory::{LayerError, Layered, MemfdError, delta},
	pool::{Origin, ShellFailure},
	state::MachineState,
	template::Template,
};
use flashfork::Headroom;
use flashfork_proto::{
	agent::PORT,
	api::{self, ForkClone, MAX_CLONES_AT_ONCE},
	shell::{Ended, Pause},
};
use rustix::system::sysinfo;
use std::{
	iter,
	sync::{
		Arc,
		mpsc::{self, RecvTimeoutError},
	},
	thread,
	time::{Duration, Instant},
};

/// How long a shell may take to copy what its guest has written, and so much longer for each MB of memory, and of what
/// it may write to its disk.
const COPY: Duration = Duration::from_secs(60);
const COPY_MB: Duration = Duration::from_millis(20);

/// How long a guest may take to go on after its fork.
const GO_ON: Duration = Duration::from_secs(30);

impl Daemon {
	/// Forks a clone while it runs, and makes clones of what it was at that moment.
	///
	/// # Errors
	/// [`DaemonError`]; the clone goes on all the same.
	pub fn fork_clone(
		self: &Arc<Self>,
		name: &str,
		request: &ForkClone,
		started: Instant,
	) -> Result<api::Forked, DaemonError> {
		if request.count == 0 && request.name.is_some() {
			return Err(DaemonError::Invalid("a name for no clone: leave it out, or ask for one".into()));
		}
		if request.count > MAX_CLONES_AT_ONCE || request.count == 0 && request.template.is_none() {
			return Err(DaemonError::Invalid(format!(
				"{} clones: ask for 1 to {MAX_CLONES_AT_ONCE}, or for a template with a name and none",
				request.count
			)));
		}
		let clones = api::CreateClones {
			count: request.count,
			name: request.name.clone(),
			job: request.job.clone(),
			wait: request.wait && !request.now,
			forks: 0,
			disks: request.disks.clone(),
		};
		if request.disks.iter().any(|disk| disk.mount.is_some() && request.now) {
			return Err(DaemonError::Invalid(
				"a disk is mounted by the agent, which isn't asked now: leave out --now, or the place".into(),
			));
		}
		let clone = self.running(name)?;
		let origin = clone.template()?;
		if request.now && origin.template.frozen.state.forked && has_agent(&clone) {
			return Err(DaemonError::Conflict(format!(
				"clone {name} has an agent, which makes its clones others than it is: leave out --now"
			)));
		}
		let _reserved = request.template.as_deref().map(|name| self.reserve("template", name)).transpose()?;
		let template = request.template.as_deref().unwrap_or(clone.template_name());
		// Before the guest is copied and stands still: whatever can be refused.
		origin.template.frozen.check_images()?;
		clone.disks().check()?;
		let taken = origin.template.frozen.disks.len() + clone.disks().disks.len();
		let disks = Attached::open(&clones, &origin.shape(), taken)?;
		let announce = || self.announce(&origin.template.quota, template, &clones, disks);
		let announced = (request.count > 0).then(announce).transpose()?;
		let how = if request.now { How::Now } else { How::ByAgent };
		let (entry, pause) = branch(&clone, &origin, how)?;
		let forked_from = request.template.is_none().then_some(name);
		let parent = Parent { entry: entry.clone(), template, forked_from, forks: None };
		let shown = match &request.template {
			Some(name) => {
				self.publish(name, &entry)?;
				if request.count == 0 {
					// Memory of many extents takes long to map: that is done before somebody waits for it.
					let origin: Arc<dyn Origin> = entry.clone();
					self.hardware()?.pools.offer(entry.shape(), &origin);
				}
				Some(entry.show(name))
			}
			None => None,
		};
		let clones = announced.map_or(Ok(Vec::new()), |announced| self.clones_of(&parent, announced, started));
		if let (Err(_), Some(name)) = (&clones, &request.template) {
			// All that was asked for, or none of it. Clones that somebody has made of it meanwhile go on.
			self.withdraw(name, &entry)?;
		}
		Ok(api::Forked { pause, template: shown, clones: clones? })
	}
}

/// Whether an agent answers. Who never said that it is ready isn't asked: it may never answer.
fn has_agent(clone: &Running) -> bool {
	clone.show().ready_ns.is_some() && clone.connect(PORT).is_ok_and(|stream| Line::new(stream).greet().is_ok())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
	/// At the fork signal, which its agent gives when it is asked.
	ByAgent,
	/// Wherever it is.
	Now,
	/// At the fork signal, which it has given by itself.
	Itself,
}

/// How long a shell may take to copy what its guest has written: no more than its disks hold, nor this host.
fn patience(ram: u64, may_write: u64, disks: u64) -> Duration {
	let host = sysinfo();
	let written = ram + may_write.min(disks);
	let most = written.min(host.totalram.saturating_mul(host.mem_unit.into()));
	COPY + COPY_MB * u32::try_from(most >> 20).unwrap_or(u32::MAX)
}

pub(super) fn branch(clone: &Arc<Running>, origin: &Arc<Entry>, how: How) -> Result<(Arc<Entry>, Pause), DaemonError> {
	let Frozen { ram, disks, state } = &origin.template.frozen;
	// As it sees them, each with what its guest may write to it.
	let disks: Vec<_> = disks.iter().chain(&clone.disks().disks).collect();
	let states: Vec<_> = state.disks().into_iter().chain(clone.disks().states()).collect();
	let may_write = origin.disk_limit().saturating_add(clone.disks().limit());
	enough_memory(clone)?;
	let new = |name, bytes| delta::create(name, bytes).map(Arc::new).map_err(|e| DaemonError::Layers(e.into()));
	let of_ram = Delta { file: new("flashfork:fork", ram.length())?, room: delta::length(ram.length()) };
	let of_disks = disks.iter().zip(&states).map(|(disk, state)| {
		let bytes = disk.overlay.length();
		Ok::<_, DaemonError>(Delta { file: new("flashfork:disk-fork", bytes)?, room: room(bytes, state.limit()) })
	});
	let deltas: Vec<Delta> = iter::once(Ok(of_ram)).chain(of_disks).collect::<Result<_, _>>()?;
	let mut forking = clone.begin_fork(how == How::Itself)?;
	forking.promise(may_write, &deltas)?;
	let patience = patience(ram.length(), may_write, disks.iter().map(|disk| disk.overlay.length()).sum());
	forking.copy(&deltas, patience)?;
	let (encoded, pause) = match how {
		How::ByAgent => by_agent(clone, &forking, &deltas, patience)?,
		How::Now | How::Itself => forking.branch(how == How::Itself, &deltas, patience)?,
	};
	forking.watch(&deltas)?;
	drop(forking);
	// What a shell sent is checked like what anybody sends: its guest may have taken it over.
	let frozen_state = MachineState::decode(&encoded)?;
	if frozen_state.shape != state.shape || frozen_state.disks() != states {
		return Err(ShellFailure::Unexpected.into());
	}
	let mut deltas = deltas.into_iter();
	let mut over = |below: &Layered| {
		let delta = deltas.next().ok_or(LayerError::Extents)?;
		below.with(delta.file, delta.room / 4096).inspect_err(|error| match error {
			// It said that it has none: what it could go on writing to would have no end.
			LayerError::File(MemfdError::Seal(_)) => {
				clone.end(Ended::Failed("it keeps what was copied of it for a fork mapped".into()));
			}
			LayerError::Copied => clone.end(Ended::Failed(error.to_string())),
			_ => {}
		})
	};
	let ram = over(ram)?;
	let of_disk = |FrozenDisk { image, overlay, seen, .. }: &FrozenDisk| {
		let image = image.try_clone().map_err(|e| DaemonError::System("duplicate a descriptor", e))?;
		Ok::<_, DaemonError>(FrozenDisk { image, overlay: over(overlay)?, attached: None, seen: seen.clone() })
	};
	let disks = disks.into_iter().map(of_disk).collect::<Result<_, _>>()?;
	let template = Template {
		frozen: Frozen { ram, disks, state: Arc::new(frozen_state) },
		quota: origin.template.quota.clone(),
		created_s: super::templates::now_s(),
	};
	Ok((Arc::new(Entry::forked(template, clone.name())?), pause))
}

/// Has the guest's agent make all else in it stand still and give the fork signal, and waits until it goes on.
fn by_agent(
	clone: &Arc<Running>,
	forking: &Forking<'_>,
	deltas: &[Delta],
	patience: Duration,
) -> Result<(Vec<u8>, Pause), DaemonError> {
	let line = Line::new(clone.connect(PORT)?);
	let none = |why| {
		DaemonError::Guest(format!(
			"clone {} has no agent that answers: {why}; fork it wherever it is with --now",
			clone.name()
		))
	};
	let client = line.greet().map_err(none)?;
	let (sender, receiver) = mpsc::channel::<Result<(), String>>();
	thread::Builder::new()
		.name("fork".into())
		.spawn(move || {
			// Who asked may have given up.
			let _ = sender.send(agent::signal_fork(client));
		})
		.map_err(|e| DaemonError::System("start a thread", e))?;
	forking.wait_for_signal(deltas, || match receiver.try_recv() {
		Ok(Err(why)) => Some(why),
		Ok(Ok(())) => Some("ended its signal without having given it".into()),
		Err(_) => None,
	})?;
	let branched = forking.branch(true, deltas, patience)?;
	let deadline = Instant::now() + GO_ON;
	loop {
		let why = match receiver.recv_timeout(LOOK) {
			Ok(Ok(())) => return Ok(branched),
			Ok(Err(why)) => why,
			Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {
				forking.watch(deltas)?;
				continue;
			}
			Err(_) => format!("did not say within {} s that it goes on", GO_ON.as_secs()),
		};
		return Err(DaemonError::Guest(format!("clone {} was forked, and {why}", clone.name())));
	}
}

/// What a fork may copy of an overlay of `bytes`, of which a guest may write `limit`: that, and where it and we note
/// which it was. Of a large disk that is far less than all.
fn room(bytes: u64, limit: u64) -> u64 {
	delta::length(bytes).min(limit.saturating_add(3 * delta::bits(bytes)))
}

/// Whether a shell has copied no more than its guest may have written.
pub(super) fn check(deltas: &[Delta]) -> Result<(), ShellFailure> {
	if deltas.iter().all(|delta| delta::fits(&delta.file, delta.room)) { Ok(()) } else { Err(ShellFailure::Copied) }
}

/// What a clone has written exists twice afterwards.
fn enough_memory(clone: &Running) -> Result<(), DaemonError> {
	let headroom = Headroom::now().map_err(|e| DaemonError::System("read how much memory is available", e))?;
	let asked = clone.memory().unwrap_or(0);
	if asked <= headroom.available {
		return Ok(());
	}
	Err(DaemonError::ForkMemory { asked: asked >> 20, available: headroom.available >> 20, limit: headroom.limit })
}

#[cfg(test)]
pub(super) mod tests;
