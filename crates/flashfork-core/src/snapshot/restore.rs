//! Goes back to a snapshot.

use super::table::{Change, Entry, Saved, Table, Treatment};
use super::{Error, Step, asm, check, compare, limits};
use crate::proc::pagemap::{Pagemap, Which};
use crate::proc::vma::Kind;
use crate::range::{Range, subtract};
use crate::seal::offset;
use crate::seal::remap::ATTEMPTS;
use crate::state::STATE;
use crate::sys::{
    self, ADDRESSES, Errno, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PAGE, PROT_READ, PROT_WRITE,
};
use linux_raw_sys::general as k;

/// Checks, changes, and goes to where the snapshot was taken; returns only when it is refused, and has then changed
/// nothing.
///
/// Runs on the arena's stack, with signals blocked.
pub fn restore(table: &mut Table, value: u64) -> Error {
    let ready = check::check(table)
        .and_then(|()| compare::compare(table))
        .and_then(|()| check::files_are_long_enough(table))
        .and_then(|()| {
            let regions =
                core::ptr::slice_from_raw_parts_mut(table.arena.regions.as_mut_ptr(), table.arena.regions.len());
            // SAFETY: nothing else uses this buffer of the arena from here on.
            Pagemap::open(unsafe { &mut *regions }).map_err(|e| Error::System(Step::Look, e))
        })
        .and_then(|pagemap| Ok((pagemap, limits::Lifted::begin(&table.needs)?)));
    let (mut pagemap, lifted) = match ready {
        Ok(ready) => ready,
        Err(error) => return error,
    };
    hold_edges(table);
    change_mappings(table);
    put_advice_back(table);
    join_pieces(table);
    drop_written(table, &mut pagemap);
    drop(pagemap);
    copy_back(table);
    drop(lifted);
    put_descriptors_back(table);
    // SAFETY: memory from the stack pointer up is what it was.
    unsafe { asm::resume(table.stack_pointer, value) }
}

/// Makes a call that must not fail: tried for a second, and then the process is killed.
pub fn must<T>(mut call: impl FnMut() -> sys::Result<T>) -> T {
    for _ in 0..ATTEMPTS {
        if let Ok(value) = call() {
            return value;
        }
        sys::pause_briefly();
    }
    sys::die(sys::getpid())
}

/// Holds what is kept of pages whose mapping is going to be replaced.
fn hold_edges(table: &mut Table) {
    let Table { edges, edge_count, held, changes, change_count, entries, entry_count, .. } = table;
    for (edge, held) in edges[..*edge_count].iter_mut().zip(held) {
        let page = Range::pages_of(edge.page, 1);
        let replaced = |change: &Change| matches!(change, Change::Map(range, _) if !range.intersect(page).is_empty());
        let joined = |entry: &Entry| entry.in_pieces && entry.range.contains(page.start);
        let goes = changes[..*change_count].iter().any(replaced) || entries[..*entry_count].iter().any(joined);
        // Where nothing can be read nothing is lost.
        edge.held = goes && sys::read_own(page.start, held).is_ok();
    }
}

fn change_mappings(table: &Table) {
    let changes = &table.changes[..table.change_count];
    if !table.locks {
        // Nothing was locked, nor to be locked from then on. First of all, or what is mapped again would be.
        must(sys::munlockall);
    }
    let was = table.program_break;
    // SAFETY: what was allocated since the snapshot goes.
    let move_break = || if unsafe { sys::brk(was) } == was { Ok(()) } else { Err(Errno::ENOMEM) };
    if sys::program_break() > was {
        // First, while all of what lies above is mapped: the kernel doesn't lower the break over a hole.
        must(move_break);
    }
    for change in changes {
        if let Change::Unmap(range) = change {
            // SAFETY: nothing was here.
            must(|| unsafe { sys::munmap(range.start, range.len()) });
        }
    }
    // Room for a break that had been lower since is there now; what comes back there is mapped below.
    must(move_break);
    for change in changes {
        match change {
            Change::Unmap(_) => {}
            Change::Unlock(range) => must(|| sys::munlock(range.start, range.len())),
            // SAFETY: as it was.
            Change::Protect(range, prot) => must(|| unsafe { sys::mprotect(range.start, range.len(), *prot) }),
            Change::Map(range, entry) => {
                let entry = &table.entries[*entry as usize];
                must(|| map(entry, *range, table.fd));
            }
        }
    }
}

