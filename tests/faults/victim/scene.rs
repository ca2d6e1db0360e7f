//! The calls made to fail, one scene each.

use crate::memory::{Region, is_sealed};
use flashfork_core::{
	fork::{Engine, configure, fork},
	snapshot::{restore, snapshot},
};
use flashfork_tests::{
	Result,
	content::PAGE,
	libraries,
	route::{Outcome, Route, Via},
};
use std::cell::Cell;

/// Pages of the first region: a block of 2 MB and odd ends.
const MAIN: usize = 200 + 512 + 40;
/// Pages of the second.
const SIDE: usize = 512 + 9;
/// The same where much is sealed.
const LARGE: usize = 8 * 512 + 9;
/// Where they lie: the first a little before a 2 MB boundary.
const MAIN_AT: usize = 0x20_0000_0000 - 200 * PAGE;
const SIDE_AT: usize = 0x20_4000_0000;
/// Where the first moves to.
const AWAY: usize = 0x20_8000_0000;

/// The pages of the first region that a call on part of it is about: over a written page and a block's end.
pub const PART: std::ops::Range<usize> = 430..720;

/// Those of its whole block.
const BLOCK: std::ops::Range<usize> = 200..712;

/// A fork that is none, but took so long, as the engine is told, that the next one is worth a seal.
fn costly_fork() {
	let now = Cell::new(0);
	fork(|| 1, || now.replace(now.get() + (1 << 50)));
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
	/// A seal of memory never sealed.
	Seal {
		small: bool,
	},
	/// A seal of so much that it has its own mount, where the kernel gives it one.
	SealLarge,
	/// A seal of what was written since the last one.
	Reseal,
	/// A fork before which the engine seals anew, and finds a block that was written all over.
	Dense,
	/// A seal that brings many generations together.
	Fold,
	Unseal,
	/// Of memory that was made unreadable since.
	UnsealUnreadable,
	/// Of what was only read, page tables are emptied.
	DropRefills,
	/// `madvise` on part of the first region.
	Advice(i32),
	/// `mremap` that grows the first region where it is.
	GrowInPlace,
	/// `mremap` that grows it elsewhere.
	GrowAndMove,
	/// `mremap` that moves it and leaves an empty mapping behind.
	Keep,
	Lock,
	/// A seal that takes the data of libraries, too.
	Libraries,
	/// An unseal of that.
	LibrariesUnseal,
	LibrariesDiscard,
	/// A snapshot; if it is taken, it is restored later.
	Snapshot,
	/// A restore of one that was taken well.
	Restore,
	/// A restore from which on writes are noted.
	RestoreNotes,
	/// One that copies back what was noted.
	RestoreCopies,
	Rollback,
}

impl Kind {
	pub fn has_libraries(self) -> bool {
		matches!(self, Kind::Libraries | Kind::LibrariesUnseal | Kind::LibrariesDiscard)
	}
}

/// The library whose data is discarded: the last, far from what isn't sealed.
pub const DISCARDED: usize = libraries::COUNT - 1;

pub const LIBRARIES: &str = "FLASHFORK_TEST_LIBRARIES";

fn load_libraries() -> Result<Vec<Region>> {
	let dir = std::env::var_os(LIBRARIES).ok_or("it isn't said where libraries are")?;
	let mut first = 10 << 20;
	let mut region = |addr| {
		let mut region = Region { addr, tags: vec![0; libraries::PAGES] };
		region.write(0..libraries::PAGES, first);
		first += libraries::PAGES as u64;
		region
	};
	Ok(libraries::load(dir.as_ref())?.into_iter().map(&mut region).collect())
}

pub const SCENES: &[(&str, Kind)] = &[
	("seal", Kind::Seal { small: false }),
	("seal-small", Kind::Seal { small: true }),
	("seal-large", Kind::SealLarge),
	("reseal", Kind::Reseal),
	("dense", Kind::Dense),
	("fold", Kind::Fold),
	("unseal", Kind::Unseal),
	("unseal-unreadable", Kind::UnsealUnreadable),
	("drop-refills", Kind::DropRefills),
	("dontneed", Kind::Advice(libc::MADV_DONTNEED)),
	("free", Kind::Advice(libc::MADV_FREE)),
	("wipeonfork", Kind::Advice(libc::MADV_WIPEONFORK)),
	("grow", Kind::GrowInPlace),
	("grow-and-move", Kind::GrowAndMove),
	("keep", Kind::Keep),
	("lock", Kind::Lock),
	("libraries", Kind::Libraries),
	("libraries-unseal", Kind::LibrariesUnseal),
	("libraries-discard", Kind::LibrariesDiscard),
	("snapshot", Kind::Snapshot),
	("restore", Kind::Restore),
	("restore-notes", Kind::RestoreNotes),
	("restore-copies", Kind::RestoreCopies),
	("rollback", Kind::Rollback),
];

