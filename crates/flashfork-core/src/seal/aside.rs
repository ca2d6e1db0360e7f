//! Aside: the pages that a seal or an unseal replaces are kept until they have been compared with what took their
//! place.
//!
//! Other processes write into this one's memory without asking: `process_vm_writev(2)`, `/proc/PID/mem`, `ptrace(2)`.
//! The engine can't stop them, and what they write after the copy would go with the old pages. So a step's old pages
//! are moved to addresses of the engine's own (`mremap(2)` takes the pages themselves, with whatever was written until
//! then); then they are compared with the copy, and what differs is brought into it, or the copy is only made now; and
//! only then the copy takes their place. In between nothing is mapped there: who writes at that moment is told
//! `EFAULT`, or `EIO` by `/proc/PID/mem`, and nothing is lost.
//!
//! Who had a page in hand before it was moved (`pin_user_pages_remote`), and was interrupted before he wrote, writes
//! into the old one later. So old pages stay for a while and are compared once more before they are freed; and they
//! stay for longer where somebody has been seen to write.
//!
//! An unseal looks at those pages alone that were written since the seal: nobody can write into a page of the memfd,
//! because whoever gets hold of a page to write to it makes it the mapping's own first.

use super::kept::{BLOCK, Kept, Pages};
use super::properties::is_guard;
use super::remap::{self, ATTEMPTS};
use crate::proc::pagemap::{Pagemap, Which};
use crate::proc::scan::Region;
use crate::range::Range;
use crate::state::STATE;
use crate::sys::{
    self, Errno, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PAGE, PROT_NONE, PROT_READ, PROT_WRITE, Result,
};
use linux_raw_sys::general as k;

/// Bytes that a seal replaces at a time where it compares them: nothing is mapped there for some tens of microseconds.
/// Where it copies them meanwhile it replaces a [`BLOCK`], because 2 MB pages move in one piece, not in 512.
pub const STEP: usize = 256 << 10;

/// Most bytes kept at a time, where nobody is known to write and where somebody is. The former are still in the
/// processor's cache when they are compared once more: 16 MB would make a seal take twice as long.
const FEW: usize = 1 << 20;
pub const MOST: usize = 16 << 20;

/// Most steps kept at a time: some are shorter.
const STEPS: usize = 2 * MOST / STEP;

/// Where somebody writes, old pages stay at least this long, in nanoseconds: longer than a process is usually kept from
/// running.
const GRACE: u64 = 5_000_000;

/// How often what is kept is compared again, as long as each time something has changed.
const LOOKS: usize = 20;

/// See the module. All of it is given up, after a last look, when it is dropped.
pub struct Aside {
    /// Addresses reserved for old pages, or none.
    place: Range,
    /// In an unseal: for each of those addresses another, where the bytes are that were found there.
    known: Range,
    /// Most bytes in one step.
    step: usize,
    used: usize,
    kept: [Kept; STEPS],
    count: usize,
    /// Whether the steps kept were not compared when they were taken, so that who writes has to be noticed otherwise.
    unwatched: bool,
    somebody_writes: bool,
}

impl Aside {
    /// Reserves addresses for a seal, few where there are few (`RLIMIT_AS`).
    pub fn reserve() -> Result<Aside> {
        let place = reserve_blocks(MOST).or_else(|_| reserve(STEP, PROT_NONE))?;
        Ok(Aside::at(place, Range::default(), STEP))
    }

    /// The same for an unseal.
    pub fn for_unseal() -> Result<Aside> {
        let both = |len| {
            let place = reserve(len, PROT_NONE)?;
            let known = reserve(len, PROT_READ | PROT_WRITE).inspect_err(|_| give_back(place))?;
            Ok(Aside::at(place, known, BLOCK))
        };
        both(MOST).or_else(|_: Errno| both(BLOCK))
    }

    fn at(place: Range, known: Range, step: usize) -> Aside {
        let none = Kept { range: Range::default(), prot: 0, old: 0, known: 0, pages: Pages::default() };
        Aside { place, known, step, used: 0, kept: [none; STEPS], count: 0, unwatched: false, somebody_writes: false }
    }

    /// Most memory that what is kept may take.
    pub fn most(&self) -> usize {
        let most = if self.somebody_writes { MOST } else { FEW.max(self.step) }.min(self.place.len());
        if self.known.is_empty() { most } else { 2 * most }
    }

