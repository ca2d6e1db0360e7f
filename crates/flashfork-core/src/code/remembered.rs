//! What the engine remembers of code.

use super::{
	Call, Scratch,
	versions::{VERSIONS, Versions},
};
use crate::{
	apart::Apart,
	name::{NAME, Name},
	range::Range,
	sys::{Errno, Result, Status},
};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What is remembered, of this process and of those it was forked from.
pub(crate) static CODE: Apart<Code> = Apart::new(Code::new());

/// Most files that a caller answers for, and objects that are known.
const TRUSTED: usize = 16;

pub(crate) struct Code {
	/// What was found in files.
	pub versions: Versions,
	/// Device and inode.
	trusted: [[AtomicU64; 2]; TRUSTED],
	trusted_count: AtomicUsize,
	/// Where code begins and ends.
	known: Ranges,
	known_count: AtomicUsize,
	/// Mappings of the engine's stubs, by beginning and end.
	stubs: Ranges,
	stub_count: AtomicUsize,
	/// All executable mappings of files when all was well, as a number; 0: never.
	pub well: AtomicU64,
	/// What was executable (of `calls::take`) when there were known files only; 0: ask again.
	listed: AtomicU64,
	/// Which versions of them, one bit for each.
	mapped: [AtomicU64; VERSIONS / 64],
	/// Whether any code was seen that may map memory, or change mappings, by calls that nobody sees, as far as those
	/// are harmless.
	pub maps: AtomicBool,
	/// Whether the object that the engine is part of was looked through for that.
	pub own_looked_through: AtomicBool,
	/// What the last refusal was about.
	pub culprit: Culprit,
}

/// What a refusal was about.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Culprit {
	/// [`Call::to_word`]; 0: there was none.
	call: AtomicU64,
	/// The path of the file.
	name: Name,
}

impl Culprit {
	pub(crate) fn set(&self, call: Call, path: &[u8]) {
		self.name.set(path);
		self.call.store(call.to_word(), Relaxed);
	}

	/// Takes over what another one says, unless it has something to say itself.
	pub(crate) fn note(&self, other: &Culprit) {
		let call = other.call.load(Relaxed);
		if call != 0 && self.call.compare_exchange(0, call, Relaxed, Relaxed).is_ok() {
			self.name.copy(&other.name);
		}
	}

	/// What the file does, and its path, which is cut at its beginning where it is longer than `name`. `None`: no file
	/// was refused.
	pub fn get<'a>(&self, name: &'a mut [u8; NAME]) -> Option<(Call, &'a [u8])> {
		let call = Call::from_word(self.call.load(Relaxed))?;
		Some((call, self.name.get(name)))
	}
}

impl Code {
	pub const fn new() -> Code {
		// SAFETY: all of it is atomics, of which zeros are a value.
		unsafe { core::mem::zeroed() }
	}

	/// The caller answers for a file, as it is now. `ENOSPC` for more than 16.
	pub fn trust(&self, file: &Status) -> Result<()> {
		if self.trusts(file) {
			return Ok(());
		}
		let count = self.trusted_count.load(Relaxed);
		let place = self.trusted.get(count).ok_or(Errno::ENOSPC)?;
		place[0].store(file.device, Relaxed);
		place[1].store(file.inode, Relaxed);
		self.trusted_count.store(count + 1, Relaxed);
		Ok(())
	}

	/// Whether somebody answers for a file.
	pub fn trusts(&self, file: &Status) -> bool {
		let count = self.trusted_count.load(Relaxed).min(TRUSTED);
		let same = |t: &[AtomicU64; 2]| t[0].load(Relaxed) == file.device && t[1].load(Relaxed) == file.inode;
		self.trusted[..count].iter().any(same)
	}

	/// Remembers of code that was looked through whether it may map memory.
	pub fn note_maps(&self, scratch: &Scratch) {
		if scratch.maps {
			self.maps.store(true, Relaxed);
		}
	}

	/// Whether all calls are seen that map memory or change mappings: there is no code whose calls aren't.
	pub fn shows_mappings(&self) -> bool {
		self.own_looked_through.load(Relaxed) && !self.maps.load(Relaxed) && self.trusted_count.load(Relaxed) == 0
	}

	/// Which versions of files are mapped, one bit for each, where that is noted for what is executable now.
	pub fn listed(&self, executable: u64) -> Option<[u64; VERSIONS / 64]> {
		let is_noted = executable != 0 && self.listed.load(Relaxed) == executable;
		is_noted.then(|| self.mapped.each_ref().map(|word| word.load(Relaxed)))
	}

	/// Notes that.
	pub fn list(&self, executable: u64, versions: &[u64; VERSIONS / 64]) {
		self.mapped.iter().zip(versions).for_each(|(word, now)| word.store(*now, Relaxed));
		self.listed.store(executable, Relaxed);
	}

	/// Forgets what [`Code::know`] and [`Code::know_stubs`] were told: something executable has come or gone.
	pub fn know_none(&self) {
		self.known_count.store(0, Relaxed);
		self.stub_count.store(0, Relaxed);
	}

	/// The engine sees the system calls of an object with this code. `ENOSPC` for more than 16.
	pub fn know(&self, code: Range) -> Result<()> {
		push(&self.known, &self.known_count, code).ok_or(Errno::ENOSPC)
	}

	/// The code of such an object, of which a mapping is a part.
	pub fn known(&self, mapping: Range) -> Option<Range> {
		ranges(&self.known, &self.known_count).find(|code| code.intersect(mapping) == mapping)
	}

	/// Whether an object has such code; `range` is all that it executes.
	pub fn knows(&self, range: Range) -> bool {
		ranges(&self.known, &self.known_count).any(|code| range.contains(code.start))
	}

	/// There is nothing but stubs in a mapping. Where there are many, no more than 16 are remembered.
	pub fn know_stubs(&self, mapping: Range) {
		let _ = push(&self.stubs, &self.stub_count, mapping);
	}

	/// Whether that was said of a mapping.
	pub fn knows_stubs(&self, mapping: Range) -> bool {
		ranges(&self.stubs, &self.stub_count).any(|stubs| stubs == mapping)
	}
}

type Ranges = [[AtomicUsize; 2]; TRUSTED];

fn push(places: &Ranges, count: &AtomicUsize, range: Range) -> Option<()> {
	let last = count.load(Relaxed);
	let place = places.get(last)?;
	place[0].store(range.start, Relaxed);
	place[1].store(range.end, Relaxed);
	count.store(last + 1, Relaxed);
	Some(())
}

fn ranges(places: &Ranges, count: &AtomicUsize) -> impl Iterator<Item = Range> {
	let count = count.load(Relaxed).min(TRUSTED);
	places[..count].iter().map(|[start, end]| Range::new(start.load(Relaxed), end.load(Relaxed)))
}
