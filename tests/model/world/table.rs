//! What memory should be, page by page. It lies in a shared mapping, which is never sealed: the model is outside what
//! it tests.

use super::{
	blocks::shared,
	space::{MOST, arena_pages, pages},
};
use crate::content::{Content, Tag};
use std::ops::Range;

/// What holds for a page besides its content, one bit each.
pub mod attr {
	pub const MAPPED: u32 = 1;
	pub const SHARED: u32 = 1 << 1;
	pub const FILE: u32 = 1 << 2;
	pub const READ: u32 = 1 << 3;
	pub const WRITE: u32 = 1 << 4;
	pub const EXEC: u32 = 1 << 5;
	pub const DONTFORK: u32 = 1 << 6;
	pub const WIPEONFORK: u32 = 1 << 7;
	pub const DONTDUMP: u32 = 1 << 8;
	pub const LOCKED: u32 = 1 << 9;
	pub const MERGEABLE: u32 = 1 << 10;
	pub const HUGE: u32 = 1 << 11;
	pub const NOHUGE: u32 = 1 << 12;
	/// A guard region: any access faults.
	pub const GUARD: u32 = 1 << 13;
	/// `MADV_FREE`: the content may turn to zeros at any moment.
	pub const LAZY: u32 = 1 << 14;

	/// Huge page advice that new memory behind a mapping in pieces should have, or that was given while another thread
	/// sealed: it may get lost. It is only a hint.
	pub const LATE: u32 = 1 << 15;

	/// Mapped, or moved from what was mapped, before code came that makes system calls of its own: it may lie in pieces
	/// since a seal, and the kernel moves and grows one piece at a time (`EFAULT`), which nobody sees who could do
	/// better.
	pub const OLD: u32 = 1 << 16;

	/// Given to the kernel to take (MADV_FREE) and not written since. Unlike LAZY, which goes when the page was seen
	/// empty, it is the same whatever the kernel did: what a run does next may depend on it.
	pub const FREED: u32 = 1 << 17;

	pub const PROT: u32 = READ | WRITE | EXEC;
	/// What belongs to the page and not to the VMA.
	pub const OF_PAGE: u32 = GUARD | LAZY | FREED;
}

#[repr(C)]
struct Pages {
	attr: [u32; MOST],
	/// The call that made the mapping: what one `mmap` made, a program may move with one `mremap`.
	origin: [u32; MOST],
	content: [Content; MOST],
}

pub struct Table {
	pages: &'static mut Pages,
}

impl Table {
	/// A table with nothing mapped.
	pub fn new() -> Table {
		// SAFETY: just mapped, nobody else's, and all-zero bytes are valid pages.
		Table { pages: unsafe { &mut *shared() } }
	}

	/// The table as it is now, for later.
	pub fn copy(&self) -> Table {
		let mut copy = Table::new();
		copy.become_again(self);
		copy
	}

	/// Takes over what another table says.
	pub fn become_again(&mut self, other: &Table) {
		let all = 0..pages();
		self.pages.attr[all.clone()].copy_from_slice(&other.pages.attr[all.clone()]);
		self.pages.origin[all.clone()].copy_from_slice(&other.pages.origin[all.clone()]);
		self.pages.content[all.clone()].copy_from_slice(&other.pages.content[all]);
	}

	/// Everything mapped now is old.
	pub fn grow_old(&mut self) {
		for page in (0..pages()).filter(|page| self.has(*page, attr::MAPPED)).collect::<Vec<_>>() {
			self.set(page, attr::OLD);
		}
	}

	/// From now on advice about huge pages counts for nothing.
	pub fn forget_huge_advice(&mut self) {
		for page in 0..pages() {
			if self.mapped(page) {
				self.set(page, attr::LATE);
			}
		}
	}

