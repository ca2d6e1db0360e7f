//! The data of libraries: small, and dear to fork.
//!
//! A library's relocated pages and `.data` are a few pages, but each of these mappings costs a fork some microseconds:
//! for what the kernel keeps of a mapping with anonymous pages, and for its page table. Where all pages of such a
//! mapping were written, nothing of it shows the file any more, and it can be sealed like other memory. Where some
//! still show the file it is left alone: a copy would not follow the file.
//!
//! It stays memory of its file all the same: a discard (`MADV_DONTNEED`) brings the file's bytes back. So the engine
//! remembers which part of which file it is. Before a call of the program's that means something else on a file's
//! memory, and when all memory becomes anonymous, the file is mapped anew, the bytes are written there, and this takes
//! the place of the sealed mapping: then everything is as it would be without any seal. That it is the same file the
//! list of mappings tells: it has the inode of what is still mapped of the library; or, where the program has unmapped
//! the beginning of that, the file has not changed since. Where the file is not to be had any more, because another has
//! taken its name, the memory becomes anonymous, and a discard an error (`EAGAIN`).
//!
//! Left alone are the program's own data, written all the time; the C library, the loader and the runtimes of
//! sanitizers, which forks write to; the object that this engine is part of; and data of anything that isn't mapped as
//! the loader would map it.

use super::{limits, offset};
use crate::{
	apart::Apart,
	arena::{Arena, Run},
	calls::{
		found::Part,
		object::{Object, Reader},
	},
	never_seal,
	proc::{
		lookup::{self, Wanted},
		vma::{self, Kind, Vma},
	},
	range::Range,
	scratch, snapshot,
	state::STATE,
	sys::{self, Errno, MAP_FIXED, MAP_PRIVATE, PAGE, PROT_EXEC, PROT_NONE, PROT_READ, PROT_WRITE, Result, Status},
};
use core::{
	ffi::CStr,
	sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst},
};
use linux_raw_sys::general as k;

/// Least mappings for which it is done, sealed ones among them. That the program's calls are followed leaves a dozen
/// written pages in libc, mappings of their own, which cost a fork as much.
const LEAST: usize = 32;

const MOST: usize = 256;

/// A mapping that may be sealed.
#[derive(Clone, Copy)]
pub struct Candidate {
	range: Range,
	prot: u32,
	advice: u8,
	record: u32,
	offset: u64,
	inode: u64,
	device: [u32; 2],
	/// When its file was last changed, once that is asked.
	changed: [u64; 2],
	/// Where its file begins in memory.
	base: usize,
}

/// What a plan has seen of the loader's objects; all zeros at first.
pub struct Seen {
	/// The file whose beginning was mapped last.
	base: usize,
	inode: u64,
	device: [u32; 2],
	/// Whether its data may be sealed, once that is known.
	fits: Option<bool>,
	/// Where the object begins that this engine is part of.
	own: usize,
	candidates: [Candidate; MOST],
	count: usize,
}

impl Seen {
	/// Forgets all of it.
	pub fn clear(&mut self) {
		(self.base, self.inode, self.own, self.count, self.fits) = (0, 0, 0, 0, None);
	}

