//! What exists twice, or for nobody: what an engine that seals part by part asks about.

use super::{generations::Memfds, plan, witness::Ours};
use crate::{
	arena::Arena,
	outcome::{Error, Outcome, Step},
	session::{self, Wait},
	threads::errand,
};

/// Bytes of sealed memory written since, in generations after this one and those that no other process has; none when
/// that can't be told now.
pub fn written(after: u64) -> Option<u64> {
	let counted = |arena: &mut Arena| {
		let mut sealed = 0;
		let looked = errand::look(|| {
			sealed = plan::written(&Ours::find(after), arena)?;
			Ok(())
		});
		looked.map_err(|e| Error::System(Step::Look, e))?;
		Ok(Outcome { sealed, ..Outcome::default() })
	};
	session::run(Wait::No, counted).outcome.map(|outcome| outcome.sealed).ok()
}

/// What is in the memfds of the same; none when that can't be told now.
pub fn memfds(after: u64) -> Option<Memfds> {
	let counted = |arena: &mut Arena| {
		let mut found = Memfds::default();
		let looked = errand::look(|| {
			found = plan::memfds(&Ours::find(after), &mut arena.text)?;
			Ok(())
		});
		looked.map_err(|e| Error::System(Step::Look, e))?;
		Ok(Outcome { sealed: found.bytes, filled: found.gone, ..Outcome::default() })
	};
	let told = session::run(Wait::No, counted).outcome.ok()?;
	Some(Memfds { bytes: told.sealed, gone: told.filled })
}
