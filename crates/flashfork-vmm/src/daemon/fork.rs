//! Live forks: a clone that runs becomes a template, and runs on.

use super::Daemon;
use super::agent::{self, Line};
use super::clone::{Forking, Running};
use super::clones::{self, Parent};
use super::error::DaemonError;
use super::templates::Entry;
use crate::devices::virtio::blk::FrozenDisk;
use crate::machine::Frozen;
use crate::memory::{LayerError, Layered, delta};
use crate::pool::ShellFailure;
use crate::state::MachineState;
use crate::template::Template;
use flashfork::Headroom;
use flashfork_proto::agent::PORT;
use flashfork_proto::api::{self, ForkClone, MAX_CLONES_AT_ONCE};
use flashfork_proto::shell::Pause;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

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
        };
        if request.count > 0 {
            clones::check(&clones)?;
        }
        let clone = self.running(name)?;
        let origin = clone.template()?;
        let _reserved = request.template.as_deref().map(|name| self.reserve("template", name)).transpose()?;
        let (entry, pause) = self.branch(&clone, &origin, request.now)?;
        let template = match &request.template {
            Some(name) => {
                self.publish(name, &entry)?;
                Some(entry.show(name))
            }
            None => None,
        };
        let clones = match request.count {
            0 => Ok(Vec::new()),
            _ => match &request.template {
                Some(name) => self.create_clones(name, &clones, started),
                None => {
                    let parent = Parent { entry, template: clone.template_name(), forked_from: Some(name) };
                    self.clones_of(&parent, &clones, started)
                }
            },
        };
        if let (Err(_), Some(name)) = (&clones, &request.template) {
            // All that was asked for, or none of it. Somebody may have made clones of it meanwhile.
            let _ = self.remove_template(name);
        }
        Ok(api::Forked { pause, template, clones: clones? })
    }

    /// Makes a template of a clone that runs.
    fn branch(&self, clone: &Running, origin: &Arc<Entry>, now: bool) -> Result<(Arc<Entry>, Pause), DaemonError> {
        let Frozen { ram, disk, state } = &origin.template.frozen;
        enough_memory(clone)?;
        let deltas = [Some(("flashfork:fork", ram)), disk.as_ref().map(|disk| ("flashfork:disk-fork", &disk.overlay))];
        let deltas: Vec<OwnedFd> = deltas
            .into_iter()
            .flatten()
            .map(|(name, below)| delta::create(name, below.length()))
            .collect::<Result<_, _>>()
            .map_err(|e| DaemonError::Layers(e.into()))?;
        let mut forking = clone.begin_fork()?;
        let room = deltas.iter().map(|file| rustix::fs::fstat(file).map_or(0, |stat| stat.st_size.unsigned_abs()));
        forking.promise(origin.disk_limit(), room.sum())?;
        let mebibytes = u64::from(state.shape.memory_mib) + (origin.disk_limit() >> 20);
        let patience = COPY + COPY_MB * u32::try_from(mebibytes).unwrap_or(u32::MAX);
        forking.copy(&deltas.iter().map(AsFd::as_fd).collect::<Vec<_>>(), patience)?;
        let (encoded, pause) = if now { forking.branch(patience)? } else { by_agent(clone, &forking, patience)? };
        forking.note_copied(deltas.iter().map(super::templates::bytes).sum());
        drop(forking);
        // What a shell sent is checked like what anybody sends: its guest may have taken it over.
        let frozen_state = MachineState::decode(&encoded)?;
        if frozen_state.shape != state.shape {
            return Err(ShellFailure::Unexpected.into());
        }
        let mut deltas = deltas.into_iter();
        let mut over = |below: &Layered| match deltas.next() {
            Some(delta) => below.with(delta),
            None => Err(LayerError::Extents),
        };
        let ram = over(ram)?;
        let disk = match disk {
            Some(FrozenDisk { image, overlay }) => {
                let image = image.try_clone().map_err(|e| DaemonError::System("duplicate a descriptor", e))?;
                Some(FrozenDisk { image, overlay: over(overlay)? })
            }
            None => None,
        };
        let template = Template {
            frozen: Frozen { ram, disk, state: Arc::new(frozen_state) },
            quota: origin.template.quota.clone(),
            created_s: super::templates::now_s(),
        };
        Ok((Arc::new(Entry::forked(template, clone.name())?), pause))
    }
}

/// Has the guest's agent make all else in it stand still and give the fork signal, and waits until it goes on.
fn by_agent(clone: &Running, forking: &Forking<'_>, patience: Duration) -> Result<(Vec<u8>, Pause), DaemonError> {
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
    forking.wait_for_signal(|| match receiver.try_recv() {
        Ok(Err(why)) => Some(why),
        Ok(Ok(())) => Some("ended its signal without having given it".into()),
        Err(_) => None,
    })?;
    let branched = forking.branch(patience)?;
    match receiver.recv_timeout(GO_ON) {
        Ok(Ok(())) => Ok(branched),
        Ok(Err(why)) => Err(DaemonError::Guest(format!("clone {} was forked, and {why}", clone.name()))),
        Err(_) => Err(DaemonError::Guest(format!(
            "clone {} was forked, and did not say within {} s that it goes on",
            clone.name(),
            GO_ON.as_secs()
        ))),
    }
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