	/// Looks at the next mapping of smaps, whose record is the plan's last.
	pub fn see(&mut self, v: &Vma, record: u32, reader: &Reader) {
		if v.kind != Kind::File || v.shared || v.inode == 0 {
			return;
		}
		if v.offset == 0 {
			(self.base, self.inode, self.device, self.fits) = (v.range.start, v.inode, v.device, None);
		}
		if (v.inode, v.device) != (self.inode, self.device) {
			return;
		}
		let own = Seen::see as fn(&mut Seen, &Vma, u32, &Reader) as usize;
		if v.range.start <= own && own < v.range.end {
			self.own = self.base;
		}
		// All of it is there, and none of it the file's.
		if v.anonymous != v.range.len() as u64 || v.prot & (PROT_READ | PROT_EXEC) != PROT_READ || v.deleted {
			return;
		}
		// It may have no properties that other memory may not have.
		let mut like = *v;
		like.kind = Kind::Anonymous;
		let advice = offset::advice_of(&like);
		if advice & offset::UNRESERVED != 0 || never_seal::judge(&like, true).is_err() {
			return;
		}
		let base = self.base;
		let fits = *self.fits.get_or_insert_with(|| is_plain_library(reader, base));
		if !fits || !loads(reader, base, v) {
			return;
		}
		let Some(place) = self.candidates.get_mut(self.count) else { return };
		*place = Candidate {
			range: v.range,
			prot: v.prot,
			advice: advice | offset::LIBRARY,
			record,
			offset: v.offset,
			inode: v.inode,
			device: v.device,
			changed: [0; 2],
			base,
		};
		self.count += 1;
	}
}

/// Whether an object is a library that nobody counts on while a seal or a fork is under way.
fn is_plain_library(reader: &Reader, base: usize) -> bool {
	let Some(object) = Object::at(reader, base) else { return false };
	!object.is_program() && Part::of(&object).is_none()
}

/// Whether a mapping is part of what the loader has mapped to be written, of the object at `base`.
fn loads(reader: &Reader, base: usize, v: &Vma) -> bool {
	Object::at(reader, base).is_some_and(|object| object.loads_to_write(v.range, v.offset))
}

/// Longest path of a file that is remembered, with its NUL.
const PATH: usize = 192;

/// Which part of which file sealed memory is.
pub(crate) static LIBRARIES: Apart<Libraries> = Apart::new(Libraries::new());

/// See the module. Clones inherit it with their memory. An entry may be of memory that is sealed no more; of what is,
/// the entry made last holds.
pub(crate) struct Libraries {
	entries: [Entry; MOST],
	count: AtomicUsize,
	lost: AtomicBool,
}

struct Entry {
	start: AtomicUsize,
	end: AtomicUsize,
	offset: AtomicU64,
	inode: AtomicU64,
	/// As the list of mappings has it.
	device: [AtomicU32; 2],
	changed: [AtomicU64; 2],
	/// Where the library begins in memory.
	base: AtomicUsize,
	/// Whether memory of it has become anonymous because its file was not to be had.
	lost: AtomicBool,
	/// Whether the rest of the library was gone by then, so that nothing tells any more when this goes.
	headless: AtomicBool,
	path: [AtomicU64; PATH / 8],
}

impl Entry {
	fn range(&self) -> Range {
		Range::new(self.start.load(SeqCst), self.end.load(SeqCst))
	}

	fn set(&self, c: &Candidate, path: &[u8; PATH]) {
		// Empty until its end is set.
		self.end.store(0, SeqCst);
		self.start.store(c.range.start, SeqCst);
		self.offset.store(c.offset, SeqCst);
		self.inode.store(c.inode, SeqCst);
		self.device.iter().zip(c.device).for_each(|(place, part)| place.store(part, SeqCst));
		self.changed.iter().zip(c.changed).for_each(|(place, time)| place.store(time, SeqCst));
		self.base.store(c.base, SeqCst);
		self.lost.store(false, SeqCst);
		self.headless.store(false, SeqCst);
		for (word, bytes) in self.path.iter().zip(path.as_chunks().0) {
			word.store(u64::from_ne_bytes(*bytes), SeqCst);
		}
		self.end.store(c.range.end, SeqCst);
	}

