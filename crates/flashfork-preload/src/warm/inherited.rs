//! Attributes of the template's that it has of whoever warmed it, and clones of their callers.

use super::template::Single;
use flashfork_core::{
	Errno,
	inherited::{Attribute, Inherited},
};
use flashfork_warm::{Start, Step};

/// Those of the template, as it was started.
static BEFORE: Single<Option<Inherited>> = Single::new(None);

/// Looks what this process was started with.
///
/// # Safety
/// Before the program's own code runs, in its one thread.
pub unsafe fn note() {
	// SAFETY: as the caller says.
	unsafe { *BEFORE.get() = Some(Inherited::look()) };
}

/// In a clone: takes the caller's.
pub fn take(start: &Start) -> Result<(), (Step, Errno)> {
	with(start, Inherited::take)
}

/// The same with the secure bits, which clones with threads have of their template.
pub fn take_all(start: &Start) -> Result<(), (Step, Errno)> {
	with(start, Inherited::take_secure_bits)?;
	take(start)
}

/// The same, as far as it is about privileges.
pub fn take_privileges(start: &Start) -> Result<(), (Step, Errno)> {
	with(start, Inherited::take_privileges)
}

type Taken = Result<(), (Attribute, Errno)>;

fn with(start: &Start, take: fn(&Inherited, &Inherited) -> Taken) -> Result<(), (Step, Errno)> {
	let Start { scheduling, io_priority, personality, dump_filter, no_new_privs, prctl, .. } = *start;
	let callers = Inherited { scheduling, io_priority, personality, dump_filter, no_new_privs, prctl };
	// SAFETY: written once, before the program's own code ran.
	let Some(before) = (unsafe { BEFORE.get() }) else { return Ok(()) };
	take(&callers, before).map_err(|(attribute, e)| {
		let step = match attribute {
			Attribute::Scheduling => Step::Scheduling,
			Attribute::IoPriority => Step::IoPriority,
			Attribute::Personality => Step::Personality,
			Attribute::DumpFilter => Step::DumpFilter,
			Attribute::NoNewPrivs => Step::NoNewPrivs,
			Attribute::Prctl => Step::Prctl,
		};
		(step, e)
	})
}
