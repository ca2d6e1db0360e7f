//! `mseal(2)` of memory sealed already: from then on its mapping can't be changed, and calls say so as on plain memory.
//!
//! It can't be unmapped again, so it has addresses of its own.

use super::map::unmap;
use crate::{
	content::{PAGE, Tag, WORDS, fill, holds},
	journal::Expect,
	world::World,
};
use flashfork_tests::{
	Result,
	route::{Outcome, Via, errno},
};
use libc::c_int;

/// Behind all arenas, and from one of these to the next.
const FIRST: usize = 0x18_0000_0000;
const APART: usize = 64 << 20;
/// How many there are at most, and pages of each.
const MOST: usize = 4;
const PAGES: usize = 1300;
/// Linux 6.10.
const SYS_MSEAL: libc::c_long = 462;

/// Memory that stays where it is; one tag for each page.
pub struct Immutable {
	at: usize,
	tags: Vec<Tag>,
}

impl Immutable {
	fn addr(&self, page: usize) -> usize {
		self.at + page * PAGE
	}

	fn write(&mut self, page: usize, tag: Tag) {
		// SAFETY: the page is writable, and nothing of Rust's lies there.
		fill(unsafe { std::slice::from_raw_parts_mut(self.addr(page) as *mut u64, WORDS) }, 0, tag);
		self.tags[page] = tag;
	}

	fn check(&self) -> Result {
		let wrong = |(page, tag): &(usize, &Tag)| {
			// SAFETY: the page is readable, and nobody writes to it now.
			!holds(unsafe { &*(self.addr(*page) as *const [u64; WORDS]) }, **tag)
		};
		match self.tags.iter().enumerate().find(wrong) {
			Some((page, tag)) => Err(format!("page {page} of immutable memory at {:#x} is not {tag:#x}", self.at)),
			None => Ok(()),
		}
	}
}

impl World {
	pub fn check_immutable(&self) -> Result {
		self.immutable.iter().try_for_each(Immutable::check)
	}

	pub fn step_immutable(&mut self) -> Result {
		if self.depth == 0 && self.immutable.len() < MOST && self.rng.chance(40) {
			return self.make_immutable();
		}
		if self.immutable.is_empty() {
			return Ok(());
		}
		let which = self.rng.below(self.immutable.len());
		let mut memory = self.immutable.swap_remove(which);
		let result = self.act_on_immutable(&mut memory);
		self.immutable.push(memory);
		result?;
		self.check_immutable()
	}

	fn make_immutable(&mut self) -> Result {
		let at = FIRST + self.immutables_made * APART;
		self.immutables_made += 1;
		let made = self.journal.call(&format!("mmap at {at:#x}"), Expect::Exactly(Ok(at as u64)), || {
			let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
			// SAFETY: nothing lies there.
			let got = unsafe { libc::mmap(at as *mut _, PAGES * PAGE, prot, flags | libc::MAP_FIXED_NOREPLACE, -1, 0) };
			if got == libc::MAP_FAILED { Err(errno()) } else { Ok(got as u64) }
		})?;
		if !matches!(made, Some(Ok(_))) {
			return Ok(());
		}
		let mut memory = Immutable { at, tags: vec![0; PAGES] };
		for page in 0..PAGES {
			if self.rng.chance(90) {
				memory.write(page, self.tag());
			}
		}
		self.step_seal()?;
		let sealed = self.journal.call(&format!("mseal {at:#x}"), Expect::AsPlain, || {
			// SAFETY: changes what may be done to our own mapping.
			let result = unsafe { libc::syscall(SYS_MSEAL, at, PAGES * PAGE, 0) };
			if result < 0 { Err(errno()) } else { Ok(0) }
		})?;
		if sealed != Some(Ok(0)) {
			return self.journal.call("munmap it", Expect::Exactly(Ok(0)), || unmap(at, PAGES)).map(drop);
		}
		self.immutable.push(memory);
		self.check_immutable()
	}

	fn act_on_immutable(&mut self, memory: &mut Immutable) -> Result {
		let start = self.rng.below(PAGES);
		let len = self.rng.between(1, PAGES - start);
		let (at, bytes) = (memory.addr(start), len * PAGE);
		let via = self.way(Via::Function);
		let route = self.route;
		let done = |result: c_int| if result < 0 { Err(errno()) } else { Ok(0) };
		let (what, change): (&str, Box<dyn Fn() -> Outcome>) = match self.rng.below(7) {
			0 | 1 => {
				for page in start..start + len.min(300) {
					let tag = self.tag();
					memory.write(page, tag);
				}
				return Ok(());
			}
			2 | 3 => {
				let advice = self.rng.pick(&[libc::MADV_DONTNEED, 24]);
				let text = format!("madvise {at:#x} {len} {advice} {via:?}");
				let made = self.journal.call(&text, Expect::AsPlain, || route.madvise(at, bytes, advice, via))?;
				if made == Some(Ok(0)) {
					memory.tags[start..start + len].fill(0);
				}
				return Ok(());
			}
			4 => ("munmap", Box::new(move || unmap(at, len))),
			5 => {
				// SAFETY: fails, or nothing is used there any more: the step ends the run.
				("mprotect", Box::new(move || done(unsafe { libc::mprotect(at as *mut _, bytes, libc::PROT_READ) })))
			}
			_ => (
				"mremap",
				Box::new(move || route.mremap(at, bytes, bytes + PAGE, libc::MREMAP_MAYMOVE, 0, via).map(|_| 0)),
			),
		};
		self.journal.call(&format!("{what} {at:#x} {len} {via:?}"), Expect::Exactly(Err(libc::EPERM)), change).map(drop)
	}
}