	fn take(&self, other: &Entry) {
		self.end.store(0, SeqCst);
		self.start.store(other.start.load(SeqCst), SeqCst);
		self.offset.store(other.offset.load(SeqCst), SeqCst);
		self.inode.store(other.inode.load(SeqCst), SeqCst);
		self.device.iter().zip(&other.device).for_each(|(place, part)| place.store(part.load(SeqCst), SeqCst));
		self.changed.iter().zip(&other.changed).for_each(|(place, time)| place.store(time.load(SeqCst), SeqCst));
		self.base.store(other.base.load(SeqCst), SeqCst);
		self.lost.store(other.lost.load(SeqCst), SeqCst);
		self.headless.store(other.headless.load(SeqCst), SeqCst);
		for (word, other) in self.path.iter().zip(&other.path) {
			word.store(other.load(SeqCst), SeqCst);
		}
		self.end.store(other.end.load(SeqCst), SeqCst);
	}

	fn path(&self) -> [u8; PATH] {
		let mut path = [0; PATH];
		for (bytes, word) in path.as_chunks_mut().0.iter_mut().zip(&self.path) {
			*bytes = word.load(SeqCst).to_ne_bytes();
		}
		path
	}

	fn file(&self) -> (u64, [u32; 2]) {
		(self.inode.load(SeqCst), self.device.each_ref().map(|part| part.load(SeqCst)))
	}

	/// Whether a file of that inode is the same file as when it was sealed, as nobody has changed it since.
	fn is_unchanged(&self, file: &Status) -> bool {
		file.changed == self.changed.each_ref().map(|time| time.load(SeqCst))
	}

	/// Whether its file was not to be had, and it is still there for all that is known.
	fn is_lost(&self) -> bool {
		self.lost.load(SeqCst) && (self.headless.load(SeqCst) || self.is_loaded())
	}

	/// Whether something of the library is still there. Where nobody can tell, or a sandbox might end the program for
	/// the question: yes.
	fn is_loaded(&self) -> bool {
		if STATE.is_sandboxed() {
			return true;
		}
		let before = Range::new(self.base.load(SeqCst), self.start.load(SeqCst));
		let mut loaded = false;
		let asked = lookup::for_each(before, Wanted::Files, |v| {
			loaded |= v.inode == self.inode.load(SeqCst);
			Ok(())
		});
		loaded || asked.is_err()
	}
}

impl Libraries {
	const fn new() -> Libraries {
		// SAFETY: all of it is atomics, of which zeros are a value.
		unsafe { core::mem::zeroed() }
	}

	fn entries(&self) -> &[Entry] {
		&self.entries[..self.count.load(SeqCst)]
	}

	fn newest(&self, part: Range) -> Option<&Entry> {
		self.entries().iter().rev().find(|e| e.range().intersect(part).len() == part.len())
	}

	/// Whether all of `part` may have been that.
	pub fn may_have_been(&self, part: Range) -> bool {
		self.newest(part).is_some()
	}

	/// Calls `each` with every part of `range` that may be the sealed data of a library, until it fails.
	pub fn for_each_in(&self, range: Range, mut each: impl FnMut(Range) -> Result<()>) -> Result<()> {
		let parts = self.entries().iter().map(|e| e.range().intersect(range));
		parts.filter(|part| !part.is_empty()).try_for_each(&mut each)
	}

	/// Whether the file of some library was not to be had.
	pub fn any_lost(&self) -> bool {
		self.lost.load(SeqCst)
	}

	/// Whether that holds for one in `range`, which is still there.
	pub fn is_lost(&self, range: Range) -> bool {
		self.any_lost() && self.entries().iter().any(|e| !e.range().intersect(range).is_empty() && e.is_lost())
	}

	/// Notes it for a part that is sealed.
	pub(super) fn lose(&self, part: Range) {
		if let Some(entry) = self.newest(part) {
			entry.headless.store(!entry.is_loaded(), SeqCst);
			entry.lost.store(true, SeqCst);
			self.lost.store(true, SeqCst);
		}
	}

	/// Whether the file of part of sealed memory is. `ENOENT` where it isn't.
	pub fn is_to_be_had(&self, part: Range) -> Result<()> {
		// SAFETY: mapped just now, for nobody.
		self.map(part).and_then(|at| unsafe { sys::munmap(at, part.len()) })
	}

