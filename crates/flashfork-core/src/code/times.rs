//! What looking through code takes.

use super::{
	process::{NEVER, look},
	remembered::CODE,
};
use crate::{
	calls,
	filter::trial,
	outcome::{Error, Outcome, Step},
	session::{self, Wait},
	sys,
};
use core::sync::atomic::Ordering::Relaxed;

/// Forgets what was found in files: the next look sees all of them for the first time.
pub fn forget() {
	CODE.versions.forget_all();
	CODE.list(0, &Default::default());
	CODE.well.store(NEVER, Relaxed);
}

/// Looks as before a seal, and says how long that took, in nanoseconds.
pub fn time() -> Result<u64, Error> {
	trial::prepare();
	let mut took = 0;
	let looked = session::run(Wait::Yes, |arena| {
		let executable = calls::take(arena, &mut None)?;
		let start = sys::now_ns();
		let found = look(arena, executable).map_err(|e| Error::System(Step::Look, e))?;
		took = sys::now_ns() - start;
		found.map_or(Ok(Outcome::default()), |reason| Err(Error::Refused(reason)))
	});
	looked.outcome.map(|_| took)
}
