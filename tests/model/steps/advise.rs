//! `madvise(2)`, every advice but those that damage hardware pages (HWPOISON, SOFT_OFFLINE).

use crate::{
	content::PAGE,
	journal::Expect,
	mode::Mode,
	world::{World, check::Depth, space::heap, table::attr},
};
use flashfork_tests::{
	Result,
	route::{Outcome, Via},
};
use libc::c_int;
use std::ops::Range;

// Newer than the libc crate (Linux 6.13).
const MADV_GUARD_INSTALL: c_int = 102;
const MADV_GUARD_REMOVE: c_int = 103;
const MADV_DONTNEED_LOCKED: c_int = 24;
const MADV_COLLAPSE: c_int = 25;

const ADVICE: &[(usize, c_int)] = &[
	(1, libc::MADV_NORMAL),
	(1, libc::MADV_RANDOM),
	(1, libc::MADV_SEQUENTIAL),
	(1, libc::MADV_WILLNEED),
	(24, libc::MADV_DONTNEED),
	(8, libc::MADV_FREE),
	(3, libc::MADV_REMOVE),
	(4, libc::MADV_DONTFORK),
	(4, libc::MADV_DOFORK),
	(3, libc::MADV_MERGEABLE),
	(3, libc::MADV_UNMERGEABLE),
	(6, libc::MADV_HUGEPAGE),
	(4, libc::MADV_NOHUGEPAGE),
	(3, libc::MADV_DONTDUMP),
	(3, libc::MADV_DODUMP),
	(4, libc::MADV_WIPEONFORK),
	(4, libc::MADV_KEEPONFORK),
	(2, libc::MADV_COLD),
	(2, libc::MADV_PAGEOUT),
	(3, libc::MADV_POPULATE_READ),
	(3, libc::MADV_POPULATE_WRITE),
	(4, MADV_DONTNEED_LOCKED),
	(4, MADV_COLLAPSE),
	(4, MADV_GUARD_INSTALL),
	(3, MADV_GUARD_REMOVE),
];

/// Flags and what would lose them.
const FLAGS: &[(usize, c_int)] = &[
	(30, libc::MADV_DONTNEED),
	(8, MADV_DONTNEED_LOCKED),
	(8, libc::MADV_FREE),
	(8, libc::MADV_DONTFORK),
	(5, libc::MADV_DOFORK),
	(8, libc::MADV_DONTDUMP),
	(4, libc::MADV_DODUMP),
	(8, libc::MADV_WIPEONFORK),
	(5, libc::MADV_KEEPONFORK),
	(4, libc::MADV_MERGEABLE),
	(3, libc::MADV_UNMERGEABLE),
	(8, MADV_GUARD_INSTALL),
	(5, MADV_GUARD_REMOVE),
];

const NOT_KNOWN: Expect = Expect::Exactly(Err(libc::EINVAL));

/// The advice this kernel doesn't know, tried on its own page.
pub fn unknown() -> Vec<c_int> {
	let tried = |advice: &c_int| {
		// SAFETY: our own page, gone at the end. Where there is none every advice fails, and is not given.
		unsafe {
			let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
			let page = libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
			let unknown = libc::madvise(page, PAGE, *advice) == -1;
			libc::munmap(page, PAGE);
			unknown
		}
	};
	[MADV_GUARD_INSTALL, MADV_GUARD_REMOVE, MADV_DONTNEED_LOCKED, libc::MADV_MERGEABLE, libc::MADV_UNMERGEABLE]
		.into_iter()
		.filter(tried)
		.collect()
}

impl World {
	pub fn step_advise(&mut self) -> Result {
		let advice = self.rng.weighted(if self.mode == Mode::Flags { FLAGS } else { ADVICE });
		let range = match advice {
			// What this does to the first of several kinds of memory before it fails at the second is nobody's
			// business.
			libc::MADV_REMOVE => self.uniform(),
			_ => self.range(),
		};
		let Some(range) = range else { return Ok(()) };
		// Whoever tells the kernel to forget the heap of libc in children gets what he asks for.
		if range.start >= heap() && [libc::MADV_DONTFORK, MADV_GUARD_INSTALL].contains(&advice) {
			return Ok(());
		}
		let a = self.table.attr(range.start);
		// A snapshot takes no guards, and memory with a property can't be made again.
		let lasting =
			[libc::MADV_DONTFORK, libc::MADV_WIPEONFORK, libc::MADV_DONTDUMP, libc::MADV_MERGEABLE, MADV_GUARD_INSTALL];
		if self.prepares && lasting.contains(&advice) {
			return Ok(());
		}
		if advice == libc::MADV_REMOVE && a & attr::SHARED != 0 {
			// Others may hold it too, and their models would not know. Kernels differ on what can't be written.
			if self.depth > 0 || a & attr::FILE != 0 || a & attr::WRITE == 0 {
				return Ok(());
			}
		}
		let whole = range.clone().all(|p| self.table.mapped(p));
		let via = match self.rng.below(10) {
			0 | 1 => Via::Number,
			// A process without its main thread has no memory that a pidfd could name.
			2 if self.mode == Mode::Leaderless => Via::Function,
			2 if whole => Via::Process,
			_ => Via::Function,
		};
		let via = self.way(via);
		self.advise(range.clone(), advice, via)?;
		if self.rng.chance(50) { self.check(range, Depth::Written) } else { Ok(()) }
	}