	pub fn for_child(&self) -> Table {
		let child = Table::new();
		let all = 0..pages();
		child.pages.attr[all.clone()].copy_from_slice(&self.pages.attr[all.clone()]);
		child.pages.origin[all.clone()].copy_from_slice(&self.pages.origin[all]);
		for i in 0..pages() {
			let a = self.pages.attr[i];
			if a & attr::MAPPED == 0 {
				continue;
			}
			if a & attr::DONTFORK != 0 {
				child.pages.attr[i] = 0;
				child.pages.origin[i] = 0;
				continue;
			}
			child.pages.content[i] = self.pages.content[i];
			// Locks are not inherited (fork(2)).
			child.pages.attr[i] &= !attr::LOCKED;
			if a & attr::WIPEONFORK != 0 {
				child.pages.attr[i] &= !(attr::LAZY | attr::FREED | attr::GUARD);
				child.pages.content[i] = Content::default();
			}
		}
		child
	}

	pub fn attr(&self, page: usize) -> u32 {
		self.pages.attr[page]
	}

	pub fn has(&self, page: usize, bits: u32) -> bool {
		self.pages.attr[page] & bits == bits
	}

	pub fn mapped(&self, page: usize) -> bool {
		self.has(page, attr::MAPPED)
	}

	pub fn origin(&self, page: usize) -> u32 {
		self.pages.origin[page]
	}

	pub fn content(&self, page: usize) -> &Content {
		&self.pages.content[page]
	}

	pub fn content_mut(&mut self, page: usize) -> &mut Content {
		&mut self.pages.content[page]
	}

	pub fn set(&mut self, page: usize, bits: u32) {
		self.pages.attr[page] |= bits;
	}

	pub fn clear(&mut self, page: usize, bits: u32) {
		self.pages.attr[page] &= !bits;
	}

	pub fn map(&mut self, range: Range<usize>, attributes: u32, origin: u32) {
		for i in range {
			self.pages.attr[i] = attributes | attr::MAPPED;
			self.pages.origin[i] = origin;
			self.pages.content[i] = Content::default();
		}
	}

	/// A page of a file, mapped.
	pub fn set_file(&mut self, page: usize, tag: Tag) {
		self.pages.content[page] = Content::of_file(tag);
	}

	pub fn unmap(&mut self, range: Range<usize>) {
		for i in range {
			self.pages.attr[i] = 0;
			self.pages.origin[i] = 0;
			self.pages.content[i] = Content::default();
		}
	}

	/// Moves pages as `mremap` does: `from` is unmapped, `to` gets what was there, with a new origin.
	pub fn relocate(&mut self, from: Range<usize>, to: usize, origin: u32) {
		let moved: Vec<_> = from.clone().map(|i| (self.pages.attr[i], self.pages.content[i])).collect();
		self.unmap(from);
		for (i, (attributes, content)) in (to..).zip(moved) {
			self.pages.attr[i] = attributes;
			self.pages.content[i] = content;
			self.pages.origin[i] = origin;
		}
	}

	/// The stretches made by one call each, in order of address.
	pub fn segments(&self) -> Vec<Range<usize>> {
		let mut out = Vec::new();
		let mut start = 0;
		for i in 1..=pages() {
			if i == pages() || self.pages.origin[i] != self.pages.origin[start] {
				if self.pages.origin[start] != 0 {
					out.push(start..i);
				}
				start = i;
			}
		}
		out
	}

	pub fn gaps(&self) -> Vec<Range<usize>> {
		let mut out = Vec::new();
		let mut start = 0;
		for i in 0..arena_pages() {
			if self.mapped(i) {
				if i > start {
					out.push(start..i);
				}
				start = i + 1;
			}
		}
		if start < arena_pages() {
			out.push(start..arena_pages());
		}
		out
	}

	pub fn count(&self, range: Range<usize>, bit: u32) -> usize {
		self.pages.attr[range].iter().filter(|a| *a & bit != 0).count()
	}
}

impl Drop for Table {
	fn drop(&mut self) {
		// SAFETY: the mapping is ours and nothing refers to it any more. A failure would only keep it.
		let _ = unsafe { libc::munmap((&raw mut *self.pages).cast(), size_of::<Pages>()) };
	}
}
