//! Clones: made, shown, rolled back, removed; all of them, where `clone` is about one.

use super::{
	Daemon, Reserved,
	claim::claim,
	clone::{Born, Running},
	disks::Attached,
	error::DaemonError,
	own_fork::OwnForks,
	templates::Entry,
};
use crate::{
	pool::{Claims, Origin},
	template::{Numbers, Quota},
};
use flashfork_proto::{
	agent::{self, CloneIdentity},
	api::{self, CreateClones, MAX_CLONES_AT_ONCE},
	shell::Renewal,
	signal::AttachedDisk,
};
use std::{
	os::unix::net::UnixStream,
	sync::{Arc, atomic::Ordering},
	time::Instant,
};

/// Whether such clones can be made at all.
pub(super) fn check(request: &CreateClones) -> Result<(), DaemonError> {
	if !(1..=MAX_CLONES_AT_ONCE).contains(&request.count) {
		return Err(DaemonError::Invalid(format!("{} clones: ask for 1 to {MAX_CLONES_AT_ONCE}", request.count)));
	}
	if request.name.is_some() && request.count != 1 {
		return Err(DaemonError::Invalid("one name for several clones: leave it out, or ask for one".into()));
	}
	Ok(())
}

/// What clones are made of.
pub(super) struct Parent<'a> {
	pub(super) entry: Arc<Entry>,
	/// Its name, or if it has none that of the template that its ancestors were cloned from. Its clones are called
	/// after it, with their numbers, which are never given twice.
	pub(super) template: &'a str,
	/// If it has no name: the clone forked to make it.
	pub(super) forked_from: Option<&'a str>,
	/// Of a clone that forks itself: what it may still, which is its clones', too.
	pub(super) forks: Option<OwnForks>,
}

/// Clones that can be made: their numbers and names are nobody else's.
pub(super) struct Announced<'a> {
	request: &'a CreateClones,
	disks: Arc<Attached>,
	numbers: Numbers,
	names: Vec<Reserved<'a>>,
}

/// A clone that keeps its template from being removed, from before its claim to its end or removal.
#[derive(Debug)]
pub(super) struct Alive(Arc<Entry>);

impl Alive {
	pub(super) fn of(entry: &Arc<Entry>) -> Self {
		entry.alive.fetch_add(1, Ordering::AcqRel);
		Self(entry.clone())
	}
}

impl Drop for Alive {
	fn drop(&mut self) {
		self.0.alive.fetch_sub(1, Ordering::AcqRel);
	}
}

impl Daemon {
	/// Makes clones: all that were asked for, or none.
	pub fn create_clones(
		self: &Arc<Self>,
		template: &str,
		request: &CreateClones,
		started: Instant,
	) -> Result<Vec<api::Clone>, DaemonError> {
		let entry = self.entry(template)?;
		let disks = Attached::open(request, &entry.shape(), entry.template.frozen.disks.len())?;
		let announced = self.announce(&entry.template.quota, template, request, disks)?;
		self.clones_of(&Parent { entry, template, forked_from: None, forks: None }, announced, started)
	}

