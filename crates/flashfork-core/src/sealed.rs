//! Whether memory is sealed: asked of the kernel each time, because memory moves without our knowing.

use crate::proc::lookup::{self, Wanted};
use crate::proc::vma::Kind;
use crate::range::Range;
use crate::state::STATE;
use crate::threads::errand;

/// Whether a range holds sealed memory.
pub fn holds_sealed(range: Range) -> bool {
    if !STATE.holds_sealed() {
        return false;
    }
    let mut found = false;
    let mut ask = || {
        lookup::for_each(range, Wanted::Files, |v| {
            found |= v.kind == Kind::Sealed;
            Ok(())
        })
    };
    let asked = errand::ask(&mut ask);
    // If maps can't be read, what was ever sealed counts as sealed, which is the careful answer for every caller.
    if asked.is_err() { STATE.places.touch(range) } else { found }
}
