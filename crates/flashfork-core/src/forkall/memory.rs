//! Memory of which a fork would not give a clone its own.

use super::{
	frozen::{Frozen, LeftOut, Mapping, Shared},
	unfit::{Fit, Unfit, What},
};
use crate::{
	never_seal::Reason,
	proc::vma::{self, Kind, Vma},
	range::Range,
	sys::{self, Errno, MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PAGE, PROT_READ, PROT_WRITE, Result},
};
use linux_raw_sys::general as k;

/// Most bytes of shared anonymous memory, which each clone copies.
const BYTES: usize = 64 << 20;

/// How the kernel names shared anonymous memory.
pub const ANONYMOUS: &[u8] = b"/dev/zero (deleted)";
/// Files that are memory only. Those without a name (memfd, memfd_secret, huge pages, System V) are deleted files to
/// the kernel.
const MEMORY_FILES: &[u8] = b"/dev/shm/";

/// Looks at all mappings. Memory that forks leave out (`MADV_DONTFORK`; V8 has its heap so) is the program's too.
pub fn look(frozen: &mut Frozen) -> Fit {
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
		} else if v.deleted && files.is_copied(v.inode) {
			// It would show what the template's has, and nothing written to the clone's.
			unfit = unfit.or(Some(Unfit::named(What::Mapping, 0, v.name())));
		}
		Ok(())
	})?;
	unfit.map_or(Ok(()), Err)
}

impl Shared {
	fn note(&mut self, v: &Vma) -> Fit {
		let unfit = Unfit::named(What::Mapping, 0, v.name());
		if v.name() != ANONYMOUS {
			// Nobody can open a deleted file, and a semaphore or lock in /dev/shm is the program's: clones would have
			// one together. Any other file is shared with whoever opens it.
			let own = v.deleted || v.name().starts_with(MEMORY_FILES);
			return if own { Err(unfit) } else { Ok(()) };
		}
		// Nothing takes the place of memory that is sealed (mseal(2)).
		if v.range.len() > BYTES || v.flags.has(b"sl") || !can_be_copied(v) {
			return Err(unfit);
		}
		let bytes = to_the_end(v.range).map_err(|_| unfit)?;
		*self.all.get_mut(self.count).ok_or(unfit)? =
			Mapping { range: v.range, prot: v.prot, inode: v.inode, offset: v.offset, bytes, flags: v.flags };
		self.count += 1;
		if self.objects().map(|object| object.bytes).sum::<usize>() > BYTES { Err(unfit) } else { Ok(()) }
	}

	/// Of the mappings of each object the one that begins first in it.
	fn objects(&self) -> impl Iterator<Item = &Mapping> {
		let all = &self.all[..self.count];
		all.iter().enumerate().filter_map(move |(i, mapping)| {
			let other = |m: &&Mapping| m.inode == mapping.inode;
			let is_first = !all[..i].iter().any(|m| other(&m) && m.offset <= mapping.offset);
			(is_first && !all[i + 1..].iter().any(|m| other(&m) && m.offset < mapping.offset)).then_some(mapping)
		})
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

/// Bytes from the beginning of a mapping to the end of what is mapped. Of that a part may have been unmapped, which
/// `mremap(2)` brings back.
fn to_the_end(range: Range) -> Result<usize> {
	const MOST: usize = BYTES / PAGE + 1;
	let again = map_again(range.start, MOST * PAGE)?;
	let (mut there, mut gone) = (range.len() / PAGE, MOST + 1);
	while gone - there > 1 {
		let pages = there.midpoint(gone);
		let is_there = sys::read_own(again + (pages - 1) * PAGE, &mut [0]).is_ok();
		*if is_there { &mut there } else { &mut gone } = pages;
	}
	// SAFETY: mapped here, and used by nobody.
	unsafe { sys::munmap(again, MOST * PAGE) }?;
	Ok(there * PAGE)
}

/// Maps shared memory once more, to be read.
fn map_again(start: usize, len: usize) -> Result<usize> {
	// SAFETY: none of what is mapped is moved; what it maps is mapped elsewhere, too (mremap(2), an `old_size` of 0).
	unsafe {
		let again = sys::mremap(start, 0, len, k::MREMAP_MAYMOVE as usize, 0)?;
		sys::mprotect(again, len, PROT_READ).map(|()| again)
	}
}

/// Flags of mappings that have been advised, and the advice.
const ADVICE: [(&[u8; 2], u32); 5] = [
	(b"dd", k::MADV_DONTDUMP),
	(b"rr", k::MADV_RANDOM),
	(b"sr", k::MADV_SEQUENTIAL),
	(b"hg", k::MADV_HUGEPAGE),
	(b"nh", k::MADV_NOHUGEPAGE),
];

/// How names of Java's archives of classes end.
const ARCHIVE: &[u8] = b".jsa";
const ARCHIVES: usize = 16;

/// Puts plain memory in place of Java's archives of classes. Java maps them elsewhere than they were made for, and so
/// writes to nearly every page when it starts: forks copy the page tables of all that, and a file's memory is not
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
	for object in frozen.shared.objects() {
		let old = map_again(object.range.start, object.bytes)?;
		// SAFETY: the clone has one thread, which uses none of this memory but here; the copy takes the place of what
		// it is a copy of, wherever that is mapped.
		unsafe {
			let copy = sys::mmap(0, object.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)?;
			sys::copy_bytes(old, copy, object.bytes);
			sys::munmap(old, object.bytes)?;
			for mapping in frozen.shared.all[..frozen.shared.count].iter().filter(|m| m.inode == object.inode) {
				let (start, len) = (mapping.range.start, mapping.range.len());
				let part = copy + (mapping.offset - object.offset) as usize;
				sys::mremap(part, 0, len, (k::MREMAP_MAYMOVE | k::MREMAP_FIXED) as usize, start)?;
				if mapping.prot != PROT_READ | PROT_WRITE {
					sys::mprotect(start, len, mapping.prot)?;
				}
				for (_, advice) in ADVICE.iter().filter(|(letters, _)| mapping.flags.has(letters)) {
					sys::madvise(start, len, *advice)?;
				}
			}
			sys::munmap(copy, object.bytes)?;
		}
	}
	for range in &frozen.left_out.all[..frozen.left_out.count] {
		// SAFETY: nothing is discarded.
		unsafe { sys::madvise(range.start, range.len(), k::MADV_DONTFORK) }?;
	}
	Ok(())
}
