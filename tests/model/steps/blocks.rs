//! `malloc(3)`, `calloc`, `realloc`, `free` and their kin, of whichever allocator the process has.

use crate::{
	mode::Mode,
	world::{
		World,
		blocks::{Block, Blocks, WORD},
	},
};
use flashfork_tests::{Result, past, route::Via};
use libc::{c_int, c_void};

/// Bytes held at once, by the first process and by a child.
const MOST_BYTES: usize = 48 << 20;
const MOST_BYTES_BESIDE: usize = 20 << 20;

impl World {
	pub fn step_blocks(&mut self) -> Result {
		match self.rng.weighted(&[(26, 0), (14, 1), (4, 2), (26, 3), (22, 4), (5, 5), (3, 6)]) {
			0 => self.allocate("malloc", |len| {
				// SAFETY: a plain call.
				unsafe { libc::malloc(len) }
			}),
			1 => self.allocate("calloc", |len| {
				// SAFETY: a plain call.
				unsafe { libc::calloc(len / WORD, WORD) }
			}),
			2 => {
				let align = self.rng.pick(&[64, 4096, 64 << 10, 2 << 20]);
				self.allocate("posix_memalign", move |len| {
					let mut at = std::ptr::null_mut();
					// SAFETY: the call writes one pointer.
					let failed = unsafe { libc::posix_memalign(&raw mut at, align, len) } != 0;
					if failed { std::ptr::null_mut() } else { at }
				})
			}
			3 => self.reallocate(),
			4 => self.release(),
			5 => self.rewrite(),
			_ => self.purge(),
		}
	}

	pub fn check_blocks(&self) -> Result {
		self.blocks.slots(true).into_iter().try_for_each(|slot| Blocks::check(&self.blocks.get(slot)))
	}

	fn a_block(&mut self) -> Option<usize> {
		let held = self.blocks.slots(true);
		(!held.is_empty()).then(|| self.rng.pick(&held))
	}

	/// Whole words.
	fn length(&mut self) -> usize {
		let most = self.rng.weighted(&[(25, 1 << 10), (22, 48 << 10), (30, 512 << 10), (19, 3 << 20), (4, 12 << 20)]);
		self.rng.between(most / 16 / WORD, most / WORD) * WORD
	}

	fn room_for(&self, len: usize) -> bool {
		let most = if self.depth > 0 || self.mode == Mode::Threads { MOST_BYTES_BESIDE } else { MOST_BYTES };
		self.blocks.bytes() + len <= most
	}

	fn allocate(&mut self, name: &str, make: impl FnOnce(usize) -> *mut c_void) -> Result {
		let len = self.length();
		let free = self.blocks.slots(false);
		let (looks, fills, parts) = (self.rng.chance(60), self.rng.chance(85), self.rng.chance(15));
		let part = self.rng.between(1, len / WORD) * WORD;
		let Some(slot) = free.first().filter(|_| self.room_for(len)) else { return self.release() };
		self.journal.note(&format!("{name} {len} into {slot}"))?;
		let at = make(len) as usize;
		if at == 0 {
			return Err(format!("{name} of {len} bytes failed"));
		}
		let mut block = Block { at, len, tag: self.blocks.tag(), filled: 0, known: 0 };
		if looks {
			self.blocks.find_secrets(&block, 0, usable(at).max(len))?;
		}
		if name == "calloc" {
			block.known = len;
			Blocks::check(&block)?;
		}
		if fills {
			block.filled = if parts { part } else { len };
			block.known = block.known.max(block.filled);
			Blocks::fill(&block, 0, block.filled);
		}
		self.blocks.set(*slot, block);
		Ok(())
	}

