//! Another process writes while the engine seals, seals anew and unseals: no write may be lost that went well.

use crate::{
	content::Tag,
	journal::Expect,
	world::{World, check::Depth, space::pages, table::attr},
	writer::{How, MOST},
};
use flashfork_tests::Result;

/// Tags of one page in one visit.
const TAGS: u64 = 1 << 16;

impl World {
	/// Which pages are written to the seed decides, and how often they are, the time that the seals take.
	pub fn step_written(&mut self) -> Result {
		// Children have none.
		if self.depth > 0 {
			return Ok(());
		}
		// Of what is shared or guarded nothing is sealed.
		let hindrance = attr::SHARED | attr::GUARD;
		let can = |w: &World, page: usize| w.table.mapped(page) && w.table.attr(page) & hindrance == 0;
		let share = self.rng.pick(&[2, 10, 50, 100]);
		let turns = self.rng.between(1, 3);
		let mut chosen: Vec<(usize, How, Tag)> = Vec::new();
		for page in 0..pages() {
			if !can(self, page) || !self.rng.chance(share) {
				continue;
			}
			let how = if self.writable(page) && self.table.has(page, attr::READ) && self.rng.chance(50) {
				How::Vector
			} else {
				How::File
			};
			let tag = self.tag() * TAGS;
			chosen.push((page, how, tag));
		}
		self.rng.shuffle(&mut chosen);
		chosen.truncate(MOST);
		if chosen.is_empty() {
			return Ok(());
		}
		let Some(mut writer) = self.writer.take() else { return Ok(()) };
		let (route, space) = (self.route, self.space);
		let label = format!("another process writes to {} pages", chosen.len());
		// Of what may be dropped nobody knows what it holds. What that is, the kernel decides: nothing above may depend
		// on it.
		chosen.retain(|(page, ..)| !self.table.has(*page, attr::LAZY));
		let mut tags = Err(String::new());
		self.journal.call(&label, Expect::Exactly(Ok(0)), || {
			let orders = chosen.iter().map(|(page, how, tag)| (space.addr(*page), *how, *tag));
			tags = writer.write_while(orders, || {
				for turn in 0..turns {
					// What is written to at this moment may be refused.
					let _ = route.seal(turn % 2 == 1);
					if turn == 1 {
						route.unseal(None)?;
					}
				}
				Ok(())
			});
			Ok(0)
		})?;
		self.writer = Some(writer);
		for ((page, _, _), tag) in chosen.iter().zip(tags?) {
			self.note_overwritten(*page, tag);
		}
		self.check_maps()?;
		self.check_all(Depth::Written)
	}
}
