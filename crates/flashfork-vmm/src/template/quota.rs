//! A template belongs to one tenant, and is retired after a number of clones: they share one address-space layout, so
//! each is a further try to guess it (HyperFork, section 5.1).

use crate::{
	state::StateError,
	store::{self, Held, Kind, Store},
};
use serde::{Deserialize, Serialize};
use std::{
	ops::Range,
	sync::{Arc, Mutex, OnceLock},
};

/// Who may make clones, and how many.
#[derive(Debug)]
pub struct Quota {
	tenant: u32,
	max: Option<u64>,
	made: Mutex<u64>,
	/// So that the next daemon gives no number again.
	held: OnceLock<Arc<Held>>,
}

/// Numbers for clones. Those that are left go back when it is dropped; they stay used if somebody has taken later ones
/// since.
#[derive(Debug)]
pub struct Numbers {
	quota: Arc<Quota>,
	left: Range<u64>,
}

impl Numbers {
	/// The next one, if any, which stays here.
	pub fn first(&self) -> Option<u64> {
		(!self.left.is_empty()).then_some(self.left.start)
	}

	/// All that are left.
	pub fn left(&self) -> Range<u64> {
		self.left.clone()
	}

	/// All are used.
	pub fn use_all(&mut self) {
		self.left.start = self.left.end;
	}

	/// Those before `end`, which are left here no more.
	#[must_use]
	pub fn split_to(&mut self, end: u64) -> Self {
		let first = std::mem::replace(&mut self.left.start, end)..end;
		Self { quota: self.quota.clone(), left: first }
	}

	/// The next one is used.
	pub fn use_first(&mut self) {
		self.left.next();
	}
}

impl Drop for Numbers {
	fn drop(&mut self) {
		let mut made = crate::devices::lock(&self.quota.made);
		if *made == self.left.end {
			*made = self.left.start;
			self.quota.note(*made);
		}
	}
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedQuota {
	tenant: u32,
	max: Option<u64>,
	made: u64,
}

/// Why no clone may be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
	/// Somebody else's.
	#[error("the template belongs to user {owner}: make your own")]
	Tenant {
		/// User id.
		owner: u32,
	},
	/// It was used up.
	#[error(
		"the template has had {made} of the {max} clones it may have, which share its address-space layout: {}",
		if made < max { "ask for fewer" } else { "make a new one" }
	)]
	Retired {
		/// So far.
		made: u64,
		/// At most.
		max: u64,
	},
}

impl Quota {
	/// For a new template of the user `tenant`; without `max` it is never retired.
	pub fn new(tenant: u32, max: Option<u64>) -> Self {
		SavedQuota { tenant, max, made: 0 }.into()
	}

	/// Numbers for `count` more clones, for which `tenant` asks: all or none.
	pub fn take(self: &Arc<Self>, tenant: u32, count: u64) -> Result<Numbers, QuotaError> {
		if tenant != self.tenant {
			return Err(QuotaError::Tenant { owner: self.tenant });
		}
		let mut made = crate::devices::lock(&self.made);
		let end = made.saturating_add(count);
		if let Some(max) = self.max.filter(|max| end > *max) {
			return Err(QuotaError::Retired { made: *made, max });
		}
		let left = std::mem::replace(&mut *made, end)..end;
		self.note(end);
		Ok(Numbers { quota: self.clone(), left })
	}

	/// Whether no number is left.
	pub fn is_used_up(&self) -> bool {
		self.max.is_some_and(|max| self.made() >= max)
	}

	/// User id of whose it is.
	pub fn tenant(&self) -> u32 {
		self.tenant
	}

	/// After how many clones it is retired.
	pub fn max(&self) -> Option<u64> {
		self.max
	}

	/// Clones so far.
	pub fn made(&self) -> u64 {
		*crate::devices::lock(&self.made)
	}

	/// Has `store` know how many there were, from now on; gives what it is known as there.
	pub(crate) fn hold(&self, store: &Arc<Store>) -> u64 {
		let made = crate::devices::lock(&self.made);
		let record = || store::seal(&SavedQuota { tenant: self.tenant, max: self.max, made: *made });
		self.held.get_or_init(|| store.note(Kind::Quota, record())).id()
	}

	/// What an earlier daemon has left.
	pub(crate) fn adopt(record: &[u8], held: Arc<Held>) -> Result<Self, StateError> {
		let quota = Self::from(store::open::<SavedQuota>(record)?);
		Ok(Self { held: held.into(), ..quota })
	}

	fn note(&self, made: u64) {
		if let Some(held) = self.held.get() {
			let record = SavedQuota { tenant: self.tenant, max: self.max, made };
			held.change(Kind::Quota, store::seal(&record));
		}
	}

	pub(super) fn saved(&self) -> SavedQuota {
		SavedQuota { tenant: self.tenant, max: self.max, made: self.made() }
	}
}

impl From<SavedQuota> for Quota {
	fn from(saved: SavedQuota) -> Self {
		Self { tenant: saved.tenant, max: saved.max, made: Mutex::new(saved.made), held: OnceLock::new() }
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	fn used(numbers: Result<Numbers, QuotaError>) -> Result<Range<u64>, QuotaError> {
		numbers.map(|mut numbers| {
			let all = numbers.left();
			all.clone().for_each(|_| numbers.use_first());
			all
		})
	}

	#[test]
	fn a_template_is_retired_after_so_many_clones_all_asked_for_or_none() {
		let quota = Arc::new(Quota::new(7, Some(5)));
		assert_eq!(used(quota.take(7, 3)), Ok(0..3));
		let too_many = used(quota.take(7, 3)).unwrap_err();
		assert_eq!(too_many, QuotaError::Retired { made: 3, max: 5 });
		assert!(too_many.to_string().ends_with(": ask for fewer"));
		assert_eq!(used(quota.take(7, 2)), Ok(3..5));
		assert_eq!(used(quota.take(7, 1)), Err(QuotaError::Retired { made: 5, max: 5 }));
		assert_eq!(Quota::from(quota.saved()).made(), 5, "also after it was saved");
	}

	#[test]
	fn the_last_numbers_go_back_if_they_are_left() {
		let quota = Arc::new(Quota::new(7, Some(5)));
		let mut numbers = quota.take(7, 5).unwrap();
		(0..3).for_each(|_| numbers.use_first());
		assert_eq!(numbers.first(), Some(3));
		drop(numbers);
		let early = quota.take(7, 1).unwrap();
		assert_eq!(used(quota.take(7, 1)), Ok(4..5));
		assert_eq!(early.left(), 3..4);
		drop(early);
		assert_eq!(quota.made(), 5, "none is given twice");
	}

	#[test]
	fn another_tenant_gets_none() {
		let quota = Arc::new(Quota::new(7, None));
		assert_eq!(used(quota.take(8, 1)), Err(QuotaError::Tenant { owner: 7 }));
		assert_eq!(quota.take(7, u64::MAX).unwrap().left(), 0..u64::MAX);
	}
}