    /// Most bytes of a step that is copied after it was moved.
    pub fn largest_step(&self) -> usize {
        if self.place.len() < BLOCK { self.step } else { BLOCK }
    }

    /// Whether there is room for [`MOST`] bytes of whole blocks.
    pub fn holds_blocks(&self) -> bool {
        self.place.len() >= MOST
    }

    /// Bytes kept now.
    pub fn kept(&self) -> usize {
        self.used
    }

    /// Moves the pages of `range` out of the program's sight; gives their address. What is to be done next is
    /// [`Aside::keep`] or [`Aside::put_back`].
    ///
    /// On an error they are where they were.
    ///
    /// # Safety
    /// No thread of this process uses `range` until something is mapped there again. It is at most a step, in one
    /// mapping.
    pub unsafe fn take(&mut self, range: Range) -> Result<usize> {
        let most = if self.somebody_writes { MOST } else { FEW };
        if self.used + range.len() > most.min(self.place.len()) || self.count == STEPS {
            self.settle();
        }
        if self.place.len() < range.len() {
            self.give_up();
            self.place = reserve(self.step.max(range.len()), PROT_NONE)?;
        }
        let old = self.place.start + self.used;
        self.used += range.len();
        // SAFETY: the target is ours; the caller answers for the source.
        let taken = unsafe { sys::mremap_fixed(range.start, range.len(), old) };
        taken.map(|()| old).inspect_err(|_| self.close(old))
    }

