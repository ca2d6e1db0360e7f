//! Aside: the pages that a seal or an unseal replaces are kept until they have been compared with what took their place.
//!
//! Other processes write into this one's memory without asking: `process_vm_writev(2)`, `/proc/PID/mem`, `ptrace(2)`. The engine
//! can't stop them, and what they write after the copy would go with the old pages. So a step's old pages are moved to addresses of
//! the engine's own (`mremap(2)` takes the pages themselves, with whatever was written until then), compared with the copy, what
//! differs is brought into the copy, and only then the copy takes their place. In between nothing is mapped there: who writes at that
//! moment is told `EFAULT`, or `EIO` by `/proc/PID/mem`, and nothing is lost.
//!
//! Who had a page in hand before it was moved (`pin_user_pages_remote`), and was interrupted before he wrote, writes into the old one
//! later. So old pages stay for a while and are compared once more before they are freed; and they stay for longer where somebody has
//! been seen to write.

use crate::range::Range;
use crate::remap::{self, ATTEMPTS};
use crate::state::STATE;
use crate::sys::{
    self, Errno, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PAGE, PROT_NONE, PROT_READ, PROT_WRITE, Result,
};
use core::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// Bytes replaced at a time: nothing is mapped there while they are compared, some tens of microseconds.
pub const STEP: usize = 256 << 10;

/// Most bytes kept at a time, where nobody is known to write and where somebody is. The former are still in the processor's cache when
/// they are compared once more: 16 MB would make a seal take twice as long.
const FEW: usize = 1 << 20;
const MOST: usize = 16 << 20;

/// Most steps kept at a time: some are shorter.
const STEPS: usize = 2 * MOST / STEP;

/// Where somebody writes, old pages stay at least this long, in nanoseconds: longer than a process is usually kept from running.
const GRACE: u64 = 5_000_000;

/// How often what is kept is compared again, as long as each time something has changed.
const LOOKS: usize = 20;

/// A step whose old pages are kept.
#[derive(Clone, Copy)]
struct Kept {
    range: Range,
    prot: u32,
    /// Where the old pages are.
    old: usize,
    /// Where the bytes are that were compared with them last, writable.
    known: usize,
}

/// See the module. All of it is given up, after a last look, when it is dropped.
pub struct Aside {
    /// Addresses reserved for old pages, or none.
    place: Range,
    used: usize,
    kept: [Kept; STEPS],
    count: usize,
    somebody_writes: bool,
}

impl Aside {
    /// Reserves addresses, few where there are few (`RLIMIT_AS`).
    pub fn reserve() -> Result<Aside> {
        let none = Kept { range: Range::default(), prot: 0, old: 0, known: 0 };
        let place = reserve(MOST).or_else(|_| reserve(STEP))?;
        Ok(Aside { place, used: 0, kept: [none; STEPS], count: 0, somebody_writes: false })
    }

    /// Bytes kept now.
    pub fn kept(&self) -> usize {
        self.used
    }

    /// Moves the pages of `range` out of the program's sight; gives their address. What is to be done next is [`Aside::keep`] or
    /// [`Aside::put_back`].
    ///
    /// On an error they are where they were.
    ///
    /// # Safety
    /// No thread of this process uses `range` until something is mapped there again. It is at most a [`STEP`], in one mapping.
    pub unsafe fn take(&mut self, range: Range) -> Result<usize> {
        let most = if self.somebody_writes { MOST } else { FEW };
        if self.used + range.len() > most.min(self.place.len()) || self.count == STEPS {
            self.settle();
        }
        if self.place.is_empty() {
            self.place = reserve(STEP)?;
        }
        let old = self.place.start + self.used;
        // Should this fail and leave a hole here, the hole is ours to close.
        self.used += range.len();
        // SAFETY: the target is ours; the caller answers for the source.
        unsafe { sys::mremap_fixed(range.start, range.len(), old) }.map(|()| old)
    }

    /// Brings what was written meanwhile from the old pages, just taken, into the copy at `copy`.
    ///
    /// # Safety
    /// Both are mapped, the old pages readable, the copy writable and nobody else's.
    pub unsafe fn amend(&mut self, old: usize, copy: usize, len: usize) {
        for at in (0..len).step_by(PAGE) {
            // SAFETY: the caller says so.
            unsafe {
                if !sys::same_page(old + at, copy + at) {
                    sys::copy_bytes(old + at, copy + at, PAGE);
                    self.somebody_writes = true;
                }
            }
        }
    }

