//! Blocks written to a disk, over an image that never changes.
//!
//! One memory file holds a bit per block, which says whether the block was written; then one that says whether it is
//! zeros since, whatever is in its place; and behind the bits a place for every block, at its own number. It is sparse:
//! what was not written takes no memory. So a template's overlay is cloned like its RAM, by one private mapping of the
//! sealed file, whatever the size of the disk or of what was written.

use super::DiskError;
use crate::memory::{self, Copying, Layered, MemfdError, Watch};
use flashfork_proto::shape::Pages;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::{
	fmt, io,
	ops::Range,
	os::fd::{AsFd, OwnedFd},
	ptr, slice,
};

/// Bytes of a block: what one first write copies.
pub const BLOCK: usize = 4096;

const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Why a block can't be written.
#[derive(Debug, PartialEq, Eq)]
pub enum NoPlace<E> {
	/// The limit of written blocks is reached.
	Full,
	/// It could not be given its content.
	Fill(E),
}

/// Written blocks of one disk.
#[derive(Debug)]
pub struct Overlay {
	/// That of a VM that is no template's copy yet.
	file: Option<OwnedFd>,
	/// Bits of what was written, bits of what is zeros, then blocks.
	content: Mapping,
	/// Bits of the blocks written since the content was mapped: those that cost this VM memory.
	own: Mapping,
	blocks: u64,
	written: u64,
}

impl Overlay {
	/// An empty one for a disk of `blocks`, of a VM that may become a template, in a file [made](create) for it.
	pub fn over(file: OwnedFd, blocks: u64) -> Result<Self, DiskError> {
		memory::check_size(&file, length(blocks))?;
		let content = Mapping::of(&file, length(blocks), MapFlags::SHARED)?;
		Ok(Self { file: Some(file), content, own: Mapping::empty(bits(blocks))?, blocks, written: 0 })
	}

	/// A copy of a template's, for a disk of `blocks`.
	pub fn copy(template: &Layered, blocks: u64) -> Result<Self, DiskError> {
		template.check(length(blocks))?;
		let content = Mapping::of_layers(template, length(blocks))?;
		Ok(Self { file: None, content, own: Mapping::empty(bits(blocks))?, blocks, written: 0 })
	}

	/// Makes what was written immutable and goes on as a copy of it; gives the file. Not for what is a copy already.
	pub fn freeze(&mut self) -> Result<OwnedFd, DiskError> {
		let file =
			self.file.as_ref().ok_or(DiskError::Shape("what was written to the disk is a template's already"))?;
		let file = file.try_clone().map_err(DiskError::Map)?;
		// F_SEAL_WRITE is EBUSY while a writable mapping exists.
		self.content = Mapping::empty(length(self.blocks))?;
		let sealed = memory::seal(&file);
		let flags = if sealed.is_ok() { MapFlags::PRIVATE } else { MapFlags::SHARED };
		self.content = Mapping::of(&file, length(self.blocks), flags)?;
		sealed?;
		self.file = None;
		self.forget()?;
		Ok(file)
	}

	/// Begins to copy what a copy has written into `file`; see [`Copying::begin`].
	pub fn copy_writes(&self, watch: &Watch, file: impl AsFd) -> Result<Copying, DiskError> {
		let start = self.content.start as usize;
		Copying::begin(watch, start..start + self.content.length, file).map_err(DiskError::Map)
	}

	/// Drops every write since the template.
	pub fn discard_writes(&mut self) -> Result<(), DiskError> {
		self.content.discard()?;
		self.forget()
	}

	fn forget(&mut self) -> Result<(), DiskError> {
		self.written = 0;
		self.own.discard()
	}

	/// Blocks written by this VM, which it has memory of its own for.
	pub fn written(&self) -> u64 {
		self.written
	}

	/// Block number `block`, if it was ever written or made zeros.
	pub fn get(&self, block: u64) -> Option<&[u8]> {
		let at = self.place(block)?;
		let content = self.content.bytes();
		// What is zeros has no memory, and is given none.
		let place = if has(content, self.zero(block)) { &ZEROS } else { &content[at..at + BLOCK] };
		has(content, block).then_some(place)
	}

	/// Makes blocks zeros, and frees what they took of memory that is this VM's own.
	pub fn discard(&mut self, blocks: Range<u64>) -> Result<(), DiskError> {
		let (Some(start), true) = (self.place(blocks.start), blocks.end <= self.blocks) else { return Ok(()) };
		for block in blocks.clone() {
			let (zero, content, own) = (self.zero(block), self.content.bytes_mut(), self.own.bytes_mut());
			set(content, zero);
			set(content, block);
			if has(own, block) {
				clear(own, block);
				self.written -= 1;
			}
		}
		// The file's own pages if it is no template's yet.
		let how = if self.file.is_some() { Advice::LinuxRemove } else { Advice::LinuxDontNeed };
		self.content.advise(start..start + (blocks.end - blocks.start) as usize * BLOCK, how)
	}

