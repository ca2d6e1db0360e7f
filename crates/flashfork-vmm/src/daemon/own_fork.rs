//! Guests that fork themselves: whoever makes a clone says how often it may.

use super::{
	Daemon,
	clone::Running,
	clones::Parent,
	error::DaemonError,
	fork::{How, branch},
};
use crate::{
	state::StateError,
	store::{self, Held, Kind, Store},
};
use flashfork_proto::{api::CreateClones, shell::Ended};
use std::{
	sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
	thread,
	time::Instant,
};

/// How often a clone may still fork itself, one number for it and all that comes of that. A fork that failed counts: a
/// shell taken over may try for ever.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnForks {
	budget: Arc<Budget>,
	daemon: Weak<Daemon>,
}

#[derive(Debug, Default)]
pub(super) struct Budget {
	left: Mutex<u32>,
	held: OnceLock<Arc<Held>>,
}

impl OwnForks {
	pub(super) fn new(daemon: &Arc<Daemon>, number: u32) -> Self {
		Self::of(daemon, Arc::new(Budget { left: Mutex::new(number), held: OnceLock::new() }))
	}

	pub(super) fn of(daemon: &Arc<Daemon>, budget: Arc<Budget>) -> Self {
		Self { budget, daemon: Arc::downgrade(daemon) }
	}

	/// Has `store` know the number from now on, if any; gives what it is known as there.
	pub(super) fn hold(&self, store: &Arc<Store>) -> Option<u64> {
		let Budget { left, held } = &*self.budget;
		let left = left.lock().unwrap_or_else(PoisonError::into_inner);
		if *left > 0 {
			held.get_or_init(|| store.note(Kind::Budget, store::seal(&*left)));
		}
		held.get().map(|held| held.id())
	}

	/// Takes one of them, and gives who does it.
	pub(super) fn take(&self) -> Option<Arc<Daemon>> {
		let mut left = self.budget.left.lock().unwrap_or_else(PoisonError::into_inner);
		*left = left.checked_sub(1)?;
		if let Some(held) = self.budget.held.get() {
			held.change(Kind::Budget, store::seal(&*left));
		}
		self.daemon.upgrade()
	}
}

impl Budget {
	/// What an earlier daemon has left.
	pub(super) fn adopt(record: &[u8], held: Arc<Held>) -> Result<Self, StateError> {
		Ok(Self { left: Mutex::new(store::open(record)?), held: held.into() })
	}
}

/// Forks a clone that has given the fork signal, in the background. What fails is the clone's trouble, and it goes on.
pub(super) fn begin(daemon: Arc<Daemon>, clone: &Arc<Running>) {
	let (own, generation) = (clone.clone(), clone.generation());
	let forks = move || {
		if let Err(why) = daemon.fork_itself(&own) {
			own.has_not_forked(generation, &why.to_string());
		}
	};
	if let Err(error) = thread::Builder::new().name("own fork".into()).spawn(forks) {
		clone.end(Ended::Failed(format!("its guest waits at a fork signal: {error}")));
	}
}

impl Daemon {
	fn fork_itself(self: &Arc<Self>, clone: &Arc<Running>) -> Result<(), DaemonError> {
		let started = Instant::now();
		let origin = clone.template()?;
		let job = String::from_utf8_lossy(clone.job()).into_owned();
		let request = CreateClones { count: 1, name: None, job, wait: false, forks: 0, disks: Vec::new() };
		let template = clone.template_name();
		let announced = self.announce(&origin.template.quota, template, &request, Arc::default())?;
		origin.template.frozen.check_images()?;
		clone.disks().check()?;
		let (entry, _) = branch(clone, &origin, How::Itself)?;
		let parent = Parent { entry, template, forked_from: Some(clone.name()), forks: Some(clone.own_forks()) };
		self.clones_of(&parent, announced, started).map(drop)
	}
}
