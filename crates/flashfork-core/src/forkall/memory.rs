//! Memory of which a fork would not give a clone its own.

use super::frozen::{Frozen, LeftOut, Mapping, Shared};
use super::unfit::{Unfit, What};
use crate::never_seal::Reason;
use crate::proc::vma::{self, Kind, Vma};
use crate::range::Range;
use crate::sys::{self, Errno, MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PAGE, PROT_READ, PROT_WRITE, Result};
use linux_raw_sys::general as k;

/// Most bytes of shared anonymous memory, which each clone copies.
const BYTES: usize = 64 << 20;

/// How the kernel names shared anonymous memory.
pub const ANONYMOUS: &[u8] = b"/dev/zero (deleted)";
/// Files that are memory only. Those without a name (memfd, memfd_secret, huge pages, System V) are deleted files to
/// the kernel.
const MEMORY_FILES: &[u8] = b"/dev/shm/";

/// Looks at all mappings. Memory that forks leave out (`MADV_DONTFORK`; V8 has its heap so) is the program's too.
pub fn look(frozen: &mut Frozen) -> core::result::Result<(), Unfit> {
    let Frozen { text, shared, files, left_out, .. } = frozen;
    (shared.count, left_out.count) = (0, 0);
    let mut unfit = None;
    vma::for_each(c"/proc/thread-self/smaps", text, |v| {
        let device = v.flags.has(b"io") || v.flags.has(b"pf");
        if v.flags.has(b"dc") && !device {
            left_out.note(v.range)?;
            // SAFETY: nothing is discarded.
            unsafe { sys::madvise(v.range.start, v.range.len(), k::MADV_DOFORK) }?;
        }
        if v.has_private_huge_pages() {
            unfit = unfit.or(Some(Unfit::new(What::HugePages, 0)));
        }
        if v.kind == Kind::AioRing {
            // Forks have none of its contexts.
            unfit = unfit.or(Some(Unfit::new(What::Writer, Reason::AsyncIo as i32)));
        }
        if v.shared && v.flags.has(b"mw") {
            unfit = unfit.or(shared.note(v).err());
        } else if v.shared && v.deleted && files.is_copied(v.inode) {
            // It would show what the template's has.
            unfit = unfit.or(Some(Unfit::named(What::Mapping, 0, v.name())));
        }
        Ok(())
    })?;
    unfit.map_or(Ok(()), Err)
}

impl Shared {
    fn note(&mut self, v: &Vma) -> core::result::Result<(), Unfit> {
        let unfit = Unfit::named(What::Mapping, 0, v.name());
        if v.name() != ANONYMOUS {
            // Nobody can open a deleted file, and a semaphore or lock in /dev/shm is the program's: clones would have
            // one together. Any other file is shared with whoever opens it.
            let own = v.deleted || v.name().starts_with(MEMORY_FILES);
            return if own { Err(unfit) } else { Ok(()) };
        }
        let mapping = Mapping { range: v.range, prot: v.prot, inode: v.inode, offset: v.offset };
        let end = |m: &Mapping| m.offset + m.range.len() as u64;
        let known = &self.all[..self.count];
        let twice = known.iter().any(|m| m.inode == v.inode && m.offset < end(&mapping) && mapping.offset < end(m));
        let bytes: usize = known.iter().map(|m| m.range.len()).sum();
        // Nothing takes the place of memory that is sealed (mseal(2)).
        if twice || bytes + v.range.len() > BYTES || v.flags.has(b"sl") || !can_be_copied(v) {
            return Err(unfit);
        }
        *self.all.get_mut(self.count).ok_or(unfit)? = mapping;
        self.count += 1;
        Ok(())
    }
}

/// Whether all of it can be read: there are no guards in it (`MADV_GUARD_INSTALL`), which a copy would not have.
fn can_be_copied(v: &Vma) -> bool {
    let protect = |prot| {
        // SAFETY: the memory of a program that stands still, whose protection is put back.
        unsafe { sys::mprotect(v.range.start, v.range.len(), prot) }.is_ok()
    };
    let readable = v.prot & PROT_READ != 0;
    let all = || (v.range.start..v.range.end).step_by(PAGE).all(|at| sys::read_own(at, &mut [0]).is_ok());
    (readable || protect(PROT_READ)) && all() && (readable || protect(v.prot))
}

/// How names of Java's archives of classes end.
const ARCHIVE: &[u8] = b".jsa";
/// Most mappings of such.
const ARCHIVES: usize = 16;

/// Puts plain memory in the place of Java's archives of classes. Java maps them elsewhere than they were made for, and
/// so writes to nearly every page when it starts: forks copy the page tables of all that, and a file's memory is not
/// sealed. Java never has the kernel discard what it has written there, which would show the file again.
pub fn hold_archives(frozen: &mut Frozen) -> Result<()> {
    let (mut all, mut count) = ([Range::new(0, 0); ARCHIVES], 0);
    vma::for_each_mapping(&mut frozen.text, |v, path| {
        let is_one = path.ends_with(ARCHIVE) && !v.shared && v.prot == PROT_READ | PROT_WRITE;
        if is_one && v.range.len() <= BYTES && count < ARCHIVES {
            all[count] = v.range;
            count += 1;
        }
        Ok(())
    })?;
    for range in &all[..count] {
        // SAFETY: the program has ended, so nobody else runs in this memory; the copy is new, has all bytes of what it
        // takes the place of, and is as long.
        unsafe {
            let copy = sys::mmap(0, range.len(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            // Without it forks copy a little more.
            let Ok(copy) = copy else { continue };
            let bytes = core::slice::from_raw_parts_mut(copy as *mut u8, range.len());
            if sys::read_own(range.start, bytes).is_err() {
                // The file has become shorter.
                sys::munmap(copy, range.len())?;
                continue;
            }
            sys::mremap_fixed(copy, range.len(), range.start)?;
        }
    }
    Ok(())
}

impl LeftOut {
    fn note(&mut self, range: Range) -> Result<()> {
        match self.all[..self.count].last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => {
                *self.all.get_mut(self.count).ok_or(Errno::E2BIG)? = range;
                self.count += 1;
            }
        }
        Ok(())
    }
}

/// In a clone: copies what is shared, so that no other clone writes to it, and has its forks leave out what its
/// template's did.
pub fn renew(frozen: &Frozen) -> Result<()> {
    for range in &frozen.left_out.all[..frozen.left_out.count] {
        // SAFETY: nothing is discarded.
        unsafe { sys::madvise(range.start, range.len(), k::MADV_DONTFORK) }?;
    }
    for mapping in &frozen.shared.all[..frozen.shared.count] {
        let Mapping { range, prot, .. } = *mapping;
        let readable = prot & PROT_READ != 0;
        // SAFETY: the clone has one thread, which uses none of this memory but here; the copy takes the place of what
        // it is a copy of.
        unsafe {
            let copy = sys::mmap(0, range.len(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)?;
            if !readable {
                sys::mprotect(range.start, range.len(), PROT_READ)?;
            }
            sys::copy_bytes(range.start, copy, range.len());
            if prot != PROT_READ | PROT_WRITE {
                sys::mprotect(copy, range.len(), prot)?;
            }
            sys::mremap_fixed(copy, range.len(), range.start)?;
        }
    }
    Ok(())
}