	/// Block number `block` for writing; `fill` gives it its content if it was never written. At most `limit` blocks
	/// are.
	pub fn get_mut<E>(
		&mut self,
		block: u64,
		limit: u64,
		fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
	) -> Result<&mut [u8], NoPlace<E>> {
		let at = self.place(block).ok_or(NoPlace::Full)?;
		let zero = self.zero(block);
		let own = self.own.bytes_mut();
		let fresh = !has(own, block);
		if fresh && self.written >= limit {
			return Err(NoPlace::Full);
		}
		let content = self.content.bytes_mut();
		if !has(content, block) {
			fill(&mut content[at..at + BLOCK]).map_err(NoPlace::Fill)?;
			set(content, block);
		} else if has(content, zero) {
			content[at..at + BLOCK].fill(0);
			clear(content, zero);
		}
		if fresh {
			set(own, block);
			self.written += 1;
		}
		Ok(&mut content[at..at + BLOCK])
	}

	fn place(&self, block: u64) -> Option<usize> {
		(block < self.blocks).then(|| 2 * bits(self.blocks) as usize + block as usize * BLOCK)
	}

	/// The bit that says whether it is zeros.
	fn zero(&self, block: u64) -> u64 {
		bits(self.blocks) * 8 + block
	}
}

/// The file for an overlay of `blocks`.
pub fn create(blocks: u64) -> Result<OwnedFd, MemfdError> {
	memory::create("flashfork:disk", length(blocks), Pages::Small)
}

/// Bytes of the bits for `blocks`, whole pages.
fn bits(blocks: u64) -> u64 {
	blocks.div_ceil(8).next_multiple_of(BLOCK as u64)
}

/// Bytes of the file for a disk of `blocks`.
pub fn length(blocks: u64) -> u64 {
	2 * bits(blocks) + blocks * BLOCK as u64
}

fn has(bits: &[u8], block: u64) -> bool {
	bits[block as usize / 8] >> (block % 8) & 1 == 1
}

fn set(bits: &mut [u8], block: u64) {
	bits[block as usize / 8] |= 1 << (block % 8);
}

fn clear(bits: &mut [u8], block: u64) {
	bits[block as usize / 8] &= !(1 << (block % 8));
}

/// Memory that only its owner knows.
struct Mapping {
	start: *mut u8,
	length: usize,
}

// SAFETY: addresses; nothing in them belongs to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
	/// Of `file`, which nobody else maps for writing, or which is sealed.
	fn of(file: impl AsFd, length: u64, flags: MapFlags) -> Result<Self, DiskError> {
		let access = ProtFlags::READ | ProtFlags::WRITE;
		// SAFETY: a new mapping where the kernel finds room.
		let start = unsafe { mmap(ptr::null_mut(), length as usize, access, flags | MapFlags::NORESERVE, file, 0) };
		Self::new(start, length)
	}

	/// Of a template's, copy on write.
	fn of_layers(layers: &Layered, length: u64) -> Result<Self, DiskError> {
		let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
		if let [only] = layers.files() {
			return Self::of(only, length, MapFlags::PRIVATE);
		}
		// SAFETY: a new mapping where the kernel finds room.
		let start = unsafe { mmap_anonymous(ptr::null_mut(), length as usize, ProtFlags::empty(), flags) };
		let mapping = Self::new(start, length)?;
		for (part, file) in layers.ranges() {
			let (at, access) = (mapping.start.wrapping_add(part.start as usize), ProtFlags::READ | ProtFlags::WRITE);
			let bytes = (part.end - part.start) as usize;
			// SAFETY: in the mapping just made, as the layers were checked to be as long, and nobody knows of it yet.
			unsafe { mmap(at.cast(), bytes, access, flags | MapFlags::FIXED, file, part.start) }
				.map_err(|e| DiskError::Map(e.into()))?;
		}
		Ok(mapping)
	}

	fn empty(length: u64) -> Result<Self, DiskError> {
		let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
		// SAFETY: a new mapping where the kernel finds room.
		Self::new(unsafe { mmap_anonymous(ptr::null_mut(), length as usize, access, flags) }, length)
	}

	fn new(start: rustix::io::Result<*mut libc::c_void>, length: u64) -> Result<Self, DiskError> {
		let start = start.map_err(|e| DiskError::Map(e.into()))?.cast();
		Ok(Self { start, length: length as usize })
	}

	fn bytes(&self) -> &[u8] {
		// SAFETY: mapped as long as `self` lives. Nobody else writes: the file is sealed, or this is its only mapping
		// and its descriptor isn't written to.
		unsafe { slice::from_raw_parts(self.start, self.length) }
	}

	fn bytes_mut(&mut self) -> &mut [u8] {
		// SAFETY: as above, and `self` is borrowed exclusively.
		unsafe { slice::from_raw_parts_mut(self.start, self.length) }
	}

	/// Every page is the file's again, or zero.
	fn discard(&mut self) -> Result<(), DiskError> {
		self.advise(0..self.length, Advice::LinuxDontNeed)
	}

	/// What `range` holds is the file's again, or with [`Advice::LinuxRemove`] zero there too.
	fn advise(&mut self, range: Range<usize>, how: Advice) -> Result<(), DiskError> {
		assert!(range.start <= range.end && range.end <= self.length);
		// SAFETY: in the mapping, to which no reference exists, since `self` is borrowed exclusively.
		unsafe { madvise(self.start.add(range.start).cast(), range.len(), how) }
			.map_err(|e| DiskError::Map(io::Error::from(e)))
	}
}

impl Drop for Mapping {
	fn drop(&mut self) {
		// SAFETY: the mapping belongs to `self`. It fails only for ranges that are none.
		let _ = unsafe { munmap(self.start.cast(), self.length) };
	}
}

impl fmt::Debug for Mapping {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		f.debug_struct("Mapping").field("start", &self.start).field("length", &self.length).finish()
	}
}
