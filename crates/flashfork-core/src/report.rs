//! What a seal says about itself.

use crate::arena::{Arena, VmaRecord};
use crate::outcome::{Error, Outcome};

/// The result of one seal with its report. Dropping it gives the scratch memory back.
pub struct Sealed {
    arena: Option<&'static mut Arena>,
    /// What was done.
    pub outcome: Result<Outcome, Error>,
}

impl Sealed {
    /// Done, or not, with this arena.
    pub(crate) fn new(arena: &'static mut Arena, outcome: Result<Outcome, Error>) -> Sealed {
        Sealed { arena: Some(arena), outcome }
    }

    /// Not even begun.
    pub(crate) fn not(error: Error) -> Sealed {
        Sealed { arena: None, outcome: Err(error) }
    }

    /// One record for every VMA looked at.
    pub fn records(&self) -> &[VmaRecord] {
        self.arena.as_ref().map_or(&[], |a| &a.records[..a.record_count])
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        if let Some(arena) = self.arena.take() {
            arena.unmap();
        }
    }
}
