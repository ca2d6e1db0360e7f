//! What looking through code takes.

use super::process::look;
use super::remembered::CODE;
use crate::calls;
use crate::filter::trial;
use crate::outcome::{Error, Outcome, Step};
use crate::session::{self, Wait};
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;

/// What the look before a seal takes, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// With nothing known of what has been mapped since the last look.
    pub first: u64,
    /// Every file is known, but has to be recognised: something has been mapped or unmapped.
    pub known: u64,
    /// Nothing has been.
    pub unchanged: u64,
}

/// Looks three times.
pub fn time() -> Result<Times, Error> {
    trial::prepare();
    let look_once = || {
        let mut took = 0;
        let looked = session::run(Wait::Yes, |arena| {
            calls::take(arena, &mut None)?;
            let start = sys::now_ns();
            let found = look(arena).map_err(|e| Error::System(Step::Look, e))?;
            took = sys::now_ns() - start;
            found.map_or(Ok(Outcome::default()), |reason| Err(Error::Refused(reason)))
        });
        looked.outcome.map(|_| took)
    };
    let first = look_once()?;
    CODE.well.store(0, Relaxed);
    Ok(Times { first, known: look_once()?, unchanged: look_once()? })
}
