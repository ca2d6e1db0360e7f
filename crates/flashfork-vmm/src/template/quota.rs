//! A template belongs to one tenant, and is retired after a number of clones: they share one address-space layout, so
//! each is a further try to guess it (HyperFork, section 5.1).

use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Mutex;

/// Who may make clones, and how many.
#[derive(Debug)]
pub struct Quota {
    tenant: u32,
    max: Option<u64>,
    made: Mutex<u64>,
}

/// A quota as a directory keeps it.
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
        "the template has had {made} of the {max} clones it may have, which share its address-space layout: make a new one"
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
        Self { tenant, max, made: Mutex::new(0) }
    }

    /// Numbers for `count` more clones, for which `tenant` asks: all or none.
    pub fn take(&self, tenant: u32, count: u64) -> Result<Range<u64>, QuotaError> {
        if tenant != self.tenant {
            return Err(QuotaError::Tenant { owner: self.tenant });
        }
        let mut made = crate::devices::lock(&self.made);
        let end = made.saturating_add(count);
        if let Some(max) = self.max.filter(|max| end > *max) {
            return Err(QuotaError::Retired { made: *made, max });
        }
        Ok(std::mem::replace(&mut *made, end)..end)
    }

    /// Takes back numbers that no clone got; they stay used if somebody has taken later ones since.
    pub fn give_back(&self, numbers: Range<u64>) {
        let mut made = crate::devices::lock(&self.made);
        if *made == numbers.end {
            *made = numbers.start;
        }
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

    pub(super) fn saved(&self) -> SavedQuota {
        SavedQuota { tenant: self.tenant, max: self.max, made: self.made() }
    }
}

impl From<SavedQuota> for Quota {
    fn from(saved: SavedQuota) -> Self {
        Self { tenant: saved.tenant, max: saved.max, made: Mutex::new(saved.made) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_retired_after_so_many_clones_all_asked_for_or_none() {
        let quota = Quota::new(7, Some(5));
        assert_eq!(quota.take(7, 3), Ok(0..3));
        assert_eq!(quota.take(7, 3), Err(QuotaError::Retired { made: 3, max: 5 }));
        assert_eq!(quota.take(7, 2), Ok(3..5));
        assert_eq!(quota.take(7, 1), Err(QuotaError::Retired { made: 5, max: 5 }));
        assert_eq!(Quota::from(quota.saved()).made(), 5, "also after it was saved");
    }

    #[test]
    fn the_last_numbers_can_be_given_back() {
        let quota = Quota::new(7, Some(5));
        assert_eq!(quota.take(7, 5), Ok(0..5));
        quota.give_back(3..5);
        assert_eq!(quota.take(7, 1), Ok(3..4));
        quota.give_back(1..3);
        assert_eq!(quota.made(), 4, "none is given twice");
    }

    #[test]
    fn another_tenant_gets_none() {
        let quota = Quota::new(7, None);
        assert_eq!(quota.take(8, 1), Err(QuotaError::Tenant { owner: 7 }));
        assert_eq!(quota.take(7, u64::MAX), Ok(0..u64::MAX));
    }
}
