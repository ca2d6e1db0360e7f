//! Mutexes that the main thread holds and that only their owner can unlock: its clones have another number, so they
//! never could, and whoever waits for one would wait for ever (pthread_mutex_lock(3), "recursive", "error-checking",
//! "robust", priority inheritance).
//!
//! Nobody knows where they lie. So all memory that the program has written is searched for what looks like one: glibc's
//! `struct __pthread_mutex_s` (sysdeps/nptl/bits/struct_mutex.h). What looks like one by chance is a refusal in vain.

use super::frozen::Frozen;
use super::unfit::{Unfit, What};
use crate::proc::pagemap::{Pagemap, Region, Which};
use crate::proc::vma::{self, Kind};
use crate::range::Range;
use crate::sys::{self, PROT_READ, PROT_WRITE, Result};

/// Regions that the kernel tells at a time.
const REGIONS: usize = 256;
/// Of the structure: where its owner lies, and bytes that are looked at.
const OWNER: usize = 8;
const LENGTH: usize = 20;

/// Refuses a program whose main thread holds one.
pub fn check(frozen: &mut Frozen) -> core::result::Result<(), Unfit> {
    let at = &raw const *frozen as usize;
    let own = Range::new(at, at + size_of::<Frozen>());
    let Frozen { text, list, pid, .. } = frozen;
    let mut regions = [Region::default(); REGIONS];
    let mut pagemap = Pagemap::open(&mut regions)?;
    let mut held = false;
    vma::for_each_mapping(text, |v, _| {
        if held
            || v.shared
            || v.prot & (PROT_READ | PROT_WRITE) != PROT_READ | PROT_WRITE
            || own.contains(v.range.start)
        {
            return Ok(());
        }
        match v.kind {
            Kind::File => held = has_one(v.range, *pid, list),
            _ => pagemap.for_each(v.range, Which::Populated, |pages| held = held || has_one(pages, *pid, list))?,
        }
        Ok(())
    })?;
    if held { Err(Unfit::new(What::Mutex, 0)) } else { Ok(()) }
}

/// Whether one lies in a range, as far as it can be read; `chunk` is for copies of it.
fn has_one(range: Range, tid: i32, chunk: &mut [u8]) -> bool {
    let mut at = range.start;
    while at < range.end {
        let len = chunk.len().min(range.end - at);
        // What can't be read (a guard) ends the rest of a run: the next one begins behind it.
        if sys::read_own(at, &mut chunk[..len]).is_err() {
            return false;
        }
        let owned = |(_, word): &(usize, &[u8])| word.starts_with(&tid.to_ne_bytes());
        let mut all = chunk[..len].chunks_exact(8).enumerate().filter(owned);
        if all.any(|(i, _)| is_held(at + 8 * i - OWNER, tid).unwrap_or(false)) {
            return true;
        }
        at += len;
    }
    false
}

/// Whether what lies there is a mutex that a thread holds and nobody else can unlock.
fn is_held(at: usize, tid: i32) -> Result<bool> {
    let mut bytes = [0; LENGTH];
    sys::read_own(at, &mut bytes)?;
    let mut words = bytes.chunks_exact(4).map(|word| word.try_into().map_or(0, u32::from_ne_bytes));
    let mut next = || words.next().unwrap_or(0);
    let [lock, count, owner, users, kind] = [next(), next(), next(), next(), next()];
    Ok(owner == tid as u32 && holds(lock, count, users, kind, tid as u32))
}

/// By the fields of a mutex whose owner is `tid`.
fn holds(lock: u32, count: u32, users: u32, kind: u32, tid: u32) -> bool {
    const TYPE: u32 = 3;
    const RECURSIVE: u32 = 1;
    const ERRORCHECK: u32 = 2;
    const ROBUST: u32 = 0x10;
    const INHERITS: u32 = 0x20;
    /// With `PTHREAD_PRIO_PROTECT`, shared, and what elision has decided.
    const KNOWN: u32 = TYPE | ROBUST | INHERITS | 0x40 | 0x80 | 0x100 | 0x200;
    const MOST_USERS: u32 = 1 << 16;
    const NUMBER: u32 = 0x3fff_ffff;
    if kind & !KNOWN != 0 || users == 0 || users > MOST_USERS {
        return false;
    }
    let by_number = kind & (ROBUST | INHERITS) != 0;
    let is_locked = if by_number { lock & NUMBER == tid } else { lock != 0 && (lock <= 2 || kind & 0x40 != 0) };
    let asks_for_owner = match kind & TYPE {
        RECURSIVE => count > 0,
        ERRORCHECK => true,
        _ => by_number,
    };
    is_locked && asks_for_owner
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    #[test]
    fn mutexes_that_only_their_owner_unlocks_are_found() {
        let tid = sys::gettid();
        // SAFETY: plain calls; a mutex of zeros is initialised before it is used, and stays where it is.
        let held = |kind: i32, inherits: bool, robust: bool| unsafe {
            let mut how = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
            libc::pthread_mutexattr_init(how.as_mut_ptr());
            libc::pthread_mutexattr_settype(how.as_mut_ptr(), kind);
            if inherits {
                libc::pthread_mutexattr_setprotocol(how.as_mut_ptr(), libc::PTHREAD_PRIO_INHERIT);
            }
            if robust {
                libc::pthread_mutexattr_setrobust(how.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST);
            }
            let mutex: &mut libc::pthread_mutex_t = Box::leak(Box::new(std::mem::zeroed()));
            libc::pthread_mutex_init(mutex, how.as_ptr());
            let at = &raw mut *mutex as usize;
            let before = is_held(at, tid).unwrap();
            libc::pthread_mutex_lock(mutex);
            let page = Range::new(at & !7, at + size_of::<libc::pthread_mutex_t>());
            let found = has_one(page, tid, &mut [0; 64]);
            libc::pthread_mutex_unlock(mutex);
            (before, found, is_held(at, tid).unwrap())
        };
        let (normal, recursive, checking) =
            (libc::PTHREAD_MUTEX_NORMAL, libc::PTHREAD_MUTEX_RECURSIVE, libc::PTHREAD_MUTEX_ERRORCHECK);
        assert_eq!(held(normal, false, false), (false, false, false), "anybody unlocks it");
        for (kind, inherits, robust) in [
            (recursive, false, false),
            (checking, false, false),
            (normal, true, false),
            (normal, false, true),
            (recursive, true, true),
        ] {
            assert_eq!(held(kind, inherits, robust), (false, true, false), "{kind} {inherits} {robust}");
        }
    }
}