    /// Keeps the old pages of `range`, which holds its new ones with protection `prot`. `known`: the bytes of the old pages, as they
    /// were compared, writable until the next [`Aside::settle`].
    pub fn keep(&mut self, range: Range, prot: u32, old: usize, known: usize) {
        self.kept[self.count] = Kept { range, prot, old, known };
        self.count += 1;
    }

    /// Puts old pages back where they were taken from, because nothing could take their place.
    ///
    /// # Safety
    /// As [`Aside::take`]; `prot` is what the range had.
    pub unsafe fn put_back(&mut self, range: Range, prot: u32, old: usize) {
        for _ in 0..ATTEMPTS {
            // SAFETY: nothing is mapped at the target, and the source is ours.
            if unsafe { sys::mremap_fixed(old, range.len(), range.start) }.is_ok() {
                return;
            }
            // SAFETY: the hole is ours to fill; the bytes come from the old pages.
            let filled = unsafe {
                remap::fresh(range, prot | PROT_WRITE).and_then(|()| {
                    sys::mprotect(old, range.len(), PROT_READ)?;
                    sys::copy_bytes(old, range.start, range.len());
                    sys::mprotect(range.start, range.len(), prot)
                })
            };
            if filled.is_ok() {
                return;
            }
            sys::pause_briefly();
        }
        STATE.die()
    }

    /// Compares all that is kept once more, or, where somebody writes, until nothing has changed for a while; gives it up then.
    pub fn settle(&mut self) {
        for _ in 0..LOOKS {
            if self.somebody_writes {
                sys::sleep_ns(GRACE);
            }
            if !self.look() {
                break;
            }
        }
        self.count = 0;
        if self.used == 0 {
            return;
        }
        let used = Range::new(self.place.start, self.place.start + self.used);
        self.used = 0;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
        // SAFETY: the addresses are ours.
        if unsafe { sys::mmap(used.start, used.len(), PROT_NONE, flags, -1, 0) }.is_err() {
            self.give_up();
        }
    }

    /// Brings what was written into old pages since the last look to where it belongs; whether there was anything.
    fn look(&mut self) -> bool {
        let mut found = false;
        for kept in &self.kept[..self.count] {
            for at in (0..kept.range.len()).step_by(PAGE) {
                // SAFETY: both are mapped and readable as long as they are kept.
                if !unsafe { sys::same_page(kept.old + at, kept.known + at) } {
                    found = true;
                    kept.follow(at);
                }
            }
        }
        self.somebody_writes |= found;
        found
    }

    fn give_up(&mut self) {
        // SAFETY: the addresses are ours. A failure would leak them, no more.
        let _ = unsafe { sys::munmap(self.place.start, self.place.len()) };
        self.place = Range::default();
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.settle();
        self.give_up();
    }
}

fn reserve(len: usize) -> Result<Range> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a fresh mapping that nothing may access.
    let at = unsafe { sys::mmap(0, len, PROT_NONE, flags, -1, 0) }?;
    Ok(Range::new(at, at + len))
}

impl Kept {
    /// Takes over the bytes of a page that differ. What was written to the new page meanwhile is younger, and stays.
    fn follow(&self, at: usize) {
        let page = Range::new(self.range.start + at, self.range.start + at + PAGE);
        let writable = self.prot & PROT_WRITE != 0;
        if !writable && protect(page, PROT_READ | PROT_WRITE).is_err() {
            return;
        }
        for i in at..at + PAGE {
            // SAFETY: within the step, whose pages are mapped at all three places; others write here only through the kernel.
            let [old, known, new] = [self.old, self.known, self.range.start]
                .map(|base| unsafe { AtomicU8::from_ptr((base + i) as *mut u8) });
            let (value, before) = (old.load(SeqCst), known.load(SeqCst));
            if value != before {
                // Where the new page is still the copy itself it has the byte now.
                known.store(value, SeqCst);
                if new.load(SeqCst) == before {
                    let _ = new.compare_exchange(before, value, SeqCst, SeqCst);
                }
            }
        }
        if !writable {
            // Where memory is so short that this fails for a second, the page stays writable; its bytes are right.
            let _ = protect(page, self.prot);
        }
    }
}

