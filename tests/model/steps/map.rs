//! `mmap(2)` and `munmap(2)`.

use crate::{
	content::{PAGE, Tag},
	journal::Expect,
	template::{TEMPLATE_PAGES, Template, tag},
	world::{World, check::Depth, choose::BLOCK, space::arena_pages, table::attr},
};
use flashfork_tests::{
	Result,
	route::{Outcome, errno},
};
use libc::c_int;
use std::ops::Range;

pub fn protection(prot: c_int) -> u32 {
	[(libc::PROT_READ, attr::READ), (libc::PROT_WRITE, attr::WRITE), (libc::PROT_EXEC, attr::EXEC)]
		.iter()
		.filter(|(p, _)| prot & p != 0)
		.map(|(_, a)| a)
		.sum()
}

pub struct Part {
	pub fd: i32,
	/// Where it begins, in pages.
	pub page: usize,
	/// What a page of the file holds.
	pub tag: fn(usize) -> Tag,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
	Anonymous,
	SharedAnonymous,
	SharedMemory,
	PrivateFile,
}

impl World {
	pub fn step_map(&mut self) -> Result {
		let kind = self.rng.weighted(&[
			(82, Kind::Anonymous),
			(5, Kind::SharedAnonymous),
			(4, Kind::SharedMemory),
			(9, Kind::PrivateFile),
		]);
		// Of a snapshot's mappings these alone can be made again.
		let kind = if self.prepares { Kind::Anonymous } else { kind };
		let mut len = self.size();
		if kind != Kind::Anonymous {
			len = len.min(TEMPLATE_PAGES);
		}
		let Some(range) = self.place(len) else { return self.step_unmap() };
		let prot = self.rng.weighted(&[
			(82, libc::PROT_READ | libc::PROT_WRITE),
			(5, libc::PROT_READ),
			(6, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC),
			(3, libc::PROT_WRITE),
			(4, libc::PROT_NONE),
		]);
		// Shared memory is written by the first process only; others would need a model in common.
		let prot = if kind == Kind::SharedMemory { prot & !libc::PROT_WRITE } else { prot };
		let more = self.rng.weighted(&[(72, 0), (20, libc::MAP_NORESERVE), (8, libc::MAP_POPULATE)]);
		let flags = match kind {
			Kind::Anonymous => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
			Kind::SharedAnonymous => libc::MAP_SHARED | libc::MAP_ANONYMOUS,
			Kind::SharedMemory => libc::MAP_SHARED,
			Kind::PrivateFile => libc::MAP_PRIVATE,
		};
		let of_file = matches!(kind, Kind::SharedMemory | Kind::PrivateFile);
		let (fd, page) = (self.template.fd(), if of_file { self.rng.between(0, TEMPLATE_PAGES - len) } else { 0 });
		let part = of_file.then_some(Part { fd, page, tag });
		self.map_at(range.clone(), prot, flags | more, part)?;
		if kind == Kind::Anonymous && self.rng.chance(35) {
			self.advise(range, libc::MADV_HUGEPAGE, flashfork_tests::route::Via::Function)?;
		}
		Ok(())
	}

	/// A place for a new mapping: unmapped, or now and then over others.
	fn place(&mut self, len: usize) -> Option<Range<usize>> {
		if self.rng.chance(12) {
			let start = self.rng.below(arena_pages() - len);
			return Some(start..start + len);
		}
		self.gap(len)
	}

	/// Maps something over a range; of a file, if it is part of one.
	pub fn map_at(&mut self, range: Range<usize>, prot: c_int, flags: c_int, part: Option<Part>) -> Result {
		let (fd, file_page) = part.as_ref().map_or((-1, 0), |part| (part.fd, part.page));
		let origin = self.origin();
		let occupied = range.clone().any(|p| self.table.mapped(p));
		let no_replace = self.rng.chance(5);
		let fixed = if no_replace { libc::MAP_FIXED_NOREPLACE } else { libc::MAP_FIXED };
		let expected = if no_replace && occupied { Err(libc::EEXIST) } else { Ok(range.start as u64) };
		let text = format!("mmap {range:?} prot {prot} flags {:#x} file {file_page}", flags | fixed);
		let space = self.space;
		let outcome = self.journal.call(&text, Expect::Exactly(expected), || {
			let at = space.addr(range.start);
			let offset = Template::offset(file_page);
			// SAFETY: the arena holds nothing but memory under test.
			let got = unsafe { libc::mmap(at as *mut _, range.len() * PAGE, prot, flags | fixed, fd, offset) };
			if got == libc::MAP_FAILED {
				return Err(errno());
			}
			space.page(got as usize).map(|p| p as u64).ok_or(libc::EADDRNOTAVAIL)
		})?;
		if let Some(Ok(_)) = outcome {
			let shared = if flags & libc::MAP_SHARED != 0 { attr::SHARED } else { 0 };
			let file = if part.is_some() { attr::FILE } else { 0 };
			self.table.map(range.clone(), protection(prot) | shared | file, origin);
			if let Some(part) = part {
				for (i, page) in range.enumerate() {
					self.table.set_file(page, (part.tag)(part.page + i));
				}
			}
		}
		Ok(())
	}

	pub fn step_unmap(&mut self) -> Result {
		let Some(range) = self.range() else { return Ok(()) };
		// The heap is unmapped by brk alone; libc would be lost otherwise.
		if range.start >= arena_pages() {
			return Ok(());
		}
		// Large pieces go often, or the arena fills up.
		let range = if self.rng.chance(30) { range.start..(range.end + 4 * BLOCK).min(arena_pages()) } else { range };
		let space = self.space;
		self.journal.call(&format!("munmap {range:?}"), Expect::Exactly(Ok(0)), || {
			unmap(space.addr(range.start), range.len())
		})?;
		self.table.unmap(range.clone());
		let around = range.start.saturating_sub(4)..(range.end + 4).min(arena_pages());
		self.check(around, Depth::Written)
	}
}

pub fn unmap(addr: usize, pages: usize) -> Outcome {
	// SAFETY: only memory under test is given here.
	let result = unsafe { libc::munmap(addr as *mut _, pages * PAGE) };
	if result < 0 { Err(errno()) } else { Ok(0) }
}