	pub fn advise(&mut self, range: Range<usize>, advice: c_int, via: Via) -> Result {
		let len = range.len() * PAGE;
		let (stop, outcome) = self.foresee(range.clone(), advice);
		let expect = match advice {
			// EINVAL for a page that stands against it, and for the advice itself, are not told apart by looking.
			_ if self.unknown_advice.contains(&advice) => {
				let space = self.space;
				let call = || self.route.madvise(space.addr(range.start), len, advice, via);
				return self.journal.call(&format!("madvise {range:?} {advice}"), NOT_KNOWN, call).map(drop);
			}
			libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE | libc::MADV_WILLNEED => Expect::AsPlain,
			// Whether a huge page can be had right now is not part of what the memory means.
			MADV_COLLAPSE => Expect::Anything,
			// What is advised to a process that refuses some of it says how much was done before.
			_ if via == Via::Process => match outcome {
				Ok(_) => Expect::IfSupported(Ok(len as u64)),
				Err(_) => return Ok(()),
			},
			MADV_GUARD_INSTALL
			| MADV_GUARD_REMOVE
			| MADV_DONTNEED_LOCKED
			| libc::MADV_MERGEABLE
			| libc::MADV_UNMERGEABLE => Expect::IfSupported(outcome),
			_ => Expect::Exactly(outcome),
		};
		let (space, route) = (self.space, self.route);
		let text = format!("madvise {range:?} {advice} {via:?}");
		let made = self.journal.call(&text, expect, || {
			let result = route.madvise(space.addr(range.start), len, advice, via);
			// A program that calls the core has one way to do it.
			if via == Via::Process { result.map(|_| len as u64) } else { result }
		})?;
		if made.is_some() {
			for page in range.start..stop {
				self.heed(page, advice);
			}
		}
		Ok(())
	}

	/// Where the kernel will stop, and what it will answer (mm/madvise.c): gaps are skipped and remembered, an error
	/// ends it.
	fn foresee(&self, range: Range<usize>, advice: c_int) -> (usize, Outcome) {
		let mut gap = false;
		for page in range.clone() {
			let a = self.table.attr(page);
			if a & attr::MAPPED == 0 {
				gap = true;
				continue;
			}
			let refused = match advice {
				libc::MADV_DONTNEED | libc::MADV_COLD | libc::MADV_PAGEOUT | MADV_GUARD_INSTALL => {
					a & attr::LOCKED != 0
				}
				libc::MADV_FREE => a & (attr::LOCKED | attr::SHARED | attr::FILE) != 0,
				libc::MADV_WIPEONFORK => a & (attr::SHARED | attr::FILE) != 0,
				libc::MADV_REMOVE if a & attr::LOCKED == 0 && a & attr::FILE != 0 => return (page, Err(libc::EACCES)),
				libc::MADV_REMOVE => a & attr::LOCKED != 0 || a & attr::SHARED == 0,
				_ => false,
			};
			if refused {
				return (page, Err(libc::EINVAL));
			}
		}
		(range.end, if gap { Err(libc::ENOMEM) } else { Ok(0) })
	}

	fn heed(&mut self, page: usize, advice: c_int) {
		let a = self.table.attr(page);
		if a & attr::MAPPED == 0 {
			return;
		}
		let private = a & attr::SHARED == 0;
		match advice {
			libc::MADV_DONTNEED | MADV_DONTNEED_LOCKED if private => self.discard(page),
			libc::MADV_FREE if a & attr::GUARD == 0 => self.table.set(page, attr::LAZY | attr::FREED),
			libc::MADV_REMOVE => self.discard(page),
			libc::MADV_DONTFORK => self.table.set(page, attr::DONTFORK),
			libc::MADV_DOFORK => self.table.clear(page, attr::DONTFORK),
			libc::MADV_MERGEABLE if private => self.table.set(page, attr::MERGEABLE),
			libc::MADV_UNMERGEABLE => self.table.clear(page, attr::MERGEABLE),
			libc::MADV_HUGEPAGE => {
				self.table.clear(page, attr::NOHUGE);
				self.table.set(page, attr::HUGE);
			}
			libc::MADV_NOHUGEPAGE => {
				self.table.clear(page, attr::HUGE);
				self.table.set(page, attr::NOHUGE);
			}
			libc::MADV_DONTDUMP => self.table.set(page, attr::DONTDUMP),
			libc::MADV_DODUMP => self.table.clear(page, attr::DONTDUMP),
			libc::MADV_WIPEONFORK => self.table.set(page, attr::WIPEONFORK),
			libc::MADV_KEEPONFORK => self.table.clear(page, attr::WIPEONFORK),
			MADV_GUARD_INSTALL => {
				if private {
					self.discard(page);
				}
				self.table.set(page, attr::GUARD);
			}
			MADV_GUARD_REMOVE => self.table.clear(page, attr::GUARD),
			_ => {}
		}
	}

	fn discard(&mut self, page: usize) {
		*self.table.content_mut(page) = self.table.content(page).discarded();
		self.table.clear(page, attr::LAZY | attr::FREED);
	}
}