	/// Takes what clones of `template` need that only one can have.
	pub(super) fn announce<'a>(
		&'a self,
		quota: &Arc<Quota>,
		template: &str,
		request: &'a CreateClones,
		disks: Arc<Attached>,
	) -> Result<Announced<'a>, DaemonError> {
		check(request)?;
		// Before a number is taken: a name that can't be had costs none.
		let chosen: Vec<_> = request.name.iter().map(|name| self.reserve("clone", name)).collect::<Result<_, _>>()?;
		let take = || quota.take(rustix::process::geteuid().as_raw(), request.count.into());
		if !chosen.is_empty() {
			return Ok(Announced { request, disks, numbers: take()?, names: chosen });
		}
		let (mut left_out, mut met) = (Vec::new(), None);
		loop {
			let mut numbers = match take() {
				Ok(numbers) => numbers,
				Err(error) => {
					// The last ones first: so all can be had again.
					while left_out.pop().is_some() {}
					return Err(met.unwrap_or_else(|| error.into()));
				}
			};
			let reserve = |index| self.reserve("clone", &of_number(template, index)).map_err(|error| (index, error));
			match numbers.left().map(reserve).collect() {
				Ok(names) => {
					left_out.iter_mut().for_each(Numbers::use_all);
					return Ok(Announced { request, disks, numbers, names });
				}
				// Somebody has chosen that name: no clone has its number, nor one before it.
				Err((index, error @ (DaemonError::Taken { .. } | DaemonError::Making { .. }))) => {
					left_out.push(numbers.split_to(index + 1));
					met = Some(error);
				}
				Err((_, DaemonError::Name(name))) => {
					return Err(DaemonError::Invalid(format!("{name} is too long: name the clone (--name)")));
				}
				Err((_, error)) => return Err(error),
			}
		}
	}

	/// Makes clones of a template that may have no name.
	pub(super) fn clones_of(
		self: &Arc<Self>,
		parent: &Parent<'_>,
		mut announced: Announced<'_>,
		started: Instant,
	) -> Result<Vec<api::Clone>, DaemonError> {
		let (entry, request) = (&parent.entry, announced.request);
		entry.template.frozen.check_images()?;
		announced.disks.check()?;
		if request.disks.iter().any(|disk| disk.mount.is_some()) && !entry.template.frozen.state.forked {
			return Err(DaemonError::Invalid(
				"a disk is mounted by the agent, which clones of a template that was forked now don't ask".into(),
			));
		}
		let mut made = Vec::new();
		// Nobody asks again for what has no name, so that no shell is primed for it; nor can one be for other disks
		// than the template's.
		let origin: Arc<dyn Origin> = entry.clone();
		let is_primed = parent.forked_from.is_none() && announced.disks.is_empty();
		let origin = is_primed.then(|| Arc::downgrade(&origin));
		let mut shells = self.hardware()?.pools.expect(entry.shape(), request.count, origin);
		while let Some(index) = announced.numbers.first() {
			match self.create_clone(parent, &mut announced, index, &mut shells, started) {
				Ok(clone) => made.push(clone),
				Err(error) => {
					drop(announced);
					self.take_back(&made);
					self.retire(entry)?;
					return Err(error);
				}
			}
		}
		// From here on others are made.
		drop((shells, announced.names));
		self.retire(entry)?;
		if request.wait
			&& let Err(error) = made.iter().try_for_each(|clone| clone.wait_ready())
		{
			self.take_back(&made);
			return Err(error);
		}
		// Until here all of them would have ended with this daemon.
		let nameless = if parent.forked_from.is_some() { entry.hold(&self.store, None) } else { Ok(()) };
		if let Err(error) = nameless.and_then(|()| made.iter().try_for_each(|clone| clone.keep(&self.store))) {
			self.take_back(&made);
			return Err(error);
		}
		Ok(made.iter().map(|clone| clone.show()).collect())
	}

	/// A template without numbers needs no shell that is primed; nor do others with its quota.
	fn retire(&self, entry: &Arc<Entry>) -> Result<(), DaemonError> {
		let quota = &entry.template.quota;
		let is_over = |other: &&Arc<Entry>| Arc::ptr_eq(&other.template.quota, quota) && quota.is_used_up();
		let over: Vec<_> = self.lock().templates.values().filter(is_over).cloned().collect();
		over.iter().try_for_each(|other| self.unprime(other))
	}

	fn take_back(&self, made: &[Arc<Running>]) {
		for clone in made {
			clone.remove();
			self.lock().forget(clone);
		}
	}

	/// Makes the one of number `index`, the first that is left.
	fn create_clone(
		self: &Arc<Self>,
		parent: &Parent<'_>,
		Announced { request, disks, numbers, .. }: &mut Announced<'_>,
		index: u64,
		shells: &mut Claims<'_>,
		started: Instant,
	) -> Result<Arc<Running>, DaemonError> {
		let Parent { entry, template, forked_from, forks } = parent;
		let name = request.name.clone().unwrap_or_else(|| of_number(template, index));
		let alive = self.count(parent)?;
		let cid = self.cid();
		let pools = &self.hardware()?.pools;
		let renewal = || {
			// From here on a guest may have its entropy.
			numbers.use_first();
			renewal(&name, index, request.job.as_bytes(), disks.told.clone())
		};
		let claimed = claim(pools, entry, disks, shells, renewal, cid)?;
		self.clones_made.fetch_add(1, Ordering::Relaxed);
		let born = Born {
			name: name.clone(),
			template: (*template).into(),
			forked_from: forked_from.map(str::to_owned),
			origin: Arc::downgrade(entry),
			alive: Some(alive),
			own_forks: forks.clone().unwrap_or_else(|| OwnForks::new(self, request.forks)),
			job: request.job.as_bytes().to_vec(),
			disks: disks.clone(),
			cid,
			started,
			past: None,
		};
		let clone = Running::start(claimed, born, pools, self.at_end())?;
		clone.ready_unless_it_says_so(entry);
		self.lock().clones.insert(name, clone.clone());
		Ok(clone)
	}

	/// Counts a clone of a template, unless that had a name and was removed since it was looked up.
	fn count(&self, parent: &Parent<'_>) -> Result<Alive, DaemonError> {
		let Parent { entry, template, forked_from, .. } = parent;
		let state = self.lock();
		let is_there = |named: &Arc<Entry>| Arc::ptr_eq(named, entry);
		if forked_from.is_none() && !state.templates.get(*template).is_some_and(is_there) {
			return Err(DaemonError::Unknown { kind: "template", name: (*template).into() });
		}
		Ok(Alive::of(entry))
	}

	pub(super) fn at_end(self: &Arc<Self>) -> impl FnOnce(&Arc<Running>) + Send + 'static {
		let daemon = Arc::downgrade(self);
		move |clone: &Arc<Running>| {
			if let Some(daemon) = daemon.upgrade() {
				daemon.note_end(clone);
			}
		}
	}

	/// Remembers that `clone` has ended, and forgets the one that did longest ago, so that a daemon doesn't grow.
	pub(super) fn note_end(&self, clone: &Arc<Running>) {
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
		// What is shown is asked of the kernel, without the lock.
		let clones: Vec<_> = self.lock().clones.values().cloned().collect();
		clones.iter().map(|clone| clone.show()).collect()
	}

	/// Ends one and forgets it.
	///
	/// # Errors
	/// [`DaemonError::Unknown`].
	pub fn remove_clone(&self, name: &str) -> Result<(), DaemonError> {
		let clone = self.running(name)?;
		clone.remove();
		self.lock().forget(&clone);
		Ok(())
	}

	/// Sends one back to its template, with its job, and waits until it is ready if it ever was. That makes another
	/// clone of the template, with its own index, and counts as one.
	pub fn rollback(&self, name: &str) -> Result<api::Clone, DaemonError> {
		let clone = self.running(name)?;
		let entry = clone.template()?;
		entry.template.frozen.check_images()?;
		clone.disks().check()?;
		let was_ready = clone.show().ready_ns.is_some();
		let tenant = rustix::process::geteuid().as_raw();
		let mut number = entry.template.quota.take(tenant, 1)?;
		let renewal = renewal(name, number.left().start, clone.job(), clone.disks().told.clone())?;
		let done = clone.rollback(renewal);
		// Any other error comes before its shell was asked.
		if matches!(done, Ok(()) | Err(DaemonError::Shell(_))) {
			number.use_first();
		}
		done?;
		clone.ready_unless_it_says_so(&entry);
		self.clones_made.fetch_add(1, Ordering::Relaxed);
		self.retire(&entry)?;
		if was_ready {
			clone.wait_ready()?;
		}
		Ok(clone.show())
	}

	/// A stream to a clone's agent, and who is to be told when that has answered.
	pub fn connect(&self, name: &str) -> Result<(UnixStream, Asked), DaemonError> {
		let clone = self.running(name)?;
		Ok((clone.connect(agent::PORT)?, Asked(clone)))
	}

	/// A clone's console: what it wrote, and a way to type.
	///
	/// # Errors
	/// [`DaemonError::Unknown`].
	pub fn console(&self, name: &str) -> Result<(tokio::io::DuplexStream, Typist), DaemonError> {
		let clone = self.running(name)?;
		Ok((clone.console(), Typist(clone)))
	}
}

/// A clone whose agent somebody has connected to.
#[derive(Debug)]
pub struct Asked(Arc<Running>);

impl Asked {
	/// The agent has answered.
	pub fn note_answer(&self) {
		self.0.learn();
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

fn of_number(template: &str, index: u64) -> String {
	format!("{template}-{}", index + 1)
}

fn renewal(name: &str, index: u64, job: &[u8], disks: Vec<AttachedDisk>) -> Result<Renewal, DaemonError> {
	let identity = CloneIdentity { name: name.into(), index, generation: random()?, job: job.to_vec() };
	Ok(Renewal { identity, entropy: random()?, disks })
}

fn random<const N: usize>() -> Result<[u8; N], DaemonError> {
	let mut bytes = [0; N];
	// Up to 256 bytes come whole.
	rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
		.map_err(|e| DaemonError::System("get random bytes", e.into()))?;
	Ok(bytes)
}
