//! The victim's memory: a few regions with known contents.

use flashfork_tests::{
	Result,
	content::{PAGE, Tag, WORDS, fill, holds},
};
use libc::c_int;

/// A mapping and what each of its pages holds.
#[derive(Clone)]
pub struct Region {
	pub addr: usize,
	pub tags: Vec<Tag>,
}

impl Region {
	/// Anonymous memory at a fixed address, written all over.
	pub fn new(addr: usize, pages: usize, first: Tag) -> Result<Region> {
		let prot = libc::PROT_READ | libc::PROT_WRITE;
		let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
		// SAFETY: replaces nothing.
		let at = unsafe { libc::mmap(addr as *mut _, pages * PAGE, prot, flags, -1, 0) };
		if at as usize != addr {
			return Err(format!("no memory at {addr:#x}: {}", std::io::Error::last_os_error()));
		}
		let mut region = Region { addr, tags: vec![0; pages] };
		region.write(0..pages, first);
		Ok(region)
	}

	pub fn len(&self) -> usize {
		self.tags.len() * PAGE
	}

	/// Overwrites pages, each with its own tag from `first` on.
	pub fn write(&mut self, pages: impl Iterator<Item = usize>, first: Tag) {
		for (page, tag) in pages.zip(first..) {
			// SAFETY: the page is part of the mapping, which is writable.
			let words = unsafe { std::slice::from_raw_parts_mut((self.addr + page * PAGE) as *mut u64, WORDS) };
			fill(words, 0, tag);
			self.tags[page] = tag;
		}
	}

	pub fn page_holds(&self, page: usize, tag: Tag) -> bool {
		let at = (self.addr + page * PAGE) as *const [u64; WORDS];
		// SAFETY: the page is part of the mapping, which is readable.
		holds(unsafe { &*at }, tag)
	}

	pub fn check(&self) -> Result {
		match (0..self.tags.len()).find(|p| !self.page_holds(*p, self.tags[*p])) {
			None => Ok(()),
			Some(page) if self.page_holds(page, 0) => Err(format!("page {page} of {:#x} is lost: all zero", self.addr)),
			Some(page) => Err(format!("page {page} of {:#x} holds something else", self.addr)),
		}
	}

	pub fn protect(&self, prot: c_int) -> Result {
		// SAFETY: our own mapping; the caller knows what it does then.
		match unsafe { libc::mprotect(self.addr as *mut _, self.len(), prot) } {
			0 => Ok(()),
			_ => Err(format!("mprotect: {}", std::io::Error::last_os_error())),
		}
	}
}

pub fn maps_line(addr: usize) -> Result<String> {
	let maps = std::fs::read_to_string("/proc/self/maps").map_err(|e| format!("/proc/self/maps: {e}"))?;
	let holds = |line: &&str| {
		let range = line.split(' ').next().and_then(|r| r.split_once('-'));
		let parse = |s| usize::from_str_radix(s, 16).ok();
		range.and_then(|(a, b)| Some((parse(a)?..parse(b)?).contains(&addr))).unwrap_or(false)
	};
	Ok(maps.lines().find(holds).unwrap_or_default().to_string())
}

pub fn is_sealed(addr: usize) -> Result<bool> {
	Ok(maps_line(addr)?.contains("/memfd:flashfork:"))
}
