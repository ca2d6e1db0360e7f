//! Claims of shells.

use super::{Origin, PATIENCE, PoolError, Pools, Shell};
use flashfork_proto::shape::Shape;
use std::{
	sync::{PoisonError, Weak},
	time::Instant,
};

/// Claims that were announced: so many shells are made at the same time, rather than each when the one before it is
/// taken.
#[derive(Debug)]
pub struct Claims<'a> {
	pub(super) pools: &'a Pools,
	pub(super) shape: Shape,
	/// What clones are claimed of.
	pub(super) origin: Option<Weak<dyn Origin>>,
	pub(super) count: u32,
	/// Without a shell yet.
	pub(super) left: u32,
	/// Failures of the pool before.
	pub(super) seen: u64,
}

impl Claims<'_> {
	/// A shell for the next one: one primed for it, one that waits, or the next that is prepared.
	pub fn take(&mut self) -> Result<Shell, PoolError> {
		let deadline = Instant::now() + PATIENCE;
		let shared = &self.pools.shared;
		let mut state = shared.lock();
		let mut waits = false;
		let pool = state.pools.entry(self.shape).or_default();
		if let Some(origin) = &self.origin {
			let (primed, other) = pool.primed.take(origin);
			other.into_iter().for_each(|shell| self.pools.reaper.bury(shell));
			// Looked at as the others are.
			primed.into_iter().for_each(|shell| pool.ready.push_front(shell));
		}
		loop {
			let pool = state.pools.entry(self.shape).or_default();
			while let Some(mut shell) = pool.ready.pop_front() {
				if shell.lives() {
					self.left -= 1;
					if pool.failures == self.seen {
						pool.expected -= 1;
					}
					if pool.ready.is_empty() {
						shared.changed.notify_all();
					}
					return Ok(shell);
				}
				self.pools.reaper.bury(shell);
			}
			if let Some((number, failure)) = &pool.failure
				&& *number > self.seen
			{
				return Err(PoolError::Shell(failure.clone()));
			}
			if !waits {
				waits = true;
				pool.misses += 1;
				shared.changed.notify_all();
			}
			let left = deadline.saturating_duration_since(Instant::now());
			if left.is_zero() {
				return Err(PoolError::Slow);
			}
			state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
		}
	}
}

impl Drop for Claims<'_> {
	/// Those that got no shell are expected no more, and what the others got is made anew.
	fn drop(&mut self) {
		let shared = &self.pools.shared;
		if let Some(pool) = shared.lock().pools.get_mut(&self.shape) {
			pool.under_way -= self.count;
			if pool.failures == self.seen {
				pool.expected -= self.left;
			}
		}
		shared.changed.notify_all();
	}
}