	fn reallocate(&mut self) -> Result {
		let Some(slot) = self.a_block() else { return Ok(()) };
		let old = self.blocks.get(slot);
		let len = if self.rng.chance(70) {
			old.len + self.rng.between(1, old.len.max(1 << 18) / WORD) * WORD
		} else {
			self.length()
		};
		let (looks, fills) = (self.rng.chance(75), self.rng.chance(60));
		let via = self.way(Via::Function);
		if len > old.len && !self.room_for(len - old.len) {
			return Ok(());
		}
		self.journal.note(&format!("realloc {slot} from {} to {len} {via:?}", old.len))?;
		Blocks::check(&old)?;
		if len < old.len {
			wipe(old.at + len, old.len - len);
		}
		let realloc = past::calls(via).and_then(|calls| calls.realloc).unwrap_or(libc::realloc);
		// Somebody else may have the old place before this thread knows.
		let note = self.blocks.note_moved(old.tag)?;
		// SAFETY: the block is this program's, and its old address is not used again.
		let at = unsafe { realloc(old.at as *mut c_void, len) } as usize;
		if at == 0 {
			return Err(format!("realloc to {len} bytes failed"));
		}
		let kept = old.len.min(len);
		let mut block = Block { at, len, filled: old.filled.min(kept), known: old.known.min(kept), ..old };
		Blocks::check(&block)?;
		if at == old.at {
			self.blocks.note_stayed(note);
		}
		if looks && len > old.len {
			self.blocks.find_secrets(&block, old.len, usable(at).max(len))?;
		}
		if fills {
			// Whatever was left behind has the old tag.
			block.tag = self.blocks.tag();
			block.filled = len;
			block.known = len;
			Blocks::fill(&block, 0, len);
		}
		self.blocks.set(slot, block);
		Ok(())
	}

	fn release(&mut self) -> Result {
		let Some(slot) = self.a_block() else { return Ok(()) };
		let block = self.blocks.get(slot);
		self.journal.note(&format!("free {slot}"))?;
		Blocks::check(&block)?;
		wipe(block.at, block.len);
		self.blocks.set(slot, Block::default());
		// SAFETY: the block is this program's, and it is not used again.
		unsafe { libc::free(block.at as *mut c_void) };
		Ok(())
	}

	fn rewrite(&mut self) -> Result {
		let Some(slot) = self.a_block() else { return Ok(()) };
		self.journal.note(&format!("rewrite {slot}"))?;
		let mut block = self.blocks.get(slot);
		Blocks::check(&block)?;
		block.tag = self.blocks.tag();
		block.filled = block.len;
		block.known = block.len;
		Blocks::fill(&block, 0, block.len);
		self.blocks.set(slot, block);
		Ok(())
	}

	/// Gives back what is free, in each allocator's own way.
	fn purge(&mut self) -> Result {
		self.journal.note("purge")?;
		let find = |name: &std::ffi::CStr| {
			// SAFETY: a lookup by name.
			let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
			(!at.is_null()).then_some(at)
		};
		// SAFETY: the functions have these types in jemalloc, mimalloc and gperftools; 4096 means all arenas.
		unsafe {
			if let Some(at) = find(c"mallctl") {
				type Mallctl =
					unsafe extern "C" fn(*const libc::c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;
				let mallctl = std::mem::transmute::<*mut c_void, Mallctl>(at);
				let none = std::ptr::null_mut();
				mallctl(c"arena.4096.purge".as_ptr(), none, none.cast(), none, 0);
			} else if let Some(at) = find(c"mi_collect") {
				std::mem::transmute::<*mut c_void, unsafe extern "C" fn(bool)>(at)(true);
			} else if let Some(at) = find(c"MallocExtension_ReleaseFreeMemory") {
				std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(at)();
			} else {
				libc::malloc_trim(0);
			}
		}
		self.check_blocks()
	}
}

fn usable(at: usize) -> usize {
	// SAFETY: a block of the allocator's.
	unsafe { libc::malloc_usable_size(at as *mut c_void) }
}

/// Overwrites with zeros, even what is about to be freed.
fn wipe(at: usize, len: usize) {
	// SAFETY: part of a block of this program's.
	unsafe { libc::explicit_bzero(at as *mut c_void, len) };
}
