//! `mremap(2)`: grow, shrink, move, over others, and leaving the old range behind.

use super::map::unmap;
use crate::{
	content::PAGE,
	journal::Expect,
	world::{
		World,
		check::Depth,
		choose::BLOCK,
		space::{arena_pages, heap},
		table::attr,
	},
};
use flashfork_tests::{Result, route::Via};
use libc::c_int;
use std::ops::Range;

const KEEP: c_int = libc::MREMAP_DONTUNMAP;
const MOVE: c_int = libc::MREMAP_MAYMOVE;
const FIXED: c_int = libc::MREMAP_FIXED;

/// What a result means beside a page number: moved to where the kernel chose.
const ELSEWHERE: u64 = u64::MAX;

impl World {
	pub fn step_remap(&mut self) -> Result {
		let Some(from) = self.uniform() else { return Ok(()) };
		if from.start >= heap() {
			return Ok(());
		}
		let a = self.table.attr(from.start);
		let kind = self.rng.weighted(&[(25, 0), (10, 1), (20, 2), (30, FIXED | MOVE), (15, KEEP | MOVE)]);
		// A mapping of a file that grows past its end has nothing behind it.
		let may_grow = a & (attr::FILE | attr::SHARED) == 0;
		let old = from.len();
		let more = self.rng.pick(&[1, 7, BLOCK / 2, BLOCK, 2 * BLOCK + 3]);
		let new = match kind {
			0 if may_grow => old + more,
			1 => self.rng.between(1, old),
			2 if may_grow => old + more,
			FIXED_MOVE if self.rng.chance(20) && may_grow => old + more,
			FIXED_MOVE if self.rng.chance(20) => self.rng.between(1, old),
			_ => old,
		};
		match kind {
			0 | 1 => self.resize(from, new, 0),
			2 => self.resize(from, new, MOVE),
			FIXED_MOVE => self.move_to(from, new, MOVE | FIXED),
			// The lock of a mapping left behind next to its new place is lost in both (Linux 6.18).
			_ if a & (attr::FILE | attr::SHARED | attr::LOCKED) != 0 => Ok(()),
			_ => self.move_to(from, old, MOVE | FIXED | KEEP),
		}
	}

	/// Which way a call takes for a mapping.
	fn way_for(&mut self, page: usize) -> Via {
		match self.way(Via::Function) {
			Via::Raw if self.table.has(page, attr::OLD) => Via::Function,
			via => via,
		}
	}

	/// Without an address: the kernel says where.
	fn resize(&mut self, from: Range<usize>, new: usize, flags: c_int) -> Result {
		let old = from.len();
		if from.start + new > arena_pages() {
			return Ok(()); // it would grow out of the arena
		}
		// Where it goes on to when the kernel moves it out of the arena.
		let home = self.gap(new);
		let via = self.way_for(from.start);
		let (space, route) = (self.space, self.route);
		let mut elsewhere = 0;
		let text = format!("mremap {from:?} to {new} pages flags {flags} {via:?}");
		let made = self.journal.call(&text, Expect::AsPlainUnlessFault, || {
			let at = route.mremap(space.addr(from.start), old * PAGE, new * PAGE, flags, 0, via)?;
			elsewhere = at as usize;
			Ok(space.page(at as usize).map_or(ELSEWHERE, |p| p as u64))
		})?;
		match made {
			Some(Ok(ELSEWHERE)) => self.bring_home(from, new, elsewhere, home),
			Some(Ok(at)) if at as usize == from.start => {
				if new < old {
					self.table.unmap(from.start + new..from.end);
				} else {
					self.grow(from.start..from.start + old, from.start + new);
				}
				self.check(from.start..from.start + new, Depth::All)
			}
			Some(Ok(at)) => Err(format!("{text}: moved to page {at} of the arena")),
			Some(Err(_)) | None => self.check(from, Depth::Written),
		}
	}

