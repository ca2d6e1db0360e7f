//! `mlock(2)`, `mlock2(2)`, `munlock(2)`.

use crate::{
	content::PAGE,
	journal::Expect,
	world::{World, check::Depth, space::pages, table::attr},
};
use flashfork_tests::{
	Result,
	route::{Via, errno},
};

/// Pages locked at most: an ordinary user may lock 8 MB (2 MB before Linux 5.16).
const MOST: usize = 256;

impl World {
	pub fn step_lock(&mut self) -> Result {
		let Some(range) = self.range() else { return Ok(()) };
		// A snapshot's locked memory can't be made again.
		if self.prepares || self.rng.chance(50) {
			return self.unlock(range);
		}
		let range = range.start..range.end.min(range.start + self.rng.between(1, 64));
		if self.table.count(0..pages(), attr::LOCKED) + range.len() > MOST {
			return Ok(());
		}
		let on_fault = self.rng.chance(30);
		let via = self.way(Via::Function);
		let gap = range.clone().find(|p| !self.table.mapped(*p)).unwrap_or(range.end);
		let (space, route) = (self.space, self.route);
		let text = format!("mlock {range:?} {on_fault} {via:?}");
		// A page that can't be brought in makes it fail although all is locked: the kernel knows best.
		self.journal
			.call(&text, Expect::AsPlain, || route.mlock(space.addr(range.start), range.len() * PAGE, on_fault, via))?;
		for page in range.start..gap {
			self.table.set(page, attr::LOCKED);
		}
		self.check(range, Depth::Written)
	}

	fn unlock(&mut self, range: std::ops::Range<usize>) -> Result {
		let gap = range.clone().find(|p| !self.table.mapped(*p)).unwrap_or(range.end);
		let expected = if gap < range.end { Err(libc::ENOMEM) } else { Ok(0) };
		let space = self.space;
		self.journal.call(&format!("munlock {range:?}"), Expect::Exactly(expected), || {
			// SAFETY: unlocking changes no contents.
			let result = unsafe { libc::munlock(space.addr(range.start) as *const _, range.len() * PAGE) };
			if result < 0 { Err(errno()) } else { Ok(0) }
		})?;
		for page in range.start..gap {
			self.table.clear(page, attr::LOCKED);
		}
		Ok(())
	}
}
