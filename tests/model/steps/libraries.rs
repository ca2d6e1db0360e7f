//! Libraries, mapped as a loader maps them: a page that says what is where, then the data, which is written.

use super::map::Part;
use crate::{
	template::Library,
	world::{World, check::Depth},
};
use flashfork_tests::{Result, header::DATA_PAGES};

/// Most in one step: with fewer than 32 mappings to seal their data is left alone.
const MOST: usize = 24;

impl World {
	pub fn step_libraries(&mut self) -> Result {
		for _ in 0..self.rng.between(1, MOST) {
			let Some(fd) = self.mapped.as_ref().map(Library::fd) else { return Ok(()) };
			let Some(range) = self.gap(1 + DATA_PAGES) else { return self.step_unmap() };
			let (head, data) = (range.start..range.start + 1, range.start + 1..range.end);
			let part = |page| Some(Part { fd, page, tag: Library::tag });
			self.map_at(head, libc::PROT_READ, libc::MAP_PRIVATE, part(0))?;
			self.map_at(data.clone(), libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE, part(1))?;
			// Where a page still shows the file none of them may be sealed.
			let left = if self.rng.chance(10) { data.start + self.rng.below(DATA_PAGES) } else { range.start };
			self.write_pages(data.filter(|page| *page != left));
			self.check(range, Depth::All)?;
		}
		Ok(())
	}
}