	/// Takes what the kernel put outside the arena back into it.
	fn bring_home(&mut self, from: Range<usize>, new: usize, at: usize, home: Option<Range<usize>>) -> Result {
		let old = from.len();
		let Some(home) = home else {
			self.table.unmap(from);
			return self.journal.call("munmap elsewhere", Expect::Exactly(Ok(0)), || unmap(at, new)).map(drop);
		};
		// The old place is free now, so the new one may lie over it: the model moves in two steps as well.
		let via = self.way_for(from.start);
		let (space, route) = (self.space, self.route);
		let text = format!("mremap back to {home:?}");
		let start = home.start;
		let made = self.journal.call(&text, Expect::AsPlainUnlessFault, || {
			let got = route.mremap(at, new * PAGE, new * PAGE, MOVE | FIXED, space.addr(start), via)?;
			Ok(space.page(got as usize).map_or(ELSEWHERE, |p| p as u64))
		})?;
		if made != Some(Ok(start as u64)) {
			return Err(format!("{text} gave {made:?}: a mapping just made must be movable"));
		}
		let origin = self.origin();
		self.table.relocate(from, start, origin);
		self.grow(start..start + old, start + new);
		self.check(start..start + new, Depth::All)
	}

	/// To a place of the run's choosing, over whatever is there.
	fn move_to(&mut self, from: Range<usize>, new: usize, flags: c_int) -> Result {
		let old = from.len();
		let free = if self.rng.chance(75) { self.gap(new) } else { None };
		let to = match free {
			Some(gap) => gap.start,
			None => self.rng.below(arena_pages() - new),
		};
		let target = to..to + new;
		if target.start < from.end && from.start < target.end {
			return Ok(()); // EINVAL, one of the calls of `step_nonsense`
		}
		let via = self.way_for(from.start);
		let (space, route) = (self.space, self.route);
		let text = format!("mremap {from:?} onto {target:?} flags {flags} {via:?}");
		let made = self.journal.call(&text, Expect::AsPlainUnlessFault, || {
			let got = route.mremap(space.addr(from.start), old * PAGE, new * PAGE, flags, space.addr(to), via)?;
			Ok(space.page(got as usize).map_or(ELSEWHERE, |p| p as u64))
		})?;
		match made {
			Some(Ok(_)) => {}
			Some(Err(e)) => return Err(format!("{text}: errno {e}")),
			// Kernels before 6.17 unmap the target, and what is beyond the new length, before they look at the source
			// (mremap_to): what was there is lost or is not. Now it is.
			None => {
				self.unmap_quietly(target)?;
				self.unmap_quietly(from.start + new.min(old)..from.end)?;
				return self.check(from.start..from.start + new.min(old), Depth::Written);
			}
		}
		let origin = self.origin();
		if flags & KEEP != 0 {
			self.leave_behind(from, to, origin);
			return self.check(target, Depth::All);
		}
		let kept = from.start..from.start + old.min(new);
		self.table.unmap(target.clone());
		if new < old {
			self.table.unmap(from.start + new..from.end);
		}
		self.table.relocate(kept.clone(), to, origin);
		self.grow(to..to + kept.len(), to + new);
		self.check(target, Depth::All)
	}

	fn unmap_quietly(&mut self, range: Range<usize>) -> Result {
		if range.is_empty() {
			return Ok(());
		}
		let at = self.space.addr(range.start);
		let text = format!("munmap {range:?} after all");
		self.journal.call(&text, Expect::Exactly(Ok(0)), || unmap(at, range.len()))?;
		self.table.unmap(range);
		Ok(())
	}

	/// MREMAP_DONTUNMAP: the old mapping stays, empty and unlocked, and its guards go along.
	fn leave_behind(&mut self, from: Range<usize>, to: usize, origin: u32) {
		let old_origin = self.table.origin(from.start);
		let of_vma = self.table.attr(from.start) & !attr::OF_PAGE;
		self.table.unmap(to..to + from.len());
		self.table.relocate(from.clone(), to, origin);
		self.table.map(from, of_vma & !attr::LOCKED, old_origin);
	}

	/// New pages behind a mapping: zeros, with what holds for the VMA.
	fn grow(&mut self, mapping: Range<usize>, end: usize) {
		if end > mapping.end {
			let of_vma = self.table.attr(mapping.start) & !attr::OF_PAGE;
			let origin = self.table.origin(mapping.start);
			self.table.map(mapping.end..end, of_vma | attr::LATE, origin);
		}
	}
}

const FIXED_MOVE: c_int = FIXED | MOVE;