	/// Maps what part of sealed memory is of its file, writable, anywhere. `ENOENT` where that is not to be had.
	pub(super) fn map(&self, part: Range) -> Result<usize> {
		let entry = self.newest(part).ok_or(Errno::ENOENT)?;
		let offset = entry.offset.load(SeqCst) + (part.start - entry.start.load(SeqCst)) as u64;
		let path = entry.path();
		let fd = open(&path).ok_or(Errno::ENOENT)?;
		// SAFETY: a fresh mapping.
		let mapped = unsafe { sys::mmap(0, part.len(), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, offset) };
		let unchanged = sys::fstatus(fd).is_ok_and(|file| entry.is_unchanged(&file));
		sys::close(fd);
		let at = mapped?;
		let file_at = |at| {
			let mut file = None;
			let asked = lookup::for_each(Range::new(at, at + PAGE), Wanted::Files, |v| {
				file = Some((v.inode, v.device));
				Ok(())
			});
			asked.ok().and(file)
		};
		// What is mapped of the library keeps its inode from being another file's.
		let library = file_at(entry.base.load(SeqCst));
		let is_there = library.is_some_and(|(inode, _)| inode == entry.inode.load(SeqCst)) && file_at(at) == library;
		if is_there || unchanged && file_at(at) == Some(entry.file()) {
			return Ok(at);
		}
		// SAFETY: mapped just now.
		unsafe { sys::munmap(at, part.len()) }?;
		Err(Errno::ENOENT)
	}

	/// Forgets memory that is sealed no more: of libraries that were unloaded, and of what has become anonymous. `buf`
	/// is scratch.
	fn tidy(&self, buf: &mut [u8]) -> Result<()> {
		let mut used = [false; MOST];
		vma::for_each(c"/proc/thread-self/maps", buf, |v| {
			if v.kind == Kind::Sealed && offset::advice_of_sealed(v) & offset::LIBRARY != 0 {
				let newest = self.entries().iter().rposition(|e| e.range().intersect(v.range).len() == v.range.len());
				newest.into_iter().for_each(|i| used[i] = true);
			}
			Ok(())
		})?;
		let mut kept = 0;
		for (i, entry) in self.entries().iter().enumerate() {
			if used[i] || entry.is_lost() {
				if kept != i {
					self.entries[kept].take(entry);
				}
				kept += 1;
			}
		}
		self.count.store(kept, SeqCst);
		Ok(())
	}

	fn add(&self, c: &Candidate, path: &[u8; PATH]) -> bool {
		let i = self.count.load(SeqCst);
		let Some(entry) = self.entries.get(i) else { return false };
		entry.set(c, path);
		self.count.store(i + 1, SeqCst);
		true
	}
}

/// Opens a file of this name, if it is an ordinary one: opening anything else might wait, or tell a device something.
fn open(path: &[u8; PATH]) -> Option<i32> {
	let path = CStr::from_bytes_until_nul(path).ok()?;
	sys::status_at(k::AT_FDCWD, path).ok().filter(|status| status.regular)?;
	sys::open(path, sys::O_RDONLY).ok()
}

/// Adds to a plan what of libraries may be sealed. Where that isn't worth it the plan stays as it is.
pub fn add(arena: &mut Arena) -> Result<()> {
	LIBRARIES.tidy(&mut arena.text)?;
	let Arena { seen, holes, hole_count, .. } = &mut *arena;
	let mut count = 0;
	for i in 0..seen.count {
		let candidate = seen.candidates[i];
		let in_a_hole = holes[..*hole_count].iter().any(|hole| !hole.intersect(candidate.range).is_empty());
		if candidate.base != seen.own && !in_a_hole {
			seen.candidates[count] = candidate;
			count += 1;
		}
	}
	seen.count = count;
	// A snapshot puts back the mappings that there were; another engine has data of its own in its library.
	let hands_off = snapshot::current::own().iter().any(|range| !range.is_empty()) || STATE.is_beside_another();
	// What is sealed already counts.
	if seen.own == 0 || count == 0 || count + LIBRARIES.entries().len() < LEAST || hands_off {
		return Ok(());
	}
	let room = limits::vma_room(&mut arena.small, arena.record_count)?;
	if 2 * (arena.run_count + count) > room || arena.run_count + count > arena.runs.len() {
		return Ok(());
	}
	let total = arena.seen.candidates[..count].iter().map(|c| c.range.len()).sum();
	let place = scratch::far(total)?;
	// SAFETY: reserved just now.
	let added = unsafe { add_found(arena, place) };
	// SAFETY: what was mapped there was for looking.
	unsafe { sys::munmap(place, total) }.and(added)
}