    /// Reserves the addresses again from which pages, the last that were taken, have gone or to which they have not
    /// come. Where that fails the place ends before them.
    fn close(&mut self, old: usize) {
        let hole = Range::new(old, self.place.start + self.used);
        self.used -= hole.len();
        // An mremap that failed early has left the reservation there.
        if !sys::is_mapped(hole.start, hole.len()) && reserve_at(hole, k::MAP_FIXED_NOREPLACE).is_err() {
            give_back(Range::new(hole.end, self.place.end));
            self.place.end = hole.start;
        }
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

    /// Copies the old pages, just taken, to `copy`.
    ///
    /// # Safety
    /// As [`Aside::amend`], and no page of either is out of memory.
    pub unsafe fn transfer(&mut self, old: usize, copy: usize, len: usize) {
        // SAFETY: the caller says so.
        unsafe { sys::copy_bytes(old, copy, len) };
        self.unwatched = true;
    }

    /// Writes the old pages, just taken, to a file.
    ///
    /// # Safety
    /// As [`Aside::amend`], but any page may turn out to be unreadable, which is an error.
    pub unsafe fn send(&mut self, old: usize, fd: i32, offset: u64, len: usize) -> Result<()> {
        self.unwatched = true;
        sys::pwrite_all(fd, old, len, offset)
    }

    /// Keeps the old pages of `range`, which holds its new ones with protection `prot`. `known`: the bytes of the old
    /// pages, as they were compared, writable until the next [`Aside::settle`].
    pub fn keep(&mut self, range: Range, prot: u32, old: usize, known: usize) {
        self.kept[self.count] = Kept { range, prot, old, known, pages: Pages::first(range.len()) };
        self.count += 1;
    }

    /// Unseals `range`: puts the copy at `copy` in its place, with what was written meanwhile, and keeps the old pages.
    /// `finish` gives the copy what the range has, protection `prot` among it. On an error the old pages are where they
    /// were.
    ///
    /// # Safety
    /// As [`Aside::take`]; the old pages are readable, and the copy is writable, nobody else's, and holds what they
    /// held a moment ago.
    pub unsafe fn exchange(
        &mut self,
        range: Range,
        prot: u32,
        copy: usize,
        pagemap: Option<&mut Pagemap>,
        finish: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        // SAFETY: the caller answers for it.
        let old = unsafe { self.take(range) }?;
        let known = self.known.start + (old - self.place.start);
        // SAFETY: the old pages are the engine's own now; the caller answers for the copy, which is moved to where
        // nothing is mapped.
        let moved = unsafe {
            self.learn(old, known, copy, range.len(), pagemap).and_then(|pages| {
                finish()?;
                sys::mremap_fixed(copy, range.len(), range.start)?;
                Ok(pages)
            })
        };
        match moved {
            Ok(pages) => {
                self.kept[self.count] = Kept { range, prot, old, known, pages };
                self.count += 1;
                Ok(())
            }
            Err(e) => {
                // SAFETY: taken from there just now.
                unsafe { self.put_back(range, prot, old) };
                Err(e)
            }
        }
    }

    /// Which of the old pages, just taken, were written since the seal; their bytes are brought to `known`, and into
    /// the copy.
    ///
    /// # Safety
    /// As [`Aside::exchange`].
    unsafe fn learn(
        &mut self,
        old: usize,
        known: usize,
        copy: usize,
        len: usize,
        pagemap: Option<&mut Pagemap>,
    ) -> Result<Pages> {
        let (mut pages, range) = (Pages::default(), Range::new(old, old + len));
        match pagemap {
            // A guard can't be read, and nobody can have written to it. The kernel counts it among what is swapped out.
            Some(pagemap) => pagemap.for_each_told(range, Which::Written, |found, out| {
                let found = found.intersect(range);
                let found = (found.start..found.end).step_by(PAGE).filter(|at| !out || !is_guard(*at));
                found.for_each(|at| pages.add((at - old) / PAGE));
            })?,
            None => (0..len / PAGE).filter(|page| !is_guard(old + page * PAGE)).for_each(|page| pages.add(page)),
        }
        pages.for_each(|at| {
            // SAFETY: all three are mapped; the caller answers for the old pages and the copy.
            unsafe {
                sys::copy_bytes(old + at, known + at, PAGE);
                if !sys::same_page(known + at, copy + at) {
                    sys::copy_bytes(known + at, copy + at, PAGE);
                    self.somebody_writes = true;
                }
            }
        });
        Ok(pages)
    }

    /// Puts old pages back where they were taken from, because nothing could take their place.
    ///
    /// # Safety
    /// As [`Aside::take`]; `prot` is what the range had.
    pub unsafe fn put_back(&mut self, range: Range, prot: u32, old: usize) {
        for attempt in 0..ATTEMPTS {
            // SAFETY: nothing is mapped at the target, and the source is ours.
            if unsafe { sys::mremap_fixed(old, range.len(), range.start) }.is_ok() {
                if attempt > 0 {
                    // They may have been opened for reading alone.
                    // SAFETY: the protection that they had.
                    unsafe { remap::close(range, prot) };
                }
                return self.close(old);
            }
            // SAFETY: the hole is ours to fill; the bytes come from the old pages.
            let filled = unsafe {
                remap::fresh(range, prot | PROT_WRITE).and_then(|()| {
                    sys::mprotect(old, range.len(), PROT_READ)?;
                    for at in (0..range.len()).step_by(PAGE) {
                        match is_guard(old + at) {
                            true => sys::madvise(range.start + at, PAGE, k::MADV_GUARD_INSTALL)?,
                            false => sys::copy_bytes(old + at, range.start + at, PAGE),
                        }
                    }
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

    /// Compares all that is kept once more, or, where somebody writes, until nothing has changed for a while; gives it
    /// up then.
    pub fn settle(&mut self) {
        self.somebody_writes |= self.unwatched && self.count > 0 && self.written_since();
        self.unwatched = false;
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
        if reserve_at(used, MAP_FIXED).is_err() {
            self.give_up();
        }
    }

    /// Whether somebody has written to the new pages already: the program itself does not run. True too where that
    /// can't be told.
    fn written_since(&self) -> bool {
        let mut regions = [Region::default(); 8];
        let Ok(mut pagemap) = Pagemap::open(&mut regions) else { return true };
        self.kept[..self.count].iter().any(|kept| {
            let mut written = false;
            pagemap.for_each(kept.range, Which::Written, |_| written = true).is_err() || written
        })
    }

    /// Brings what was written into old pages since the last look to where it belongs; whether there was anything.
    fn look(&mut self) -> bool {
        let mut found = false;
        for kept in &self.kept[..self.count] {
            kept.pages.for_each(|at| {
                // SAFETY: both are mapped and readable as long as they are kept.
                if !unsafe { sys::same_page(kept.old + at, kept.known + at) } {
                    found = true;
                    kept.follow(at);
                }
            });
        }
        self.somebody_writes |= found;
        found
    }

    fn give_up(&mut self) {
        give_back(self.place);
        self.place = Range::default();
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.settle();
        self.give_up();
        give_back(self.known);
    }
}

/// Reserves whole blocks: to anywhere else a 2 MB page would move as 512 small ones.
fn reserve_blocks(len: usize) -> Result<Range> {
    let all = reserve(len + BLOCK, PROT_NONE)?;
    let start = all.start.next_multiple_of(BLOCK);
    let blocks = Range::new(start, start + len);
    for rest in [Range::new(all.start, blocks.start), Range::new(blocks.end, all.end)] {
        give_back(rest);
    }
    Ok(blocks)
}

fn reserve(len: usize, prot: u32) -> Result<Range> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a fresh mapping.
    let at = unsafe { sys::mmap(0, len, prot, flags, -1, 0) }?;
    Ok(Range::new(at, at + len))
}

/// Reserves addresses that are the place's own, with `MAP_FIXED` or `MAP_FIXED_NOREPLACE`.
fn reserve_at(range: Range, fixed: u32) -> Result<usize> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed;
    // SAFETY: what may lie there are old pages that nobody needs any more.
    unsafe { sys::mmap(range.start, range.len(), PROT_NONE, flags, -1, 0) }
}

fn give_back(range: Range) {
    if !range.is_empty() {
        // SAFETY: the addresses are ours. A failure would leak them, no more.
        let _ = unsafe { sys::munmap(range.start, range.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test in a child, where no other thread is: addresses are free for moments, in which another test's thread
    /// would map something there.
    fn alone(test: fn()) {
        // SAFETY: the child has this thread, calls the test, and ends without the harness.
        match unsafe { libc::fork() } {
            0 => {
                let done = std::panic::catch_unwind(test);
                // What the harness would show is kept in the child's memory.
                let said = done.as_ref().err().and_then(|said| said.downcast_ref::<String>());
                let said = said.map_or("", |said| said);
                // SAFETY: as above; the bytes are ours.
                unsafe {
                    libc::write(2, said.as_ptr().cast(), said.len());
                    libc::_exit(i32::from(done.is_err()))
                }
            }
            child => {
                let mut status = 0;
                // SAFETY: our own child.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0, "how the child ended");
            }
        }
    }

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
        alone(|| {
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
        });
    }

    /// Nothing is compared when pages are copied after they were moved, so a writer shows only in the new ones.
    #[test]
    fn who_writes_to_what_was_moved_and_then_copied_is_noticed() {
        alone(|| {
            let mut aside = Aside::reserve().unwrap();
            for writes in [false, true] {
                let (range, copy) = (filled(BLOCK, 1), filled(BLOCK, 0).start);
                let fd = sys::memfd_create(c"aside").unwrap();
                // SAFETY: only this test uses these.
                unsafe {
                    let old = aside.take(range).unwrap();
                    assert!(old.is_multiple_of(BLOCK));
                    aside.transfer(old, copy, BLOCK);
                    sys::ftruncate(fd, BLOCK as u64).unwrap();
                    sys::pwrite_all(fd, copy, BLOCK, 0).unwrap();
                    remap::map_sealed(range, PROT_READ | PROT_WRITE, fd, 0).unwrap();
                    aside.keep(range, PROT_READ | PROT_WRITE, old, copy);
                }
                assert_eq!((*byte(range.start), *byte(range.end - 1)), (1, 1));
                if writes {
                    *byte(range.start + 70 * PAGE) = 2;
                }
                aside.settle();
                assert_eq!((aside.somebody_writes, aside.kept()), (writes, 0));
                sys::close(fd);
            }
        });
    }

    #[test]
    fn an_unseal_takes_over_what_was_written_since_the_copy_and_later_and_reads_nothing_else() {
        alone(|| {
            let fd = sys::memfd_create(c"aside").unwrap();
            sys::ftruncate(fd, BLOCK as u64).unwrap();
            // SAFETY: a fresh mapping.
            let at = unsafe { sys::mmap(0, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) }.unwrap();
            let range = Range::new(at, at + BLOCK);
            for page in [3, 70, 511] {
                *byte(at + page * PAGE) = 1;
            }
            let copy = filled(BLOCK, 0).start;
            (*byte(copy + 3 * PAGE), *byte(copy + 70 * PAGE)) = (1, 1);
            // Page 511 was written behind the copy's back.
            let mut regions = [crate::proc::scan::Region::default(); 8];
            let mut aside = Aside::for_unseal().unwrap();
            let mut map = Pagemap::open(&mut regions).unwrap();
            // SAFETY: only this test uses these.
            unsafe { aside.exchange(range, PROT_READ | PROT_WRITE, copy, Some(&mut map), || Ok(())) }.unwrap();
            drop(map);
            assert_eq!([3, 4, 70, 511].map(|page| *byte(at + page * PAGE)), [1, 0, 1, 1]);
            let old = aside.kept[0].old;
            *byte(old + 70 * PAGE + 5) = 2;
            let mut seen = Vec::new();
            aside.kept[0].pages.for_each(|at| seen.push(at / PAGE));
            assert_eq!(seen, [3, 70, 511]);
            aside.settle();
            assert_eq!((*byte(at + 70 * PAGE), *byte(at + 70 * PAGE + 5), aside.kept()), (1, 2, 0));
            sys::close(fd);
        });
    }

    /// The kernel counts them among what is swapped out.
    #[test]
    fn an_unseal_reads_no_guards() {
        alone(|| {
            let fd = sys::memfd_create(c"aside").unwrap();
            sys::ftruncate(fd, BLOCK as u64).unwrap();
            // SAFETY: a fresh mapping.
            let at = unsafe { sys::mmap(0, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) }.unwrap();
            *byte(at + 3 * PAGE) = 1;
            // SAFETY: a page of it, which nobody reads.
            if unsafe { sys::madvise(at + 4 * PAGE, PAGE, k::MADV_GUARD_INSTALL) }.is_err() {
                return; // before Linux 6.15 files have none
            }
            let copy = filled(BLOCK, 0).start;
            let mut regions = [crate::proc::scan::Region::default(); 8];
            let mut aside = Aside::for_unseal().unwrap();
            let mut map = Pagemap::open(&mut regions).unwrap();
            // SAFETY: only this test uses these.
            unsafe {
                aside.exchange(Range::new(at, at + BLOCK), PROT_READ | PROT_WRITE, copy, Some(&mut map), || Ok(()))
            }
            .unwrap();
            let mut seen = Vec::new();
            aside.kept[0].pages.for_each(|at| seen.push(at / PAGE));
            assert_eq!((seen, *byte(at + 3 * PAGE)), (vec![3], 1));
            drop(map);
            aside.settle();
            sys::close(fd);
        });
    }

    #[test]
    fn an_exchange_that_fails_leaves_everything_as_it_was() {
        alone(|| {
            let (range, copy) = (filled(4 * PAGE, 1), filled(4 * PAGE, 1).start);
            let mut regions = [crate::proc::scan::Region::default(); 8];
            let mut map = Pagemap::open(&mut regions).unwrap();
            let mut aside = Aside::for_unseal().unwrap();
            // SAFETY: only this test uses these.
            let failed =
                unsafe { aside.exchange(range, PROT_READ | PROT_WRITE, copy, Some(&mut map), || Err(Errno::ENOMEM)) };
            assert_eq!((failed, *byte(range.start), *byte(range.end - 1)), (Err(Errno::ENOMEM), 1, 1));
            *byte(range.start) = 3;
            drop(aside);
            assert_eq!(*byte(range.start), 3);
        });
    }

    #[test]
    fn old_pages_go_back_and_places_are_used_again() {
        alone(|| {
            let mut aside = Aside::reserve().unwrap();
            let range = filled(STEP, 7);
            for _ in 0..3 * MOST / STEP {
                // SAFETY: only this test uses it.
                unsafe {
                    let old = aside.take(range).unwrap();
                    aside.put_back(range, PROT_READ | PROT_WRITE, old);
                }
                assert_eq!((*byte(range.start), *byte(range.end - 1)), (7, 7));
                assert!(aside.used == 0 && sys::is_mapped(aside.place.start, aside.place.len()), "no hole is left");
            }
            for _ in 0..2 * STEPS {
                replaced(&mut aside, PROT_READ | PROT_WRITE);
            }
            assert!(aside.kept() <= MOST && aside.count <= STEPS && aside.somebody_writes);
        });
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
