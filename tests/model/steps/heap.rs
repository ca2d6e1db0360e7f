//! `brk(2)` through libc's `sbrk`.

use crate::{
	content::PAGE,
	journal::Expect,
	world::{
		World,
		check::Depth,
		choose::BLOCK,
		space::{heap, heap_pages},
		table::attr,
	},
};
use flashfork_tests::{Result, route::errno};

/// The origin of the heap, whose pages all come from one mapping.
const ORIGIN: u32 = u32::MAX;

impl World {
	pub fn step_heap(&mut self) -> Result {
		let shrink = self.heap_pages > 0 && self.rng.chance(30);
		let change = self.rng.pick(&[1, 13, BLOCK, 2 * BLOCK, 3 * BLOCK + 5]);
		let change = if shrink { change.min(self.heap_pages) } else { change.min(heap_pages() - self.heap_pages) };
		if change == 0 {
			return Ok(());
		}
		let before = heap() + self.heap_pages;
		let after = if shrink { before - change } else { before + change };
		let bytes = if shrink { -((change * PAGE) as isize) } else { (change * PAGE) as isize };
		let space = self.space;
		self.journal.call(&format!("sbrk from {before} to {after}"), Expect::Exactly(Ok(before as u64)), || {
			// SAFETY: libc's own heap ends below; it was told to keep what it has.
			let old = unsafe { libc::sbrk(bytes) };
			if old as isize == -1 {
				return Err(errno());
			}
			// The end of a full heap is one past its last page.
			Ok(space.page(old as usize - 1).map_or(heap() as u64, |p| p as u64 + 1))
		})?;
		self.heap_pages = after - heap();
		if shrink {
			self.table.unmap(after..before);
		} else {
			self.table.map(before..after, attr::READ | attr::WRITE, ORIGIN);
			if self.rng.chance(60) {
				self.write_pages(before..after);
			}
		}
		self.check(heap()..heap() + self.heap_pages, Depth::Written)
	}
}
