//! Which pages of a private file mapping are copies of this process's own: /proc/PID/pagemap, which every kernel has,
//! or `PAGEMAP_SCAN` (Linux 6.7, ioctl_pagemap_scan(2)), which skips what isn't there and can protect what it finds.

use linux_raw_sys::general::{
    PAGE_IS_FILE, PAGE_IS_PRESENT, PAGE_IS_SWAPPED, PAGE_IS_WRITTEN, PM_SCAN_CHECK_WPASYNC, PM_SCAN_WP_MATCHING,
    page_region as Region, pm_scan_arg as Ask,
};
use rustix::ioctl::{Opcode, opcode::read_write};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::{fs::File, io, ops::Range, os::fd::AsRawFd, os::unix::fs::FileExt};

/// `PAGEMAP_SCAN` of linux/fs.h.
pub(crate) const SCAN: Opcode = read_write::<Ask>(b'f', 16);

pub(super) const PAGE: usize = 4096;

/// Runs asked for at a time.
const RUNS: usize = 512;

/// Entries read at a time, where there is nothing better.
const ENTRIES: usize = 2048;

/// Bits of an entry (Documentation/admin-guide/mm/pagemap.rst): in memory, swapped out, and a file's page.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// Which copies are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    All,
    /// Those that were written since they were protected. All of the range is watched by a userfaultfd.
    Written,
    /// The same, and they are protected, beside the file's pages that are there: what has been protected the kernel
    /// passes over without a look at whose it is. So many at most.
    Protect(usize),
}

/// What a scan asks of each page that is there.
#[derive(Clone, Copy)]
struct Asked {
    /// The range is watched, and the page was written since it was protected.
    written: bool,
    /// It is no file's.
    own: bool,
    /// It is to be protected, and so are so many at most.
    protect: Option<usize>,
}

/// The page map of this process (/proc/self/pagemap), kept open.
///
/// Who has it learns of each of the process's pages whether it is there and a file's, but not where in the host's
/// memory it lies.
#[derive(Debug)]
pub(super) struct Pagemap {
    file: File,
    scans: bool,
}

impl Pagemap {
    /// Opens it, and tries whether this kernel has `PAGEMAP_SCAN`.
    pub(super) fn open() -> io::Result<Self> {
        let file = without_privilege(|| File::open("/proc/self/pagemap"))??;
        let mut map = Self { file, scans: true };
        let here = std::ptr::from_ref(&map) as usize & !(PAGE - 1);
        map.scans = map.copies(here..here + PAGE, Which::All, |_| ()).is_ok();
        Ok(map)
    }

    /// Whether it can tell what was written.
    pub(super) fn scans(&self) -> bool {
        self.scans
    }

    /// Calls `each` with the runs of such pages in `range`, by address and in order. Runs that touch may come apart.
    /// Gives where it has come to.
    pub(super) fn copies(
        &self,
        range: Range<usize>,
        which: Which,
        mut each: impl FnMut(Range<usize>),
    ) -> io::Result<usize> {
        const ALL: Asked = Asked { written: false, own: true, protect: None };
        const WRITTEN: Asked = Asked { written: true, own: false, protect: None };
        match which {
            Which::All if !self.scans => self.read(range, &mut each),
            Which::All => self.scan(range, ALL, &mut told(each)),
            // Whose a page is shows in a structure of its own, far away: it is asked of the few alone that were
            // written, and the many are passed over fifteen times as fast.
            Which::Written => {
                self.scan(range, WRITTEN, &mut |run, _| self.scan(run, ALL, &mut told(&mut each)).map(drop))
            }
            // Both at once: a page of the file that is written afterwards is found again.
            Which::Protect(most) => self.scan(range, Asked { protect: Some(most), ..WRITTEN }, &mut |run, file| {
                if !file {
                    each(run);
                }
                Ok(())
            }),
        }
    }

    /// Calls `each` with runs of pages, and whether they are a file's if that makes a difference. Gives where it ended.
    fn scan(
        &self,
        mut range: Range<usize>,
        asked: Asked,
        each: &mut dyn FnMut(Range<usize>, bool) -> io::Result<()>,
    ) -> io::Result<usize> {
        const NONE: Region = Region { start: 0, end: 0, categories: 0 };
        let mut runs = [NONE; RUNS];
        let if_so = |so: bool, bit: u32| u64::from(if so { bit } else { 0 });
        let mut most = asked.protect.unwrap_or(usize::MAX);
        while !range.is_empty() && most > 0 {
            let mut ask = Ask {
                size: size_of::<Ask>() as u64,
                flags: if_so(asked.written, PM_SCAN_CHECK_WPASYNC)
                    | if_so(asked.protect.is_some(), PM_SCAN_WP_MATCHING),
                start: range.start as u64,
                end: range.end as u64,
                walk_end: 0,
                vec: runs.as_mut_ptr() as u64,
                vec_len: RUNS as u64,
                max_pages: most as u64,
                // An inverted category must be absent.
                category_inverted: if_so(asked.own, PAGE_IS_FILE),
                category_mask: if_so(asked.own, PAGE_IS_FILE) | if_so(asked.written, PAGE_IS_WRITTEN),
                category_anyof_mask: u64::from(PAGE_IS_PRESENT | PAGE_IS_SWAPPED),
                return_mask: if_so(asked.protect.is_some(), PAGE_IS_FILE),
            };
            // SAFETY: the kernel's structure, and room for as many runs as it says; both outlive the call. Protecting
            // changes nothing that memory holds.
            let found = match unsafe { libc::ioctl(self.file.as_raw_fd(), SCAN.into(), &raw mut ask) } {
                ..0 => match io::Error::last_os_error() {
                    e if e.kind() == io::ErrorKind::Interrupted => continue,
                    e => return Err(e),
                },
                found => runs.get(..found as usize).ok_or(io::ErrorKind::InvalidData)?,
            };
            // `walk_end` stays behind once the kernel's own buffer was full (pagemap_scan in fs/proc/task_mmu.c): what
            // was reported is behind us all the same.
            let pages: usize = found.iter().map(|run| (run.end - run.start) as usize / PAGE).sum();
            let walked = if found.len() < RUNS && pages < most { range.end } else { ask.walk_end as usize };
            let next = found.last().map_or(walked, |last| walked.max(last.end as usize));
            // A filter that answers in the kernel's place leaves it as it was.
            if ask.walk_end == 0 || next <= range.start {
                return Err(io::ErrorKind::InvalidData.into());
            }
            for run in found {
                each(run.start as usize..run.end as usize, run.categories & u64::from(PAGE_IS_FILE) != 0)?;
            }
            (range.start, most) = (next, most.saturating_sub(pages));
        }
        Ok(range.start)
    }

