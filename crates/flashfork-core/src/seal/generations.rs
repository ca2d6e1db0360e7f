//! What was put into each file of sealed memory ([`super::file`]): the difference to what of it is still mapped is
//! memory that serves nobody. And where something was written since.

use super::witness;
use crate::apart::Apart;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Files of sealed memory that a process may hold at once. The next seal folds all of them into one.
pub const MAX_GENERATIONS: usize = 8;

/// The same where memory is sealed in parts, and a part in each fork is no occasion for folding. When half as many are
/// there, parts are as large as the rest needs, however long forks wait for them.
pub const MAX_PARTS: usize = 192;

/// More than are ever mapped at once: one is made before those it replaces are gone.
pub const PLACES: usize = MAX_PARTS + 2 * MAX_GENERATIONS;

pub(crate) static GENERATIONS: Apart<Generations> = Apart::new(Generations::new());

/// Bytes in files of sealed memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memfds {
	/// Bytes in those of which something is mapped.
	pub bytes: u64,
	/// Of these, bytes that are mapped no more: unmapped, or discarded.
	pub gone: u64,
}

/// See the module. Clones inherit it.
pub(crate) struct Generations([Generation; PLACES]);

/// Device and inode number of a file: inodes of files in mounts of their own are all the same. (0, 0): none.
pub(crate) type Identity = (u64, u64);

struct Generation {
	/// 0: nothing is here.
	inode: AtomicU64,
	device: AtomicU64,
	bytes: AtomicU64,
	written: AtomicBool,
	/// Whether no other process had it at some time since this one began.
	alone: AtomicBool,
}

impl Generation {
	fn identity(&self) -> Identity {
		(self.device.load(SeqCst), self.inode.load(SeqCst))
	}
}

impl Generations {
	pub const fn new() -> Generations {
		// SAFETY: all of it is atomics, of which zeros are a value.
		unsafe { core::mem::zeroed() }
	}

	/// Notes that a file was filled. Where there is no place left it is taken for as large as what is mapped of it.
	pub fn add(&self, file: Identity, bytes: u64, is_mapped: impl Fn(Identity) -> bool) {
		let free = |place: &Generation| {
			let known = place.identity();
			known.1 == 0 || known == file || !is_mapped(known)
		};
		if let Some((at, place)) = self.0.iter().enumerate().find(|(_, place)| free(place)) {
			witness::begin(at);
			place.inode.store(0, SeqCst);
			place.bytes.store(bytes, SeqCst);
			place.written.store(false, SeqCst);
			place.alone.store(false, SeqCst);
			place.device.store(file.0, SeqCst);
			place.inode.store(file.1, SeqCst);
		}
	}

	/// Forgets the files of which nothing is mapped any more.
	pub fn keep(&self, is_mapped: impl Fn(Identity) -> bool) {
		for (at, place) in self.0.iter().enumerate() {
			let known = place.identity();
			if known.1 != 0 && !is_mapped(known) {
				place.inode.store(0, SeqCst);
				witness::end(at);
			}
		}
	}

	fn find(&self, file: Identity) -> Option<&Generation> {
		self.0.iter().find(|place| place.identity() == file)
	}

	/// Notes that no other process has what is at this place.
	pub fn note_alone(&self, place: usize) {
		if let Some(place) = self.0.get(place).filter(|place| place.identity().1 != 0) {
			place.alone.store(true, SeqCst);
		}
	}

	/// Whether that was so of a file.
	pub fn was_alone(&self, file: Identity) -> bool {
		self.find(file).is_some_and(|known| known.alone.load(SeqCst))
	}

	/// In a clone: its parent has it all, too.
	pub fn begin_in_clone(&self) {
		self.0.iter().filter(|place| place.alone.load(SeqCst)).for_each(|place| place.alone.store(false, SeqCst));
	}

	/// What is in a file of which so many bytes are mapped.
	pub fn of(&self, file: Identity, mapped: u64) -> Memfds {
		let bytes = self.find(file).map_or(mapped, |known| known.bytes.load(SeqCst));
		Memfds { bytes, gone: bytes.saturating_sub(mapped) }
	}

	/// Notes that something was written where this file is mapped: forks copy the page tables of that mapping, of all
	/// that it is cut into, and whatever becomes of what was written.
	pub fn note_written(&self, file: Identity) {
		if let Some(known) = self.find(file) {
			known.written.store(true, SeqCst);
		}
	}

	/// Whether that is known of a file.
	pub fn is_written(&self, file: Identity) -> bool {
		self.find(file).is_some_and(|known| known.written.load(SeqCst))
	}

	/// Whether it is known of any.
	pub fn is_any_written(&self) -> bool {
		self.0.iter().any(|place| place.written.load(SeqCst))
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_is_mapped_no_more_is_gone_and_dead_generations_make_room() {
		let generations = Generations::new();
		let of = |inode| (1, inode);
		for inode in 1..1_000 {
			generations.add(of(inode), 10, |(_, other)| other == 1 || other + 1 == inode);
		}
		assert_eq!(generations.of(of(1), 4), Memfds { bytes: 10, gone: 6 });
		assert_eq!(generations.of(of(999), 10), Memfds { bytes: 10, gone: 0 });
		assert_eq!(
			generations.of(of(999), 20),
			Memfds { bytes: 10, gone: 0 },
			"a mapping may reach behind what was put in"
		);
		assert!(!generations.is_any_written());
		generations.note_written(of(999));
		assert!(generations.is_written(of(999)) && !generations.is_written(of(1)) && generations.is_any_written());
		generations.add(of(999), 10, |_| true);
		assert!(!generations.is_any_written(), "another memfd");
		generations.add((2, 999), 20, |_| true);
		assert_eq!(generations.of((2, 999), 20).bytes + generations.of(of(999), 10).bytes, 30, "one in another mount");
		assert_eq!(generations.of(of(5_000), 7), Memfds { bytes: 7, gone: 0 }, "made by somebody else");
	}
}
