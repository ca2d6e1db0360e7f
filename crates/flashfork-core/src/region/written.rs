//! What was written to a region, found and copied back.
//!
//! A page that was touched has an entry in the page table. It is either the memfd's, which was read, and is protected
//! when it is found, by the region's [`super::watch`]; or it is a copy of the process's own, which was written. Such a
//! page is copied back and stays writable: one that is written again and again costs no fault any more. Pages that were
//! written once upon a time are copied in vain, so when that has become dearer than faults all are protected anew, and
//! those that differ copied. Where nothing was touched there is no page table to look through.
//!
//! Always true: a protected page holds what it held at the seal. So pages are protected first and looked at then, never
//! the other way round, because another process may write at any time.
//!
//! Copying writes to memory. What would make that a signal is seen to first: each time the kernel is asked how the
//! region is mapped now. Whatever can't be done is an error, on which the caller drops everything, which is right at
//! any time.

use super::watch::WATCHED;
use crate::proc::lookup::{self, Wanted};
use crate::proc::scan::{self, Ask, FILE, HUGE_PAGE, PRESENT, Region, SWAPPED, WRITTEN, ZERO};
use crate::proc::text;
use crate::proc::vma::Vma;
use crate::range::Range;
use crate::scratch;
use crate::state::STATE;
use crate::sys::{self, Errno, PAGE, PROT_READ, PROT_WRITE, Result, Status};
use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use linux_raw_sys::general as k;

/// As many pages may be copied in vain without a thought.
const FEW: usize = 192;
/// As many pages are copied in the time of one fault.
const FAULT: usize = 10;
/// Pages kept, by a region that writes few at a time, and for each that it writes: more are not worth their memory.
const KEPT: usize = 4096;
const KEPT_EACH: usize = 16;
/// Pages to a word of a map of bits.
const WORD: usize = usize::BITS as usize;

/// What a scan finds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Find {
    /// Pages that are not protected. A 2 MB page is the memfd's, and left out.
    Touched,
    /// The same, and protects them.
    Protecting,
    /// Pages that are not the memfd's, protected or not. This takes ten times as long.
    Own,
}

/// A region whose written pages can be told.
#[derive(Debug)]
pub(super) struct Written {
    range: Range,
    /// Where the memfd is mapped for reading.
    source: Range,
    file: Status,
    /// A bit for each page: whether a copy of it was found, which may be gone by now.
    copies: Range,
    /// How many were.
    kept: usize,
    /// Whether the processor has protection keys.
    has_keys: bool,
    /// Pages found the last time, and when all had been protected anew the last time.
    found: usize,
    least: Option<usize>,
    /// Pages copied in vain since.
    vain: usize,
}

impl Written {
    /// For a region that holds no copy: all has just been dropped. Nothing is protected at first; before Linux 6.10 a
    /// protection may have outlived the watch that it was for, but not the page.
    pub fn begin(range: Range, source: Range, file: Status) -> Result<Written> {
        let len = (range.len() / PAGE / 8).next_multiple_of(PAGE);
        let at = scratch::map(len)?;
        let copies = Range::new(at, at + len);
        let has_keys = has_protection_keys();
        let new = Written { range, source, file, copies, kept: 0, has_keys, found: 0, least: None, vain: 0 };
        // Where that fails the map goes with it.
        WATCHED.begin(range)?;
        Ok(new)
    }

    /// Takes a part back to what it held at the seal. The part is whole pages.
    pub fn take_back(&mut self, part: Range) -> Result<()> {
        if !WATCHED.watches(self.range) {
            return Err(Errno::ESTALE);
        }
        self.is_mapped_as_before()?;
        let fd = text::open(c"/proc/thread-self/pagemap", sys::O_RDONLY)?;
        let done = self.with_all_keys(|this| this.copy_back(fd, part));
        sys::close(fd);
        if done == Err(Errno::EPERM) {
            // Not registered: this is a clone, and the descriptor its parent's watch.
            WATCHED.leave(self.range);
        }
        done
    }

    /// Whether all of the region is mapped privately from its memfd and may be written, and the memfd read beside it.
    fn is_mapped_as_before(&self) -> Result<()> {
        const READ_WRITE: u32 = PROT_READ | PROT_WRITE;
        let mut reached = self.range.start;
        let mut readable = false;
        let mut told = |v: &Vma| {
            let is_file = v.inode == self.file.inode && sys::device(v.device) == self.file.device && !v.shared;
            // Where the file's first byte would be.
            let first = v.range.start.wrapping_sub(v.offset as usize);
            if is_file && first == self.range.start && v.prot & READ_WRITE == READ_WRITE && v.range.start <= reached {
                reached = reached.max(v.range.end);
            }
            if is_file && first == self.source.start && v.prot & PROT_READ != 0 && v.range.end >= self.source.end {
                readable = v.range.start <= self.source.start;
            }
            Some(v.range.end)
        };
        let all = Range::new(self.range.start, self.source.end);
        if lookup::ask(all, Wanted::All, &mut [], Some(&mut told), &mut |_, _| Ok(()))?.is_none() {
            lookup::for_each(all, Wanted::All, |v| {
                told(v);
                Ok(())
            })?;
        }
        if reached >= self.range.end && readable { Ok(()) } else { Err(Errno::EFAULT) }
    }

