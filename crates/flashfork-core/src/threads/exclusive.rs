//! Works on memory while nobody else does: at once where there is nobody else, otherwise in pauses in which all others
//! are stopped.

use super::alone::alone;
use super::helper;
use super::pauses::Pauses;
use crate::arena::Arena;
use crate::kernel_writers;
use crate::never_seal::Reason;
use crate::outcome::{Error, Outcome, Purpose, Step};
use crate::sys::{self, Errno};

/// Runs `f` when nobody else uses this process's memory; with other threads, and where they may be stopped, in a helper
/// that can stop them, and so where the program has no descriptor left to look through: the helper's are its own. What
/// else forbids a seal is refused.
pub fn run<F>(arena: &mut Arena, f: F) -> Result<Outcome, Error>
where
    F: FnOnce(&mut Arena, Option<Pauses>) -> Result<Outcome, Error>,
{
    match is_free(arena) {
        Ok(true) => f(arena, None),
        Ok(false) | Err(Error::System(_, Errno::EMFILE)) if super::may_stop(arena.purpose()) => helper::run(arena, f),
        Ok(false) => Err(Error::Refused(Reason::Threads)),
        Err(e) => Err(e),
    }
}

/// Whether nobody else uses this process's memory. What else forbids a seal is an error.
fn is_free(arena: &mut Arena) -> Result<bool, Error> {
    let look = |e| Error::System(Step::Look, e);
    if !alone(&mut arena.text).map_err(look)? {
        return Ok(false);
    }
    match kernel_writers::descriptors(arena.purpose(), &mut arena.text).map_err(look)? {
        Some(reason) => Err(Error::Refused(reason)),
        None => Ok(true),
    }
}

/// The first reason not to touch the calling process's memory, other threads among them. `buf` is scratch.
pub fn refusal(buf: &mut [u8]) -> sys::Result<Option<Reason>> {
    if alone(buf)? { kernel_writers::descriptors(Purpose::Seal, buf) } else { Ok(Some(Reason::Threads)) }
}
