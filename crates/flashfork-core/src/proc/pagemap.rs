//! Which pages of a range are populated: resident or swapped out, the zero page not among them.
//!
//! `PAGEMAP_SCAN` (Linux 6.7, `ioctl_pagemap_scan(2)`) where there is one: it skips what is not mapped, so that a
//! sparse VMA of terabytes costs milliseconds. Older kernels: `/proc/self/pagemap`, 8 bytes for every page
//! (Documentation/admin-guide/mm/pagemap.rst).

use super::text;
use crate::range::Range;
use crate::sys::{self, Errno, PAGE, Result};

/// Which pages are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Every populated page of anonymous memory.
    Populated,
    /// In sealed memory: pages the process has written since, thus no longer the memfd's.
    Written,
}

#[repr(C)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

const PAGEMAP_SCAN: usize = 0xc060_6610; // _IOWR('f', 16, struct pm_scan_arg)
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;

/// A guard region (Linux 6.14); nothing sets it before.
const PM_GUARD: u64 = 1 << 58;
const PM_PRESENT: u64 = 1 << 63;
const PM_SWAP: u64 = 1 << 62;
const PM_FILE: u64 = 1 << 61;

/// The largest VMA that is read page by page on kernels without `PAGEMAP_SCAN`: 2 GB of pagemap would take seconds.
pub const LARGEST_WITHOUT_SCAN: usize = 256 << 30;

/// An open `/proc/self/pagemap` and a buffer to read it through.
pub struct Pagemap<'a> {
    fd: i32,
    buf: &'a mut [Region],
    scan: bool,
}

impl<'a> Pagemap<'a> {
    /// Opens the page map of the calling process. It must not outlive a fork: the file stays the parent's.
    pub fn open(buf: &'a mut [Region]) -> Result<Pagemap<'a>> {
        let fd = text::open(c"/proc/thread-self/pagemap", sys::O_RDONLY)?;
        let mut map = Pagemap { fd, buf, scan: true };
        map.scan = match map.scan_once(Range::new(PAGE, 2 * PAGE), Which::Populated) {
            Ok(_) => true,
            Err(Errno::ENOTTY | Errno::EINVAL) => false,
            Err(e) => {
                sys::close(fd);
                // Not ours to close again.
                core::mem::forget(map);
                return Err(e);
            }
        };
        Ok(map)
    }

    /// Whether the kernel has `PAGEMAP_SCAN`. Without it the zero page counts as populated.
    pub fn has_scan(&self) -> bool {
        self.scan
    }

    /// Calls `each` with the runs of pages looked for, in order. Runs that touch may come apart.
    pub fn for_each(&mut self, range: Range, which: Which, mut each: impl FnMut(Range)) -> Result<()> {
        self.for_each_told(range, which, |run, _| each(run))
    }

    /// The same, and whether the pages of a run are out of memory: swapped out, or guards, which the kernel counts
    /// among these. Without `PAGEMAP_SCAN`, which is older than guards, that is not told.
    pub fn for_each_told(&mut self, range: Range, which: Which, mut each: impl FnMut(Range, bool)) -> Result<()> {
        if !self.scan {
            return self.read(range, which, |run| each(run, false));
        }
        let mut at = range;
        while !at.is_empty() {
            let (n, walked) = match self.scan_once(at, which) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            let mut done = if n < self.buf.len() { at.end } else { walked };
            for r in &self.buf[..n] {
                each(Range::new(r.start as usize, r.end as usize), r.categories & PAGE_IS_SWAPPED != 0);
                // The kernel's `walk_end` stays behind once its own buffer of 512 regions was full (pagemap_scan in
                // fs/proc/task_mmu.c): what was reported is behind us all the same.
                done = done.max(r.end as usize);
            }
            if done <= at.start {
                return Err(Errno::EIO);
            }
            at.start = done;
        }
        Ok(())
    }

    fn scan_once(&mut self, range: Range, which: Which) -> Result<(usize, usize)> {
        // An inverted category must be absent: pages of the memfd are not written ones, the zero page is not populated.
        let absent = match which {
            Which::Populated => PAGE_IS_PFNZERO,
            Which::Written => PAGE_IS_PFNZERO | PAGE_IS_FILE,
        };
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            flags: 0,
            start: range.start as u64,
            end: range.end as u64,
            walk_end: 0,
            vec: self.buf.as_mut_ptr() as u64,
            vec_len: self.buf.len() as u64,
            max_pages: 0,
            category_inverted: absent,
            category_mask: absent,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            return_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        };
        // SAFETY: `arg` is the kernel's struct and `vec` points to `vec_len` regions of our own.
        let n = unsafe { sys::ioctl(self.fd, PAGEMAP_SCAN, &raw mut arg as usize) }?;
        Ok((n, arg.walk_end as usize))
    }