/// Maps a part of an entry's mapping again, like the rest of it: the kernel makes one mapping of both then, if it can.
fn map(entry: &Entry, range: Range, memfd: Option<i32>) -> sys::Result<()> {
    let flags = MAP_PRIVATE | MAP_FIXED;
    let (flags, fd, offset) = match (entry.kind, memfd) {
        (Kind::Sealed, Some(fd)) => {
            STATE.set_sealed(range);
            (flags | MAP_NORESERVE, fd, entry.offset + (range.start - entry.range.start) as u64)
        }
        _ if entry.advice & offset::UNRESERVED != 0 => (flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
        _ => (flags | MAP_ANONYMOUS, -1, 0),
    };
    // Memory is charged as soon as it may be written, and stays so once some was.
    let charge = entry.charged && entry.prot & PROT_WRITE == 0;
    let prot = entry.prot | if charge { PROT_WRITE } else { 0 };
    // SAFETY: what is here now was not here then.
    let map = |flags| unsafe { sys::mmap(range.start, range.len(), prot, flags, fd, offset) };
    // Better not charged than not there.
    map(flags).or_else(|_| map(flags | MAP_NORESERVE))?;
    if charge {
        // SAFETY: memory just mapped; it becomes zeros, or what is copied there, below.
        unsafe {
            let _ = sys::madvise(range.start, PAGE, k::MADV_POPULATE_WRITE);
            sys::mprotect(range.start, range.len(), entry.prot)?;
        }
    }
    for advice in offset::advices(entry.advice) {
        // SAFETY: advice about huge pages and read-ahead discards nothing; without it things are only slower.
        let _ = unsafe { sys::madvise(range.start, range.len(), advice) };
    }
    Ok(())
}

/// Makes one mapping again of what was one, for calls that take no more than one (`mremap(2)`). The kernel merges what
/// it has reason to; it has none where memory was moved or inherited, or was advised about huge pages since. That is
/// mapped anew as a whole: all it held was copied, or is in the memfd.
fn join_pieces(table: &Table) {
    for entry in table.entries[..table.entry_count].iter().filter(|entry| entry.in_pieces && entry.renewable) {
        let range = entry.range;
        if is_one_mapping(range) || !may_be_mapped(entry) {
            continue;
        }
        must(|| map(entry, range, table.fd));
        for advice in entry.treatment.into_iter().flat_map(Treatment::advice) {
            must(|| advise(range, advice));
        }
    }
}

/// Whether a range lies in one mapping: growing it beyond all addresses fails in any case, and if it doesn't, for
/// another reason.
fn is_one_mapping(range: Range) -> bool {
    // SAFETY: there is no room for that anywhere.
    range.end > ADDRESSES || unsafe { sys::mremap(range.start, range.len(), ADDRESSES, 0, 0) } != Err(Errno::EFAULT)
}

/// Whether the kernel lets an entry be mapped as a whole: none of it is immutable (`mseal(2)`), and there is room for
/// that much in one.
fn may_be_mapped(entry: &Entry) -> bool {
    let range = entry.range;
    // SAFETY: the protection it has; and a mapping that nobody uses.
    unsafe {
        sys::mprotect(range.start, range.len(), entry.prot).is_ok()
            && sys::mmap(0, range.len(), entry.prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                .and_then(|at| sys::munmap(at, range.len()))
                .is_ok()
    }
}

/// Drops pages written since that had no content of their own.
///
/// Sealed memory is dropped whole, as a region is ([`crate::region`]): looking for what was written there takes longer,
/// and more each time, because what was only read stays mapped in small pages.
fn drop_written(table: &Table, pagemap: &mut Pagemap) {
    let entries = &table.entries[..table.entry_count];
    let saved = &table.saved[..table.saved_count];
    let sealed = |e: &Entry| e.kind == Kind::Sealed && e.renewable;
    for part in entries.chunk_by(|a, b| sealed(a) == sealed(b)) {
        let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
        if sealed(first) {
            for entry in part {
                discard(entry.range);
                if table.guards {
                    // After the discard, which leaves next to no page tables to go through, and leaves guards.
                    remove_guards(entry.range);
                }
            }
        } else if pagemap.has_scan() {
            // One walk over all: holes cost nothing.
            let mut dropper = Dropper { entries: part, saved, guards: table.guards };
            let whole = Range::new(first.range.start, last.range.end);
            must(|| pagemap.for_each_told(whole, Which::Written, |found, out| dropper.found(found, out)));
        } else {
            for entry in part.iter().filter(|e| e.contents) {
                let mut dropper = Dropper { entries: core::slice::from_ref(entry), saved, guards: false };
                must(|| pagemap.for_each(entry.range, Which::Written, |found| dropper.found(found, false)));
            }
        }
    }
}

/// What lies ahead of a walk in order of address.
struct Dropper<'a> {
    entries: &'a [Entry],
    saved: &'a [Saved],
    guards: bool,
}

impl Dropper<'_> {
    /// `out`: the pages are swapped out, or guards.
    fn found(&mut self, found: Range, out: bool) {
        self.entries = &self.entries[self.entries.partition_point(|e| e.range.end <= found.start)..];
        self.saved = &self.saved[self.saved.partition_point(|s| s.range.end <= found.start)..];
        for entry in self.entries.iter().take_while(|e| e.range.start < found.end) {
            if out && self.guards {
                // There were none: the snapshot would have been refused.
                remove_guards(found.intersect(entry.range));
            }
            if !entry.contents {
                continue;
            }
            let mut rest = found.intersect(entry.range);
            for copied in self.saved.iter().take_while(|s| s.range.start < rest.end) {
                discard(Range::new(rest.start, copied.range.start.min(rest.end)));
                rest.start = rest.start.max(copied.range.end);
            }
            discard(rest);
        }
    }
}

