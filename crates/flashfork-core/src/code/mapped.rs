//! A file of which code is mapped, as the list of mappings tells of it.

use crate::{
	proc::vma::Vma,
	range::Range,
	sys::{PROT_EXEC, PROT_READ},
};
use core::ffi::CStr;

/// Executable ranges of one object.
const PARTS: usize = 16;

/// The mappings of a file, from one with the file's beginning on.
pub(crate) struct Object {
	pub device: [u32; 2],
	pub inode: u64,
	/// Where the file begins, when that is mapped and can be read.
	pub start: Option<usize>,
	pub code: [Range; PARTS],
	pub code_count: usize,
	/// What of the file that is.
	parts: [Range; PARTS],
	/// How many there are, those among them for which there is no room.
	part_count: usize,
	path: [u8; 4096],
}

impl Object {
	/// Holds nothing.
	pub fn clear(&mut self) {
		(self.inode, self.code_count, self.part_count) = (0, 0, 0);
	}

	/// Begins anew with a mapping.
	pub fn begin(&mut self, v: &Vma, path: &[u8]) {
		(self.device, self.inode) = (v.device, v.inode);
		(self.code_count, self.part_count) = (0, 0);
		self.start = (v.offset == 0 && v.prot & PROT_READ != 0).then_some(v.range.start);
		// No path is longer, and the last byte stays zero.
		let len = path.len().min(self.path.len() - 1);
		self.path[..len].copy_from_slice(&path[..len]);
		self.path[len] = 0;
	}

	/// Whether a mapping is of the same file, further on in it.
	pub fn goes_on_with(&self, v: &Vma) -> bool {
		self.inode == v.inode && self.device == v.device && v.offset != 0
	}

	/// Adds a mapping, if it is executable.
	pub fn add(&mut self, v: &Vma) {
		if v.prot & PROT_EXEC == 0 {
			return;
		}
		match self.code[..self.code_count].last_mut() {
			Some(last) if last.end == v.range.start || self.code_count == PARTS => last.end = v.range.end,
			_ => {
				self.code[self.code_count] = v.range;
				self.code_count += 1;
			}
		}
		let part = part(v);
		match self.parts[..self.part_count.min(PARTS)].last_mut() {
			Some(last) if last.end == part.start && self.part_count <= PARTS => last.end = part.end,
			_ => {
				if let Some(place) = self.parts.get_mut(self.part_count) {
					*place = part;
				}
				self.part_count += 1;
			}
		}
	}

	/// Which parts of the file are its code; `None` for more than there is room for.
	pub fn parts(&self) -> Option<&[Range]> {
		self.parts.get(..self.part_count)
	}

	/// The file's path.
	pub fn path(&self) -> &CStr {
		CStr::from_bytes_until_nul(&self.path).unwrap_or(c"")
	}
}

pub(crate) fn part(v: &Vma) -> Range {
	let start = v.offset as usize;
	Range::new(start, start.saturating_add(v.range.len()))
}