    fn read(&mut self, range: Range, which: Which, mut each: impl FnMut(Range)) -> Result<()> {
        // SAFETY: the regions are plain words, seen here as the bytes the file gives.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut(self.buf.as_mut_ptr().cast::<u8>(), size_of_val(self.buf) & !7) };
        let mut at = range.start;
        while at < range.end {
            let wanted = ((range.end - at) / PAGE * 8).min(bytes.len());
            let n = sys::pread(self.fd, &mut bytes[..wanted], (at / PAGE * 8) as u64)?;
            if n == 0 {
                return Ok(());
            }
            let mut run = Range::new(at, at);
            for entry in bytes[..n].chunks_exact(8) {
                let e = u64::from_ne_bytes([
                    entry[0], entry[1], entry[2], entry[3], entry[4], entry[5], entry[6], entry[7],
                ]);
                let wanted = e & PM_SWAP != 0 || e & PM_PRESENT != 0 && (which == Which::Populated || e & PM_FILE == 0);
                if !wanted {
                    if !run.is_empty() {
                        each(run);
                    }
                    run.start = at + PAGE;
                }
                at += PAGE;
                run.end = at;
            }
            if !run.is_empty() {
                each(run);
            }
        }
        Ok(())
    }
}

impl Drop for Pagemap<'_> {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

/// Calls `each` with the runs of guard pages (`MADV_GUARD_INSTALL`) in a range; runs that touch may come apart.
pub fn for_each_guard(range: Range, mut each: impl FnMut(Range) -> Result<()>) -> Result<()> {
    let fd = text::open(c"/proc/thread-self/pagemap", sys::O_RDONLY)?;
    let mut entries = [0u8; 1024];
    let mut at = range.start;
    let mut result = Ok(());
    while at < range.end && result.is_ok() {
        let wanted = ((range.end - at).div_ceil(PAGE) * 8).min(entries.len());
        let n = match sys::pread(fd, &mut entries[..wanted], (at / PAGE * 8) as u64) {
            Ok(n) if n >= 8 => n,
            Ok(_) => {
                result = Err(Errno::EIO);
                break;
            }
            Err(Errno::EINTR) => continue,
            Err(e) => {
                result = Err(e);
                break;
            }
        };
        for entry in entries[..n].chunks_exact(8) {
            let guard = entry.try_into().is_ok_and(|e| u64::from_ne_bytes(e) & PM_GUARD != 0);
            if guard && result.is_ok() {
                result = each(Range::new(at, at + PAGE));
            }
            at += PAGE;
        }
    }
    sys::close(fd);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};

    fn populated(map: &mut Pagemap, range: Range) -> Vec<usize> {
        let mut pages = Vec::new();
        map.for_each(range, Which::Populated, |r| {
            pages.extend((r.start..r.end).step_by(PAGE).map(|a| (a - range.start) / PAGE));
        })
        .unwrap();
        pages
    }

    /// A fresh mapping of small pages, of which these are written to.
    fn mapping_of(pages: usize, written: &[usize]) -> Range {
        let len = pages * PAGE;
        // SAFETY: a fresh mapping of our own.
        let at = unsafe {
            let at = sys::mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0).unwrap();
            sys::madvise(at, len, linux_raw_sys::general::MADV_NOHUGEPAGE).unwrap();
            at
        };
        for page in written {
            // SAFETY: inside the mapping.
            unsafe { (at as *mut u8).add(page * PAGE).write(1) };
        }
        Range::new(at, at + len)
    }

    #[test]
    fn finds_the_touched_pages_both_ways() {
        let range = mapping_of(700, &[0, 1, 5, 511, 512, 699]);
        let mut buf = vec![Region::default(); 3];
        let mut map = Pagemap::open(&mut buf).unwrap();
        if map.has_scan() {
            assert_eq!(populated(&mut map, range), [0, 1, 5, 511, 512, 699]);
        }
        map.scan = false;
        assert_eq!(populated(&mut map, range), [0, 1, 5, 511, 512, 699]);
        // SAFETY: the mapping is ours.
        unsafe { sys::munmap(range.start, range.len()).unwrap() };
    }

    #[test]
    fn reports_no_page_twice_however_many_regions_there_are() {
        let wanted: Vec<usize> = (0..6000).step_by(2).collect();
        let range = mapping_of(6000, &wanted);
        for regions in [1, 511, 512, 513, 1500, 3000, 3001] {
            let mut buf = vec![Region::default(); regions];
            let mut map = Pagemap::open(&mut buf).unwrap();
            assert_eq!(populated(&mut map, range), wanted, "{regions} regions");
        }
        // SAFETY: the mapping is ours.
        unsafe { sys::munmap(range.start, range.len()).unwrap() };
    }
}
