//! Templates: who may clone them and how often, and how they are kept in a directory.

mod directory;
mod error;
#[cfg(test)]
mod fuzz;
mod host;
mod manifest;
mod quota;
mod sparse;

pub use directory::{drop_drafts, load, save};
pub use error::DirectoryError;
pub use host::{Host, HostError};
pub use quota::{Numbers, Quota, QuotaError};

use crate::machine::Frozen;
use std::sync::Arc;

/// A template with what is to be known of it besides its content.
#[derive(Debug)]
pub struct Template {
	/// Its memory, disk and state.
	pub frozen: Frozen,
	/// Whose it is, and how many clones there may be: of it, and of all that was forked from them.
	pub quota: Arc<Quota>,
	/// When it was made, in seconds since 1970-01-01 UTC.
	pub created_s: u64,
}
