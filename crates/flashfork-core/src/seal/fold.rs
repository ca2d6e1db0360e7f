//! The plan of a seal, where there may be too many generations for one more.

use super::{
	generations::{MAX_GENERATIONS, MAX_PARTS},
	limits, plan, unseal,
	vetted::VETTED,
};
use crate::{
	arena::Arena,
	never_seal::Reason,
	outcome::{Error, Step},
	threads::pauses::Pauses,
};

/// Makes the plan; says whether it folds all generations into one.
pub fn plan_or_fold(arena: &mut Arena, pauses: &mut Option<Pauses>) -> Result<bool, Error> {
	let look = |e| Error::System(Step::Look, e);
	if let Some(pauses) = pauses {
		pauses.plan_begins();
	}
	let whole = arena.only != 0;
	if whole {
		unseal::growth(arena, pauses)?;
	}
	let part = arena.most != 0;
	let vetted = part && pauses.is_none() && VETTED.holds();
	let mut facts = if vetted { plan::make_of_vetted(arena) } else { plan::make(arena, whole) }.map_err(look)?;
	if vetted && facts.bytes < arena.most as u64 / 2 {
		facts = plan::make(arena, whole).map_err(look)?;
	}
	let room = limits::vma_room(&mut arena.small, facts.vmas).map_err(look)?;
	let most = if part { MAX_PARTS } else { MAX_GENERATIONS };
	let crowded = facts.generations >= most || 2 * arena.run_count > room && facts.generations > 0;
	if arena.small_runs && (facts.small < plan::SMALL_BYTES || 2 * arena.run_count > room) {
		// They are too few to matter, or too many to be had.
		arena.small_runs = false;
		facts = plan::make(arena, whole).map_err(look)?;
	}
	if facts.generations >= MAX_PARTS / 2 {
		// Of short parts there would be too many.
		arena.late_at = 0;
	}
	let fold = whole || crowded;
	if crowded && part {
		// A part is no occasion for copying everything, what a parent sealed included.
		return Err(Error::Refused(facts.refused.unwrap_or(Reason::VmaLimit)));
	}
	if crowded && !whole {
		// Fold all generations into one: fewer memfds, fewer VMAs.
		unseal::growth(arena, pauses)?;
		facts = plan::make(arena, true).map_err(look)?;
	}
	if let Some(reason) = facts.refused {
		return Err(Error::Refused(reason));
	}
	if 2 * arena.run_count > room {
		return Err(Error::Refused(Reason::VmaLimit));
	}
	Ok(fold)
}
