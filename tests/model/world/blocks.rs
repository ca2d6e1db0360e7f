//! Blocks of an allocator and what they should hold. The list lies in a shared mapping, which is never sealed: the
//! model is outside what it tests.
//!
//! Every word written into a block says that it is one, whose it is, and where it stands. A block is wiped before it is
//! freed, so that no such word may be in what the allocator hands out anew, but for those of blocks that `realloc`
//! moved: it leaves a copy behind.

use crate::rng::Rng;
use flashfork_tests::Result;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

/// Blocks held at most.
pub const MOST: usize = 64;
const MOST_MOVED: usize = 1 << 16;

/// The first sixteen bits of every word of a block: of no address, and of no small number.
const MARK: u64 = 0x7fb5 << 48;
const MARK_BITS: u64 = 0xffff << 48;

pub const WORD: usize = 8;

#[derive(Clone, Copy, Default)]
pub struct Block {
	/// Where it lies; 0: there is none.
	pub at: usize,
	/// Bytes asked for, of whole words.
	pub len: usize,
	/// What its words say.
	pub tag: u32,
	/// Bytes from the start that hold its words.
	pub filled: usize,
	/// Bytes from the start that hold its words or, behind `filled`, zeros.
	pub known: usize,
}

/// Tags of blocks that `realloc` moved: their words may be anywhere. Threads have one in common.
#[repr(C)]
struct Moved {
	count: AtomicUsize,
	tags: [AtomicU32; MOST_MOVED],
}

pub struct Blocks {
	blocks: &'static mut [Block; MOST],
	moved: &'static Moved,
	/// Whether `moved` ends with this.
	owner: bool,
	next_tag: u32,
}

/// A fresh shared mapping of zeros, which must be a valid value.
pub(super) fn shared<T>() -> *mut T {
	let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
	let prot = libc::PROT_READ | libc::PROT_WRITE;
	// SAFETY: a fresh mapping of the right size.
	let at = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<T>(), prot, flags, -1, 0) };
	assert_ne!(at, libc::MAP_FAILED, "no memory for the model");
	at.cast()
}

fn word(tag: u32, i: usize) -> u64 {
	MARK | u64::from(tag) << 16 | i as u64 & 0xffff
}

impl Blocks {
	pub fn new() -> Blocks {
		// SAFETY: just mapped, nobody else's, and zeros are valid values of both.
		unsafe { Blocks { blocks: &mut *shared(), moved: &*shared(), owner: true, next_tag: 0 } }
	}

	/// Those of another thread of the same process: none yet.
	pub fn of_thread(&self) -> Blocks {
		// SAFETY: as above.
		unsafe { Blocks { blocks: &mut *shared(), moved: self.moved, owner: false, next_tag: 0 } }
	}

	/// Those of a child that is about to be forked, or as they are now, for later.
	pub fn for_child(&self) -> Blocks {
		let mut child = Blocks::new();
		child.become_again(self);
		child
	}

	/// Takes over what another list says.
	pub fn become_again(&mut self, other: &Blocks) {
		*self.blocks = *other.blocks;
		let count = other.moved.count.load(SeqCst);
		for (own, others) in self.moved.tags.iter().zip(&other.moved.tags[..count]) {
			own.store(others.load(SeqCst), SeqCst);
		}
		self.moved.count.store(count, SeqCst);
		self.next_tag = other.next_tag;
	}

	/// From now on tags that no other process, thread or turn writes: 12 bits for who, 20 for what.
	pub fn sign(&mut self, seed: u64) {
		self.next_tag = (Rng::new(seed).next() as u32) << 20;
	}

	pub fn tag(&mut self) -> u32 {
		self.next_tag += 1;
		self.next_tag
	}

	pub fn get(&self, slot: usize) -> Block {
		self.blocks[slot]
	}

	pub fn set(&mut self, slot: usize, block: Block) {
		self.blocks[slot] = block;
	}

	/// Slots that hold a block, or that hold none.
	pub fn slots(&self, held: bool) -> Vec<usize> {
		(0..MOST).filter(|slot| (self.blocks[*slot].at != 0) == held).collect()
	}

	pub fn bytes(&self) -> usize {
		self.blocks.iter().map(|b| b.len).sum()
	}

	/// Words of this tag are no secret any more; before the block is moved. Returns where that is noted.
	pub fn note_moved(&self, tag: u32) -> Result<usize> {
		let at = self.moved.count.fetch_add(1, SeqCst);
		self.moved.tags.get(at).ok_or("too many blocks were moved for this model")?.store(tag, SeqCst);
		Ok(at)
	}

	/// The block of this note wasn't moved after all.
	pub fn note_stayed(&self, note: usize) {
		self.moved.tags[note].store(0, SeqCst);
	}

	fn was_moved(&self, tag: u32) -> bool {
		self.moved.tags[..self.moved.count.load(SeqCst)].iter().any(|t| t.load(SeqCst) == tag)
	}

	/// Fills `from..to` of a block, in bytes, with its words.
	pub fn fill(block: &Block, from: usize, to: usize) {
		for i in from / WORD..to / WORD {
			// SAFETY: within the block, which is this program's.
			unsafe { ((block.at + i * WORD) as *mut u64).write(word(block.tag, i)) };
		}
	}

	pub fn check(block: &Block) -> Result {
		for i in 0..block.known / WORD {
			let should = if i < block.filled / WORD { word(block.tag, i) } else { 0 };
			// SAFETY: within the block.
			let is = unsafe { ((block.at + i * WORD) as *const u64).read() };
			if is != should {
				return Err(format!(
					"word {i} of the block at {:#x} is {is:#x}, should be {should:#x}: {block:x?}",
					block.at
				));
			}
		}
		Ok(())
	}

	/// Looks through memory that the allocator handed out just now, `from..to` of a block, for words of blocks that
	/// were wiped, or that belong to somebody else: two in a row, because the remains of one may look like another.
	pub fn find_secrets(&self, block: &Block, from: usize, to: usize) -> Result {
		let mut before = 0;
		for i in from.div_ceil(WORD)..to / WORD {
			// SAFETY: within what the allocator says is usable.
			let is = unsafe { ((block.at + i * WORD) as *const u64).read() };
			if is & MARK_BITS == MARK && is == before + 1 && !self.was_moved((is >> 16) as u32) {
				return Err(format!(
					"fresh memory shows a secret: word {i} of the block at {:#x} is {is:#x}, of a block that was wiped or is \
					 somebody else's; fresh are bytes {from} to {to} of {block:x?}",
					block.at
				));
			}
			before = is;
		}
		Ok(())
	}
}

impl std::fmt::Debug for Block {
	fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
		write!(f, "{} bytes, {} filled, {} known, tag {:#x}", self.len, self.filled, self.known, self.tag)
	}
}

impl Drop for Blocks {
	fn drop(&mut self) {
		// SAFETY: the mappings are ours, and nothing refers to them any more: other threads' lists end before the
		// owner's. A failure would only keep them.
		unsafe {
			libc::munmap((&raw mut *self.blocks).cast(), size_of::<[Block; MOST]>());
			if self.owner {
				libc::munmap((&raw const *self.moved).cast_mut().cast(), size_of::<Moved>());
			}
		}
	}
}
