//! Shells made in advance, by shape.
//!
//! Some threads make them all, and another tears them down, which takes KVM some 20 ms each.

mod cgroup;
mod claims;
mod primed;
mod process;
mod reaper;
mod shell;

pub use cgroup::{Cgroup, NAME};
pub use claims::Claims;
pub use primed::Origin;
pub use shell::{Footprint, Program, Shell, ShellFailure};

use crate::store::Store;
use flashfork_cgroup::Cgroups;
use flashfork_proto::{api::PoolStats, shape::Shape};
use primed::Primed;
use reaper::Reaper;
use std::{
	collections::{BTreeMap, VecDeque},
	os::fd::OwnedFd,
	sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
	thread::{self, JoinHandle},
	time::{Duration, Instant},
};

/// How often the shells that wait are looked at.
const HEALTH: Duration = Duration::from_secs(1);

/// Threads that make shells. A shell's making is mostly waiting for the kernel (RCU grace periods), so they are more
/// than most hosts have processors to spare.
const MAKERS: usize = 8;

/// How long a claim waits for a shell that is being prepared.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no shell.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PoolError {
	/// Making one failed.
	#[error("cannot make a shell: {0}")]
	Shell(#[from] Arc<ShellFailure>),
	/// It took too long.
	#[error("no shell was ready within {} s: the host is overloaded; ask for fewer clones at once", PATIENCE.as_secs())]
	Slow,
}

/// All pools of a daemon.
#[derive(Debug)]
pub struct Pools {
	shared: Arc<Shared>,
	makers: Vec<JoinHandle<()>>,
	reaper: Arc<Reaper>,
}

#[derive(Debug)]
struct Shared {
	program: Program,
	kvm: OwnedFd,
	cgroups: Option<Cgroups>,
	store: Arc<Store>,
	state: Mutex<State>,
	changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
	pools: BTreeMap<Shape, Pool>,
	ended: bool,
}

#[derive(Debug, Default)]
struct Pool {
	ready: VecDeque<Shell>,
	/// One more, for one template.
	primed: Primed,
	/// Shells to be there when nobody asks.
	target: u32,
	/// Claims that are announced, and have no shell yet.
	expected: u32,
	/// Claims that are announced, and not over yet. What they take is made up for afterwards: to make a shell beside a
	/// claim would take longer than the claim takes. But not if others would find none.
	under_way: u32,
	preparing: u32,
	misses: u64,
	/// Tells those who wait; a number with it, so that each failure is told once. Nobody is expected any more after
	/// one.
	failure: Option<(u64, Arc<ShellFailure>)>,
	failures: u64,
	/// After a failure nothing is made until then, unless somebody asks.
	rests: Option<Instant>,
}

impl Pools {
	/// Pools without shells, which are `program`, get duplicates of `kvm`, are limited by `cgroups` where there are
	/// some, and held by `store`.
	///
	/// # Errors
	/// If a thread can't be started.
	pub fn new(program: Program, kvm: OwnedFd, cgroups: Option<Cgroups>, store: Arc<Store>) -> std::io::Result<Self> {
		let reaper = Arc::new(Reaper::start()?);
		let shared =
			Arc::new(Shared { program, kvm, cgroups, store, state: Mutex::default(), changed: Condvar::new() });
		let mut pools = Self { shared, makers: Vec::new(), reaper };
		for _ in 0..MAKERS {
			let (shared, bin) = (pools.shared.clone(), pools.reaper.clone());
			let maker = thread::Builder::new().name("shells".into()).spawn(move || shared.make(&bin))?;
			pools.makers.push(maker);
		}
		Ok(pools)
	}

	/// Keeps `count` shells of `shape` ready from now on, and one more primed for the template asked for last; none and
	/// they are taken away.
	pub fn keep(&self, shape: Shape, count: u32) {
		let mut state = self.shared.lock();
		state.pools.entry(shape).or_default().target = count;
		self.shared.changed.notify_all();
	}

	/// Primes the next shell of `shape` for `origin`, before anybody asks for it.
	pub fn offer(&self, shape: Shape, origin: &Arc<dyn Origin>) {
		let mut state = self.shared.lock();
		let before = state.pools.entry(shape).or_default().primed.offer(Arc::downgrade(origin));
		before.into_iter().for_each(|shell| self.reaper.bury(shell));
		self.shared.changed.notify_all();
	}

	/// No shell is primed for `origin` from now on, until it is asked for again.
	pub fn forget(&self, shape: Shape, origin: &Arc<dyn Origin>) {
		if let Some(pool) = self.shared.lock().pools.get_mut(&shape)
			&& let Some(shell) = pool.primed.forget(origin)
		{
			self.reaper.bury(shell);
		}
	}

