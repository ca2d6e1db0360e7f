//! Shells made in advance, by shape.
//!
//! One thread makes them all, for as long as the pool lives: a shell dies with the thread that made it
//! (`PR_SET_PDEATHSIG`), so it must be one that stays. Another tears them down, which takes KVM some 20 ms each.

mod reaper;
mod shell;

pub use shell::{Program, Shell, ShellFailure};

use flashfork_proto::api::PoolStats;
use flashfork_proto::shape::Shape;
use reaper::Reaper;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often the shells that wait are looked at.
const HEALTH: Duration = Duration::from_secs(1);

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
    maker: Option<JoinHandle<()>>,
    reaper: Arc<Reaper>,
}

#[derive(Debug)]
struct Shared {
    program: Program,
    kvm: OwnedFd,
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
    /// Shells to be there when nobody asks.
    target: u32,
    /// Claims that wait.
    waiting: u32,
    preparing: u32,
    misses: u64,
    /// Tells those who wait; a number with it, so that each failure is told once.
    failure: Option<(u64, Arc<ShellFailure>)>,
    failures: u64,
}

impl Pools {
    /// Pools without shells, which are `program` and get duplicates of `kvm`.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn new(program: Program, kvm: OwnedFd) -> std::io::Result<Self> {
        let reaper = Arc::new(Reaper::start()?);
        let shared = Arc::new(Shared { program, kvm, state: Mutex::default(), changed: Condvar::new() });
        let (of_maker, bin) = (shared.clone(), reaper.clone());
        let maker = thread::Builder::new().name("shells".into()).spawn(move || of_maker.make(&bin))?;
        Ok(Self { shared, maker: Some(maker), reaper })
    }

    /// Keeps `count` shells of `shape` ready from now on; none and they are taken away.
    pub fn keep(&self, shape: Shape, count: u32) {
        let mut state = self.shared.lock();
        state.pools.entry(shape).or_default().target = count;
        self.shared.changed.notify_all();
    }

    /// A shell of `shape`: one that waits, or the next that is prepared.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn take(&self, shape: Shape) -> Result<Shell, PoolError> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.shared.lock();
        let seen = state.pools.entry(shape).or_default().failures;
        let mut waits = false;
        let result = loop {
            let pool = state.pools.entry(shape).or_default();
            while let Some(mut shell) = pool.ready.pop_front() {
                if shell.lives() {
                    if waits {
                        pool.waiting -= 1;
                    }
                    self.shared.changed.notify_all();
                    return Ok(shell);
                }
                self.reaper.bury(shell);
            }
            if let Some((number, failure)) = &pool.failure
                && *number > seen
            {
                break PoolError::Shell(failure.clone());
            }
            if !waits {
                waits = true;
                pool.waiting += 1;
                pool.misses += 1;
                self.shared.changed.notify_all();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break PoolError::Slow;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        if waits && let Some(pool) = state.pools.get_mut(&shape) {
            pool.waiting -= 1;
        }
        Err(result)
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
            preparing: pool.preparing,
            misses: pool.misses,
        };
        state.pools.iter().map(stats).collect()
    }

    /// Process ids of the shells that wait.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.shared.lock().pools.values().flat_map(|pool| pool.ready.iter().map(Shell::pid)).collect()
    }
}

impl Drop for Pools {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.ended = true;
            let shells: Vec<_> = state.pools.values_mut().flat_map(|pool| pool.ready.drain(..)).collect();
            shells.into_iter().for_each(|shell| self.reaper.bury(shell));
        }
        self.shared.changed.notify_all();
        if let Some(maker) = self.maker.take() {
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
        // After a failure nothing is made for a while, unless somebody asks.
        let mut pause = Instant::now();
        while !state.ended {
            let rests = Instant::now() < pause;
            let missing = state.pools.iter().find(|(_, pool)| pool.is_short(rests)).map(|(shape, _)| *shape);
            let Some(shape) = missing else {
                state = self.changed.wait_timeout(state, HEALTH).unwrap_or_else(PoisonError::into_inner).0;
                state.pools.values_mut().for_each(|pool| pool.sweep(reaper));
                continue;
            };
            if let Some(pool) = state.pools.get_mut(&shape) {
                pool.preparing = 1;
            }
            drop(state);
            let made = Shell::start(&self.program, &self.kvm, shape);
            state = self.lock();
            if let Some(pool) = state.pools.get_mut(&shape) {
                pool.preparing = 0;
                match made {
                    Ok(shell) => pool.ready.push_back(shell),
                    Err(failure) => {
                        pool.failures += 1;
                        pool.failure = Some((pool.failures, Arc::new(failure)));
                        pause = Instant::now() + HEALTH;
                        // Those who wait take the failure first, else it would be tried again at once.
                        self.changed.notify_all();
                        state = self.changed.wait_timeout(state, HEALTH / 10).unwrap_or_else(PoisonError::into_inner).0;
                        continue;
                    }
                }
            }
            self.changed.notify_all();
        }
    }
}

impl Pool {
    fn is_short(&self, rests: bool) -> bool {
        let wanted = self.waiting + if rests { 0 } else { self.target };
        (self.ready.len() as u32) < wanted
    }

    /// Removes the dead and the superfluous.
    fn sweep(&mut self, reaper: &Reaper) {
        let wanted = (self.target + self.waiting) as usize;
        for mut shell in std::mem::take(&mut self.ready) {
            if self.ready.len() < wanted && shell.lives() {
                self.ready.push_back(shell);
            } else {
                reaper.bury(shell);
            }
        }
    }
}