    fn copy_back(&mut self, fd: i32, part: Range) -> Result<()> {
        let all = part == self.range;
        let anew = all && self.found > FEW && self.vain > FAULT * self.found;
        let find = if anew { Find::Protecting } else { Find::Touched };
        let mut found = 0;
        for_each_run::<256>(fd, part, find, |run| {
            let mut rest = run.range();
            while !rest.is_empty() {
                let known = self.is_copy(rest.start);
                let piece = Range::new(rest.start, self.end_of(known, rest));
                rest.start = piece.end;
                found += match (known, run.has(SWAPPED)) {
                    (true, false) => self.put_back(piece, anew),
                    (true, true) => discard(piece).map(|()| 0)?,
                    (false, _) => self.look_at(fd, piece)?,
                };
            }
            Ok(())
        })?;
        if !all {
            return Ok(());
        }
        let least = *self.least.get_or_insert(found);
        self.vain += found.saturating_sub(least);
        if anew {
            (self.least, self.vain) = (Some(found), 0);
        }
        self.found = found;
        if self.kept > KEPT + KEPT_EACH * least { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Takes pages back of which it isn't known whether they are copies, and protects those that are none. How many
    /// were copies.
    fn look_at(&mut self, fd: i32, pages: Range) -> Result<usize> {
        for_each_run::<32>(fd, pages, Find::Protecting, |_| Ok(()))?;
        let mut found = 0;
        for_each_run::<32>(fd, pages, Find::Own, |run| {
            if run.has(SWAPPED) {
                return discard(run.range());
            }
            (run.range().start..run.range().end).step_by(PAGE).for_each(|page| self.note_copy(page));
            found += self.put_back(run.range(), false);
            Ok(())
        })?;
        Ok(found)
    }

    /// Copies pages back, or only those that differ. How many it copied.
    fn put_back(&self, pages: Range, only_different: bool) -> usize {
        let source = |page: usize| self.source.start + (page - self.range.start);
        if !only_different {
            // SAFETY: inside the region, which is writable, and its memfd, which is readable, apart from it and as long
            // (`is_mapped_as_before`).
            unsafe { sys::copy_bytes(source(pages.start), pages.start, pages.len()) };
            return pages.len() / PAGE;
        }
        let mut copied = 0;
        for page in (pages.start..pages.end).step_by(PAGE) {
            // SAFETY: as above.
            unsafe {
                if !sys::same_page(source(page), page) {
                    sys::copy_bytes(source(page), page, PAGE);
                    copied += 1;
                }
            }
        }
        copied
    }

    /// The word with a page's bit, and the bit.
    fn bit(&self, page: usize) -> (*mut usize, usize) {
        let index = (page - self.range.start) / PAGE;
        ((self.copies.start + index / WORD * size_of::<usize>()) as *mut usize, 1 << (index % WORD))
    }

    fn is_copy(&self, page: usize) -> bool {
        let (word, bit) = self.bit(page);
        // SAFETY: inside the mapping of our own that `begin` has made, which has a bit for each page of the region.
        unsafe { word.read() & bit != 0 }
    }

    fn note_copy(&mut self, page: usize) {
        if !self.is_copy(page) {
            let (word, bit) = self.bit(page);
            // SAFETY: as above.
            unsafe { word.write(word.read() | bit) };
            self.kept += 1;
        }
    }

    /// Where pages end that are alike in this.
    fn end_of(&self, known: bool, pages: Range) -> usize {
        (pages.start..pages.end).step_by(PAGE).find(|page| self.is_copy(*page) != known).unwrap_or(pages.end)
    }

    /// Runs `f` when no protection key forbids this thread anything: neither drops nor faults of the kernel mind them.
    fn with_all_keys<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        if !self.has_keys {
            return f(self);
        }
        // SAFETY: the processor has such keys, and the system has switched them on.
        let keys = unsafe { protection_keys() };
        // SAFETY: as above. They are put back below; only this function's accesses come in between.
        unsafe { set_protection_keys(0) };
        let done = f(self);
        // SAFETY: as above.
        unsafe { set_protection_keys(keys) };
        done
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // A sandbox might end the program for these calls.
        if !STATE.is_sandboxed() {
            WATCHED.end(self.range);
        }
        // SAFETY: a mapping of our own. A failure would leak it, no more.
        let _ = unsafe { sys::munmap(self.copies.start, self.copies.len()) };
    }
}

/// Whether memory may have protection keys (pkeys(7)).
fn has_protection_keys() -> bool {
    const OSPKE: u32 = 1 << 4;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & OSPKE != 0
}

/// # Safety
/// [`has_protection_keys`].
unsafe fn protection_keys() -> u32 {
    let keys;
    // SAFETY: reads a register.
    unsafe { asm!("rdpkru", in("ecx") 0, out("eax") keys, out("edx") _, options(nostack, preserves_flags)) };
    keys
}

/// # Safety
/// [`has_protection_keys`]. Accesses of this thread may be allowed or not from then on.
unsafe fn set_protection_keys(keys: u32) {
    // SAFETY: the caller says so. Not without `nomem`: accesses stay on their side of it.
    unsafe { asm!("wrpkru", in("eax") keys, in("ecx") 0, in("edx") 0, options(nostack, preserves_flags)) };
}

/// Calls `each` with the runs of pages looked for, in order of address; asks for `N` at a time.
fn for_each_run<const N: usize>(
    fd: i32,
    range: Range,
    find: Find,
    each: impl FnMut(Region) -> Result<()>,
) -> Result<()> {
    let (all, none) = match find {
        Find::Touched | Find::Protecting => (WRITTEN, HUGE_PAGE),
        Find::Own => (0, ZERO | FILE),
    };
    let protect = find == Find::Protecting;
    let ask = Ask { all, none, any: PRESENT | SWAPPED, told: SWAPPED, protect, watched: true };
    scan::for_each(fd, range, ask, &mut [Region::default(); N], each)
}

/// Drops pages that are not in memory. What is protected or a guard stays so.
fn discard(range: Range) -> Result<()> {
    // SAFETY: part of the region, which falls back to its memfd.
    unsafe { sys::madvise(range.start, range.len(), k::MADV_DONTNEED_LOCKED) }
}
