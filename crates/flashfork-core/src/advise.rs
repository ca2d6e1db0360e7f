//! What the program's own memory calls mean on sealed memory: the shim passes them here.
//!
//! On anonymous memory `MADV_DONTNEED` reads back zeros; on a private file mapping it would give the sealed bytes back.
//! Whether a range holds sealed memory is asked of the kernel each time, because memory moves without our knowing
//! (glibc's realloc calls its own mremap).

use crate::arena::Arena;
pub use crate::grow::mremap;
use crate::range::Range;
use crate::seal::Error;
use crate::state::{Inside, STATE};
use crate::sys::{self, Errno, HUGE, PAGE, Result};
use crate::unseal::{unseal, unseal_alone};
use crate::vma::{self, Kind, Vma};
use crate::{offset, remap};
use linux_raw_sys::general as k;

/// `madvise(2)` with the meaning it has on anonymous memory.
///
/// # Safety
/// As `madvise(2)`: some advice discards contents.
pub unsafe fn madvise(addr: usize, len: usize, advice: u32) -> Result<()> {
    // SAFETY: the program's own call.
    let real = || unsafe { sys::madvise(addr, len, advice) };
    // Between what is asked here and what is done upon it no other thread may seal.
    let inside = STATE.inside();
    // What the kernel refuses, or need not do, before it looks at memory (madvise_should_skip).
    let wraps = len.checked_next_multiple_of(PAGE).and_then(|len| addr.checked_add(len)).is_none();
    if !STATE.sealed() || !addr.is_multiple_of(PAGE) || len == 0 || wraps {
        return real();
    }
    let range = Range::pages_of(addr, len);
    if PROPERTIES.contains(&advice) {
        STATE.properties_change();
    }
    match advice {
        k::MADV_DONTNEED | k::MADV_DONTNEED_LOCKED | k::MADV_FREE => {
            // MADV_FREE refuses whatever isn't anonymous: one call tells whether there is more to do.
            // SAFETY: the contents are given up anyway, from the start of the range to where this stops.
            match unsafe { sys::madvise(addr, len, k::MADV_FREE) } {
                Ok(()) if advice == k::MADV_FREE => Ok(()),
                Ok(()) => real(),
                // SAFETY: the program asked for it.
                Err(_) => unsafe { discard(range, advice) },
            }
        }
        // A file private to the process can't be punched; anonymous memory answers EINVAL (madvise_remove).
        k::MADV_REMOVE if holds_sealed(range) => Err(Errno::EINVAL),
        // Wiping works on anonymous memory only, and protects secrets: it must not seem to have been done.
        k::MADV_WIPEONFORK => {
            let _inside = make_anonymous(range, inside)?;
            real()
        }
        // These work on sealed memory too, only less well: where it can't be made anonymous the kernel decides.
        k::MADV_DONTFORK | k::MADV_DONTDUMP | k::MADV_MERGEABLE | k::MADV_GUARD_INSTALL => {
            let _inside = make_anonymous(range, inside);
            real()
        }
        _ => real(),
    }
}

/// Advice that gives memory a property which [`crate::never_seal`] minds, or takes it away.
const PROPERTIES: [u32; 9] = [
    k::MADV_DONTFORK,
    k::MADV_DOFORK,
    k::MADV_WIPEONFORK,
    k::MADV_KEEPONFORK,
    k::MADV_DONTDUMP,
    k::MADV_DODUMP,
    k::MADV_MERGEABLE,
    k::MADV_UNMERGEABLE,
    k::MADV_GUARD_INSTALL,
];

/// Milliseconds to wait for another thread's seal.
const ATTEMPTS: usize = 5000;

/// Prepares a range for a call whose meaning depends on it being anonymous. Nobody seals it again before the guard is dropped.
pub(crate) fn make_anonymous(range: Range, inside: Inside<'static>) -> Result<Inside<'static>> {
    let mut inside = inside;
    for _ in 0..ATTEMPTS {
        if !holds_sealed(range) {
            return Ok(inside);
        }
        // The unseal would wait for ourselves.
        drop(inside);
        match unseal(range) {
            Ok(_) => {}
            Err(Error::Busy) => sys::pause_briefly(),
            Err(_) => return Err(Errno::EINVAL),
        }
        inside = STATE.inside();
    }
    Err(Errno::EINVAL)
}

/// Drops the contents of a range; the next read gives zeros, or a file's bytes where a file is mapped. Pages that are only to
/// be freed may be gone at once, so zeros are right there too.
///
/// It goes through the range in order, as the kernel does, because an error ends it there: what lies behind is not discarded.
///
/// # Safety
/// The program asked for it.
unsafe fn discard(range: Range, advice: u32) -> Result<()> {
    let mut at = range.start;
    let mut gaps = Ok(());
    let mut plain = |part: Range| {
        // SAFETY: the program's own call, on the part of it that is not sealed.
        match unsafe { sys::madvise(part.start, part.len(), advice) } {
            // Some of it isn't mapped; the rest was done, and so will be what follows.
            Err(Errno::ENOMEM) => gaps = Err(Errno::ENOMEM),
            other => other?,
        }
        Ok(())
    };
    for_each_sealed(range, |part, v| {
        plain(Range::new(at, part.start))?;
        at = part.end;
        if part.len() < HUGE && unseal_alone(blocks_around(part, v.range)).is_ok() {
            // A hole in the middle of sealed memory makes three VMAs of one; a block of anonymous memory takes any number.
            return plain(part);
        }
        // SAFETY: the program gave these pages up.
        unsafe { remap::fresh(part, v.prot)? };
        for advice in offset::advices(offset::advice_of_sealed(v)) {
            // SAFETY: none of these discards. Advice is only that.
            let _ = unsafe { sys::madvise(part.start, part.len(), advice) };
        }
        Ok(())
    })?;
    plain(Range::new(at, range.end))?;
    gaps
}

/// The 2 MB blocks that a part of a VMA touches, as far as they lie in it.
fn blocks_around(part: Range, vma: Range) -> Range {
    Range::new(part.start & !(HUGE - 1), part.end.next_multiple_of(HUGE)).intersect(vma)
}

/// Before `mlock(2)` and its kin: locking sealed memory would copy every page of it. Where it can't be turned back the lock is
/// still correct.
pub fn before_lock(addr: usize, len: usize) {
    make_ready(Range::pages_of(addr, len));
}

/// Before something that must find all memory anonymous (userfaultfd, `mlockall(2)`).
pub fn before_all() {
    make_ready(Range::ALL);
}

fn make_ready(range: Range) {
    STATE.properties_change();
    for _ in 0..ATTEMPTS {
        // Another thread's seal comes to an end, and it minds what has changed.
        if !STATE.sealed() || unseal(range) != Err(Error::Busy) {
            return;
        }
        sys::pause_briefly();
    }
}

/// Whether a range holds sealed memory.
pub(crate) fn holds_sealed(range: Range) -> bool {
    let mut found = false;
    // If maps can't be read we can't know: treat it as sealed, which is the careful answer for every caller.
    for_each_sealed(range, |_, _| {
        found = true;
        Ok(())
    })
    .is_err()
        || found
}

/// Calls `each` with the parts of `range` that are sealed.
fn for_each_sealed(range: Range, mut each: impl FnMut(Range, &Vma) -> Result<()>) -> Result<()> {
    let arena = Arena::map()?;
    let result = vma::for_each(c"/proc/thread-self/maps", &mut arena.text, |v| {
        let part = v.range.intersect(range);
        if v.kind == Kind::Sealed && !part.is_empty() {
            each(part, v)?;
        }
        Ok(())
    });
    arena.unmap();
    result
}
