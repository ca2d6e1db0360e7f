//! Seal, reseal, unseal, exclude, drop what was only read: nothing at all on plain memory.

use crate::{
	content::PAGE,
	mode::Mode,
	world::{World, check::Depth, space::pages, table::attr},
};
use flashfork_tests::Result;

/// The engine has room for 64 excluded ranges, for good.
const MOST_EXCLUDED: usize = 12;

impl World {
	pub fn step_seal(&mut self) -> Result {
		let small = self.rng.chance(30);
		let look = self.rng.chance(40);
		self.journal.note("seal")?;
		let sealed = self.route.seal(small);
		// Where threads can't be stopped, or aren't; where code makes system calls of its own.
		if !matches!(self.mode, Mode::Threads | Mode::Raw) && !self.hides_code() {
			sealed?;
		}
		self.check_maps()?;
		if look { self.check_all(Depth::Written) } else { Ok(()) }
	}

	/// Whether code of a file, or of shared memory, can't be read: then nobody knows what it would call, and a seal is
	/// refused.
	fn hides_code(&self) -> bool {
		const HIDDEN: u32 = attr::EXEC | attr::GUARD;
		let of_file = |page| self.table.attr(page) & (attr::FILE | attr::SHARED) != 0;
		(0..pages()).any(|page| self.table.has(page, HIDDEN) && of_file(page))
	}

	pub fn step_unseal(&mut self) -> Result {
		let part = self.range();
		let whole = self.rng.chance(40);
		self.journal.note("unseal")?;
		let range = if whole { None } else { part.map(|r| (self.space.addr(r.start), self.space.addr(r.end))) };
		self.route.unseal(range)?;
		let left = self.check_maps()?;
		if range.is_none() && left > 0 {
			return Err(format!("{left} pages are sealed after an unseal of everything"));
		}
		self.check_all(Depth::Written)
	}

	pub fn step_drop_refills(&mut self) -> Result {
		let read = self.range().filter(|_| self.rng.chance(70));
		self.journal.note("drop refills")?;
		if let Some(range) = read {
			self.check(range, Depth::All)?;
		}
		let dropped = self.route.drop_refills();
		// Beside threads nothing is dropped.
		if self.mode != Mode::Threads {
			dropped?;
		}
		self.check_maps()?;
		self.check_all(Depth::Written)
	}

	pub fn step_exclude(&mut self) -> Result {
		let Some(range) = self.range() else { return Ok(()) };
		if self.excluded == MOST_EXCLUDED {
			return Ok(());
		}
		self.excluded += 1;
		self.journal.note(&format!("exclude {range:?}"))?;
		self.route.exclude(self.space.addr(range.start), range.len() * PAGE)?;
		self.check(range, Depth::Written)
	}
}