fn discard(range: Range) {
    if !range.is_empty() {
        // SAFETY: written since the snapshot, and no copied page is among it.
        must(|| unsafe { sys::madvise(range.start, range.len(), k::MADV_DONTNEED_LOCKED) });
    }
}

/// What was under a guard stays as it is: nothing, or the page that is copied back.
fn remove_guards(range: Range) {
    must(|| {
        // SAFETY: pages that raised a signal raise none.
        match unsafe { sys::madvise(range.start, range.len(), k::MADV_GUARD_REMOVE) } {
            // Of files before Linux 6.15: there can be none.
            Err(Errno::EINVAL) => Ok(()),
            other => other,
        }
    });
}

/// What forks, core dumps and merging do with each mapping, as it was. Whole runs at once: the kernel passes over what
/// is not mapped, and says so.
fn put_advice_back(table: &Table) {
    let entries = &table.entries[..table.entry_count];
    for run in entries.chunk_by(|a, b| a.treatment == b.treatment && !b.apart) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        for advice in first.treatment.into_iter().flat_map(Treatment::advice) {
            // A mapping of the kernel's own that came in between since (that of uprobes) lets no run pass.
            if advise(Range::new(first.range.start, last.range.end), advice).is_err() {
                run.iter().for_each(|entry| must(|| advise(entry.range, advice)));
            }
        }
    }
}

/// Gives a range one of the advices of a [`Treatment`]; what is not mapped there is passed over.
fn advise(range: Range, advice: u32) -> sys::Result<()> {
    // SAFETY: none of these touches contents here and now.
    match unsafe { sys::madvise(range.start, range.len(), advice) } {
        Err(Errno::ENOMEM) => Ok(()),
        // A kernel that merges nothing.
        Err(Errno::EINVAL) if advice == k::MADV_UNMERGEABLE => Ok(()),
        other => other,
    }
}

/// Copies back the copied pages that differ.
fn copy_back(table: &Table) {
    for saved in &table.saved[..table.saved_count] {
        let prot = table.entries[saved.entry as usize].prot;
        let copy = table.view.start + saved.at;
        let protect = |range: Range, prot| {
            // SAFETY: nobody else runs; it is put back below.
            must(|| unsafe { sys::mprotect(range.start, range.len(), prot) });
        };
        if prot & PROT_READ == 0 {
            protect(saved.range, PROT_READ | PROT_WRITE);
            each_page(saved.range, copy, |page, from| put(page, from, table));
            protect(saved.range, prot);
            continue;
        }
        each_page(saved.range, copy, |page, from| {
            // SAFETY: both pages are mapped and readable, the one by the snapshot's protection, the other for reading.
            if unsafe { same(page.start, from) } && table.held(page).is_none() {
                return;
            }
            if prot & PROT_WRITE == 0 {
                protect(page, PROT_READ | PROT_WRITE);
                put(page, from, table);
                protect(page, prot);
            } else {
                put(page, from, table);
            }
        });
    }
}

fn each_page(range: Range, copy: usize, mut each: impl FnMut(Range, usize)) {
    for at in (range.start..range.end).step_by(PAGE) {
        each(Range::new(at, at + PAGE), copy + (at - range.start));
    }
}

/// Copies a page back, but for what is kept: that stays, or comes from where it is held.
fn put(page: Range, from: usize, table: &Table) {
    let keep = &table.keep[..table.keep_count];
    subtract(page, keep, |part| {
        // SAFETY: the page is writable, the copy readable, and they are apart.
        unsafe { sys::copy_bytes(from + (part.start - page.start), part.start, part.len()) };
    });
    let Some(held) = table.held(page) else { return };
    for part in keep.iter().map(|keep| keep.intersect(page)).filter(|part| !part.is_empty()) {
        // SAFETY: as above; a held page is as long as a page.
        unsafe { sys::copy_bytes(held.as_ptr() as usize + (part.start - page.start), part.start, part.len()) };
    }
}

/// Whether two pages hold the same, without libc.
///
/// # Safety
/// Both are readable.
unsafe fn same(one: usize, other: usize) -> bool {
    const WORDS: usize = PAGE / 8;
    // SAFETY: the caller says so; nobody writes meanwhile.
    let (one, other) = unsafe { (&*(one as *const [u64; WORDS]), &*(other as *const [u64; WORDS])) };
    one.iter().zip(other).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

fn put_descriptors_back(table: &Table) {
    for (fd, _, offset) in &table.offsets[..table.offset_count] {
        must(|| sys::set_file_offset(*fd, *offset));
    }
    let open = &table.open[..table.open_count];
    if open.is_empty() {
        return;
    }
    let mut free = 0;
    for fd in open.iter().copied().chain([i32::MAX]) {
        if free < fd {
            must(|| sys::close_range(free, fd - 1));
        }
        free = fd.saturating_add(1);
    }
}