	/// Announces `count` claims of `shape`, for clones of `origin` if any.
	pub fn expect(&self, shape: Shape, count: u32, origin: Option<Weak<dyn Origin>>) -> Claims<'_> {
		let mut state = self.shared.lock();
		let pool = state.pools.entry(shape).or_default();
		pool.expected += count;
		pool.under_way += count;
		let seen = pool.failures;
		if pool.is_asked() {
			self.shared.changed.notify_all();
		}
		Claims { pools: self, shape, origin, count, left: count, seen }
	}

	/// A shell of `shape` that is primed for nobody: one that waits, or the next that is prepared.
	pub fn take(&self, shape: Shape) -> Result<Shell, PoolError> {
		self.expect(shape, 1, None).take()
	}

	/// Ends a shell in the background.
	pub fn bury(&self, shell: Shell) {
		self.reaper.bury(shell);
	}

	/// What is there.
	#[must_use]
	pub fn stats(&self) -> Vec<PoolStats> {
		let state = self.shared.lock();
		let stats = |(shape, pool): (&Shape, &Pool)| PoolStats {
			shape: *shape,
			ready: pool.ready.len() as u32,
			primed: pool.primed.shell().is_some().into(),
			preparing: pool.preparing,
			misses: pool.misses,
		};
		state.pools.iter().map(stats).collect()
	}

	/// Where the memory of the shells that wait is counted.
	#[must_use]
	pub fn footprints(&self) -> Vec<Footprint> {
		let state = self.shared.lock();
		let shells = state.pools.values().flat_map(|pool| pool.ready.iter().chain(pool.primed.shell()));
		shells.map(Shell::footprint).collect()
	}
}

impl Drop for Pools {
	fn drop(&mut self) {
		{
			let mut state = self.shared.lock();
			state.ended = true;
			let all = state.pools.values_mut().flat_map(|pool| pool.ready.drain(..).chain(pool.primed.clear()));
			all.collect::<Vec<_>>().into_iter().for_each(|shell| self.reaper.bury(shell));
		}
		self.shared.changed.notify_all();
		for maker in self.makers.drain(..) {
			let _ = maker.join();
		}
	}
}

impl Shared {
	/// Panics abort, so no lock is ever poisoned.
	fn lock(&self) -> MutexGuard<'_, State> {
		self.state.lock().unwrap_or_else(PoisonError::into_inner)
	}

	/// Makes what is missing until the end, and looks after what is there.
	fn make(&self, reaper: &Reaper) {
		let mut state = self.lock();
		while !state.ended {
			let now = Instant::now();
			// Claims before stock; and no shape's claims before another's.
			let short = state.pools.iter_mut().filter(|(_, pool)| pool.is_short(now));
			let Some((shape, pool)) = short.min_by_key(|(_, pool)| (!pool.is_asked(), pool.preparing)) else {
				state = self.changed.wait_timeout(state, HEALTH).unwrap_or_else(PoisonError::into_inner).0;
				state.pools.retain(|_, pool| pool.sweep(reaper));
				continue;
			};
			let shape = *shape;
			pool.preparing += 1;
			drop(state);
			let made = Shell::start(&self.program, &self.kvm, shape, self.cgroups.as_ref(), &self.store);
			state = self.lock();
			if let Some(pool) = state.pools.get_mut(&shape) {
				pool.preparing -= 1;
				match made {
					Ok(shell) => match pool.begin_priming() {
						Some(origin) => {
							drop(state);
							self.prime(shape, shell, origin, reaper);
							state = self.lock();
						}
						None => pool.ready.push_back(shell),
					},
					Err(failure) => {
						pool.failures += 1;
						pool.failure = Some((pool.failures, Arc::new(failure)));
						pool.expected = 0;
						pool.rests = Some(Instant::now() + HEALTH);
					}
				}
			}
			self.changed.notify_all();
		}
	}

	/// Primes `shell`, which nobody waits for, for `origin`, of which this may be the last hold: memory is freed
	/// without the lock.
	fn prime(&self, shape: Shape, mut shell: Shell, origin: Arc<dyn Origin>, reaper: &Reaper) {
		let (primed, failed) = match origin.prime(&mut shell) {
			Ok(()) => (Some(shell), None),
			// Whoever asks for a clone will hear of it.
			Err(_) => (None, Some(shell)),
		};
		let back = match self.lock().pools.get_mut(&shape) {
			Some(pool) => pool.primed.put(&origin, primed),
			None => primed,
		};
		back.into_iter().chain(failed).for_each(|shell| reaper.bury(shell));
	}
}

impl Pool {
	/// The template to prime the next shell for, if there are enough others.
	fn begin_priming(&mut self) -> Option<Arc<dyn Origin>> {
		let enough = self.ready.len() as u32 >= self.expected + self.target;
		if enough { self.primed.begin() } else { None }
	}

	/// Whether claims wait for which no shell is there or under way.
	fn is_asked(&self) -> bool {
		self.ready.len() as u32 + self.preparing < self.expected
	}

	fn is_short(&self, now: Instant) -> bool {
		let none = self.target == 0 || self.rests.is_some_and(|end| now < end);
		let stock = if none { 0 } else { self.target + u32::from(self.primed.is_wanted()) };
		let later = if self.ready.is_empty() { 0 } else { self.under_way };
		self.ready.len() as u32 + self.preparing + later < self.expected + stock || self.is_asked()
	}

	/// Removes the dead and the superfluous; whether it is of use.
	fn sweep(&mut self, reaper: &Reaper) -> bool {
		let gone = if self.target == 0 { self.primed.clear() } else { self.primed.sweep() };
		gone.into_iter().for_each(|shell| reaper.bury(shell));
		let wanted = (self.target + self.expected) as usize;
		for mut shell in std::mem::take(&mut self.ready) {
			if self.ready.len() < wanted && shell.lives() {
				self.ready.push_back(shell);
			} else {
				reaper.bury(shell);
			}
		}
		(self.target | self.expected | self.under_way | self.preparing) != 0
	}
}