    /// Entry by entry.
    fn read(&self, mut range: Range<usize>, each: &mut dyn FnMut(Range<usize>)) -> io::Result<usize> {
        let mut bytes = [0; ENTRIES * 8];
        while !range.is_empty() {
            let count = (range.len() / PAGE).min(ENTRIES);
            let bytes = &mut bytes[..count * 8];
            self.file.read_exact_at(bytes, (range.start / PAGE * 8) as u64)?;
            let (entries, _) = bytes.as_chunks();
            let is_copy = |entry: &[u8; 8]| {
                let entry = u64::from_ne_bytes(*entry);
                entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0
            };
            let mut at = range.start;
            for run in entries.chunk_by(|one, next| is_copy(one) == is_copy(next)) {
                let end = at + run.len() * PAGE;
                if is_copy(&run[0]) {
                    each(at..end);
                }
                at = end;
            }
            range.start = at;
        }
        Ok(range.end)
    }
}

/// For runs that are not told whose they are.
fn told(mut each: impl FnMut(Range<usize>)) -> impl FnMut(Range<usize>, bool) -> io::Result<()> {
    move |run, _| {
        each(run);
        Ok(())
    }
}

/// Does `what` without effective capabilities: a page map that is opened with `CAP_SYS_ADMIN` tells physical addresses,
/// whoever has it later.
fn without_privilege<T>(what: impl FnOnce() -> T) -> io::Result<T> {
    let before = capabilities(None)?;
    if before.effective.is_empty() {
        return Ok(what());
    }
    set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..before })?;
    let done = what();
    set_capabilities(None, before)?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{self, Reservation};
    use flashfork_proto::shape::Pages;
    use rustix::mm::{MapFlags, ProtFlags};

    #[test]
    fn it_tells_nobody_where_memory_lies_and_takes_no_privilege_away() {
        let before = capabilities(None).unwrap();
        let map = Pagemap::open().unwrap();
        assert_eq!(capabilities(None).unwrap(), before);
        let here = Box::new([1_u8; 2 * PAGE]);
        let mut entry = [0; 8];
        map.file.read_exact_at(&mut entry, (here.as_ptr() as u64).div_ceil(PAGE as u64) * 8).unwrap();
        let entry = u64::from_ne_bytes(entry);
        assert_eq!((entry >> 63, entry & ((1 << 55) - 1)), (1, 0), "present, and nothing of where");
    }

    /// Both ways, of a mapping in which pages were written, read, left alone, and given up after they were written.
    #[test]
    fn copies_are_what_was_written_and_is_still_there_by_either_way() {
        const PAGES: usize = 5000;
        let file = memory::create("flashfork:test", (PAGES * PAGE) as u64, Pages::Small).unwrap();
        rustix::io::pwrite(&file, &[1; 8 * PAGE], 0).unwrap();
        let mut memory = Reservation::new(PAGES * PAGE).unwrap();
        memory.fill(ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE, &file).unwrap();
        let start = memory.start();
        let written = [0..3, 100..101, 2047..2049, 4999..5000];
        for page in written.iter().cloned().flatten().chain(200..300) {
            // SAFETY: in the mapping above, which nobody else knows.
            unsafe { start.add(page * PAGE).write(7) };
        }
        // SAFETY: as above.
        unsafe {
            assert_eq!(start.add(5 * PAGE).read() + start.add(3000 * PAGE).read(), 1);
            libc::madvise(start.add(200 * PAGE).cast(), 100 * PAGE, libc::MADV_DONTNEED);
        }
        let mut map = Pagemap::open().unwrap();
        for scans in [map.scans, false] {
            map.scans = scans;
            let mut found = Vec::new();
            let range = start as usize..start as usize + PAGES * PAGE;
            let pages = |run: &Range<usize>| (run.start - start as usize) / PAGE..(run.end - start as usize) / PAGE;
            map.copies(range, Which::All, |run| found.extend(pages(&run))).unwrap();
            assert_eq!(found, written.iter().cloned().flatten().collect::<Vec<_>>(), "PAGEMAP_SCAN: {scans}");
        }
    }
}