/// Adds those whose files can be opened by their names.
///
/// # Safety
/// The place is reserved for all of them, side by side.
unsafe fn add_found(arena: &mut Arena, place: usize) -> Result<()> {
	let Arena { text, small, seen, .. } = &mut *arena;
	let candidates = &mut seen.candidates[..seen.count];
	let (mut next, mut at) = (0, place);
	// Each is mapped from the file of its name, to be compared in the list.
	vma::for_each_mapping(text, |v, path| {
		let Some(c) = candidates.get_mut(next).filter(|c| c.range == v.range) else { return Ok(()) };
		if let Some(fd) = name(path).and_then(|name| open(&name)) {
			// SAFETY: the caller's.
			let mapped = unsafe { sys::mmap(at, c.range.len(), PROT_NONE, MAP_PRIVATE | MAP_FIXED, fd, c.offset) };
			let file = sys::fstatus(fd);
			sys::close(fd);
			mapped?;
			c.changed = file?.changed;
		}
		next += 1;
		at += c.range.len();
		Ok(())
	})?;
	let mut same = [false; MOST];
	vma::for_each(c"/proc/thread-self/maps", small, |v| {
		let mut at = place;
		for (c, same) in candidates.iter().zip(&mut same) {
			*same |= v.range.start == at && (v.inode, v.device) == (c.inode, c.device);
			at += c.range.len();
		}
		Ok(())
	})?;
	let (mut next, mut count) = (0, arena.run_count);
	let Arena { text, seen, runs, records, .. } = &mut *arena;
	vma::for_each_mapping(text, |v, path| {
		let Some(c) = seen.candidates[..seen.count].get(next).filter(|c| c.range == v.range) else { return Ok(()) };
		next += 1;
		if same[next - 1] && name(path).is_some_and(|name| LIBRARIES.add(c, &name)) {
			let Candidate { range, prot, advice, record, .. } = *c;
			runs[count] = Run { range, prot, advice, record, ..Run::default() };
			records[record as usize].reason = None;
			count += 1;
		}
		Ok(())
	})?;
	arena.run_count = count;
	Ok(())
}

/// A path as it is remembered, if it isn't too long.
fn name(path: &[u8]) -> Option<[u8; PATH]> {
	let mut name = [0; PATH];
	name[..PATH - 1].get_mut(..path.len())?.copy_from_slice(path);
	Some(name)
}

/// Brings the bytes of sealed memory to where its file is mapped anew. `EFAULT`: the file has become shorter.
///
/// # Safety
/// The sealed memory is readable, and nobody of this process writes to it meanwhile. What is at `to` is the engine's,
/// writable and as long.
pub(super) unsafe fn fill(to: usize, from: Range) -> Result<()> {
	let mut at = 0;
	while at < from.len() {
		// SAFETY: the caller's. What can't be written is an error of the call, which alone touches it.
		let part = unsafe { core::slice::from_raw_parts_mut((to + at) as *mut u8, from.len() - at) };
		let read = sys::read_memory(from.start + at, part)? & !(PAGE - 1);
		if read == 0 {
			return Err(Errno::EFAULT);
		}
		at += read;
	}
	Ok(())
}
