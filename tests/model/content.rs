//! What the model knows of one page.

pub use flashfork_tests::content::{HEADER, PAGE, Tag, WORDS, fill, holds, word};

#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
	pub tag: Tag,
	pub start: u16,
	pub end: u16,
}

/// Parts a page may have over its base.
pub const PARTS: usize = 2;

#[derive(Clone, Copy, Debug, Default)]
pub struct Content {
	pub base: Tag,
	/// What a discard brings back: 0, or the tag of the file's page.
	pub file: Tag,
	pub parts: [Part; PARTS],
	pub part_count: u32,
}

impl Content {
	pub fn of_file(tag: Tag) -> Content {
		Content { base: tag, file: tag, ..Content::default() }
	}

	pub fn discarded(&self) -> Content {
		Content { base: self.file, file: self.file, ..Content::default() }
	}

	pub fn is_zero(&self) -> bool {
		self.base == 0 && self.part_count == 0
	}

	/// Notes a write to words `start..end`; false when the page has no room for another part.
	pub fn write(&mut self, start: usize, end: usize, tag: Tag) -> bool {
		if self.part_count as usize == PARTS {
			return false;
		}
		self.parts[self.part_count as usize] = Part { tag, start: start as u16, end: end as u16 };
		self.part_count += 1;
		true
	}

	pub fn overwrite(&mut self, tag: Tag) {
		*self = Content { base: tag, file: self.file, ..Content::default() };
	}

	/// The first word that is not as it should be: its index, what it is, what it should be.
	pub fn difference(&self, words: &[u64; WORDS]) -> Option<(usize, u64, u64)> {
		if self.part_count == 0 && holds(words, self.base) {
			return None;
		}
		(0..WORDS).map(|i| (i, words[i], self.word(i))).find(|(_, is, should)| is != should)
	}

	pub fn word(&self, i: usize) -> u64 {
		let parts = &self.parts[..self.part_count as usize];
		let tag =
			parts.iter().rev().find(|p| (p.start as usize..p.end as usize).contains(&i)).map_or(self.base, |p| p.tag);
		word(tag, i)
	}
}