fn protect(page: Range, prot: u32) -> Result<()> {
    for _ in 0..ATTEMPTS {
        // SAFETY: a page of the program's, which does not run.
        match unsafe { sys::mprotect(page.start, page.len(), prot) } {
            Ok(()) => return Ok(()),
            Err(_) => sys::pause_briefly(),
        }
    }
    Err(Errno::ENOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory filled with a byte.
    fn filled(len: usize, byte: u8) -> Range {
        // SAFETY: a fresh mapping.
        let at = unsafe { sys::mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) }.unwrap();
        // SAFETY: all of it is ours.
        unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len) }.fill(byte);
        Range::new(at, at + len)
    }

    fn byte(at: usize) -> &'static mut u8 {
        // SAFETY: the tests pass addresses in memory of their own, which stays.
        unsafe { &mut *(at as *mut u8) }
    }

    /// Replaces memory by its copy, as a seal does, with a write between copy and remap.
    fn replaced(aside: &mut Aside, prot: u32) -> (Range, usize, usize) {
        let (range, copy) = (filled(4 * PAGE, 1), filled(4 * PAGE, 1).start);
        *byte(range.start + PAGE + 7) = 2;
        // SAFETY: only this test uses these.
        let old = unsafe {
            let old = aside.take(range).unwrap();
            assert!(!sys::is_mapped(range.start, PAGE));
            aside.amend(old, copy, range.len());
            sys::mmap(range.start, range.len(), prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0).unwrap();
            sys::mprotect(range.start, range.len(), PROT_READ | PROT_WRITE).unwrap();
            sys::copy_bytes(copy, range.start, range.len());
            sys::mprotect(range.start, range.len(), prot).unwrap();
            old
        };
        aside.keep(range, prot, old, copy);
        (range, old, copy)
    }

    #[test]
    fn what_was_written_before_the_remap_is_in_the_copy_and_what_comes_later_follows() {
        for prot in [PROT_READ | PROT_WRITE, PROT_READ] {
            let mut aside = Aside::reserve().unwrap();
            let (range, old, _) = replaced(&mut aside, prot);
            assert_eq!((*byte(range.start + PAGE + 7), *byte(range.start)), (2, 1));
            // Somebody had the page in hand, and writes now.
            *byte(old + 3 * PAGE) = 3;
            assert!(aside.look());
            assert_eq!((*byte(range.start + 3 * PAGE), *byte(range.start + 3 * PAGE + 1)), (3, 1));
            assert!(!aside.look());
            if prot & PROT_WRITE != 0 {
                // What the new page got meanwhile is younger.
                *byte(range.start + 9) = 4;
                (*byte(old + 9), *byte(old + 10)) = (5, 5);
                aside.settle();
                assert_eq!((*byte(range.start + 9), *byte(range.start + 10)), (4, 5));
            }
            assert_eq!(aside.kept(), if prot & PROT_WRITE != 0 { 0 } else { range.len() });
        }
    }

    #[test]
    fn old_pages_go_back_and_places_are_used_again() {
        let mut aside = Aside::reserve().unwrap();
        let range = filled(STEP, 7);
        for _ in 0..3 * MOST / STEP {
            // SAFETY: only this test uses it.
            unsafe {
                let old = aside.take(range).unwrap();
                aside.put_back(range, PROT_READ | PROT_WRITE, old);
            }
            assert_eq!((*byte(range.start), *byte(range.end - 1)), (7, 7));
        }
        for _ in 0..2 * STEPS {
            replaced(&mut aside, PROT_READ | PROT_WRITE);
        }
        assert!(aside.kept() <= MOST && aside.count <= STEPS && aside.somebody_writes);
    }

    #[test]
    fn pages_are_compared_to_the_last_byte() {
        let (one, other) = (filled(PAGE, 1).start, filled(PAGE, 1).start);
        // SAFETY: both are whole pages of ours.
        assert!(unsafe { sys::same_page(one, other) });
        for at in [0, 1, 15, 16, 31, 33, 47, 48, 63, 64, 2000, PAGE - 1] {
            *byte(other + at) = 2;
            // SAFETY: as above.
            assert!(!unsafe { sys::same_page(one, other) }, "{at}");
            *byte(other + at) = 1;
        }
    }
}