pub struct Scene {
	pub kind: Kind,
	pub route: Route,
	pub main: Region,
	pub side: Region,
	/// The data of libraries, in some scenes.
	pub libraries: Vec<Region>,
	/// Whether children find zeros in the part.
	pub wiped_in_children: bool,
}

impl Scene {
	/// Fills memory and does what comes before the call.
	pub fn set(kind: Kind, route: Route) -> Result<Scene> {
		let main = Region::new(MAIN_AT, MAIN, 1 << 20)?;
		let large = kind == Kind::SealLarge;
		let side = Region::new(SIDE_AT, if large { LARGE } else { SIDE }, 2 << 20)?;
		let libraries = if kind.has_libraries() { load_libraries()? } else { Vec::new() };
		let mut scene = Scene { kind, route, main, side, libraries, wiped_in_children: false };
		let restores = matches!(kind, Kind::Restore | Kind::RestoreNotes | Kind::RestoreCopies);
		if restores || large || matches!(kind, Kind::Seal { .. } | Kind::Libraries | Kind::Snapshot | Kind::Rollback) {
			return Ok(scene);
		}
		if kind == Kind::Dense {
			configure(Engine::Seal, false).map_err(|e| format!("the engine: {e:?}"))?;
			costly_fork();
			scene.main.write(BLOCK, 3 << 20);
			return Ok(scene);
		}
		let rounds = if kind == Kind::Fold { 8 } else { 1 };
		for round in 0..rounds {
			scene.route.seal(true)?;
			// Some pages differ from the memfd's from here on: bytes that no memfd has.
			scene.main.write([3 + round, 450 + round, MAIN - 1].into_iter(), (3 << 20) + 16 * round as u64);
		}
		if kind.has_libraries() && !is_sealed(scene.libraries[DISCARDED].addr)? {
			return Err("the data of libraries is not sealed".into());
		}
		if kind == Kind::DropRefills {
			scene.main.check()?;
			scene.side.check()?;
		}
		if kind == Kind::UnsealUnreadable {
			scene.main.protect(libc::PROT_NONE)?;
		}
		Ok(scene)
	}

	/// In a child: what the kernel has wiped is known to be zero.
	pub fn wipe(&mut self) {
		if self.wiped_in_children {
			self.main.tags[PART].fill(0);
		}
	}

	pub fn play(&self) -> Outcome {
		let words = |result: Result| result.map(|()| 0).map_err(|_| -1);
		let part = (self.main.addr + PART.start * PAGE, PART.len() * PAGE);
		match self.kind {
			Kind::Seal { small } => words(self.route.seal(small)),
			Kind::SealLarge | Kind::Reseal | Kind::Fold | Kind::Libraries => words(self.route.seal(false)),
			Kind::Unseal | Kind::UnsealUnreadable | Kind::LibrariesUnseal => words(self.route.unseal(None)),
			Kind::Dense => {
				costly_fork();
				Ok(0)
			}
			Kind::DropRefills => words(self.route.drop_refills()),
			Kind::Advice(advice) => self.route.madvise(part.0, part.1, advice, Via::Function),
			Kind::LibrariesDiscard => {
				let library = &self.libraries[DISCARDED];
				self.route.madvise(library.addr, library.len(), libc::MADV_DONTNEED, Via::Function)
			}
			Kind::GrowInPlace => {
				self.route.mremap(self.main.addr, self.main.len(), self.grown() * PAGE, 0, 0, Via::Function)
			}
			Kind::GrowAndMove => {
				let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
				self.route.mremap(self.main.addr, self.main.len(), self.grown() * PAGE, flags, AWAY, Via::Function)
			}
			Kind::Keep => {
				let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
				self.route.mremap(self.main.addr, self.main.len(), self.main.len(), flags, AWAY, Via::Function)
			}
			Kind::Lock => self.route.mlock(part.0, part.1, true, Via::Function),
			Kind::Snapshot => snapshot(&crate::snapshot::OPTIONS).map_err(|_| -1),
			Kind::Restore | Kind::RestoreNotes | Kind::RestoreCopies => {
				restore(1);
				Err(-1)
			}
			// Not one call.
			Kind::Rollback => Err(-1),
		}
	}

	/// Pages of the first region after it has grown.
	pub fn grown(&self) -> usize {
		self.main.tags.len() + 100
	}
}
