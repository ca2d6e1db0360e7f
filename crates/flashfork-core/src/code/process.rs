//! The code of the calling process, looked through before a seal.
//!
//! Each look begins with a list of what is executable, and a `stat(2)` for each file that is known
//! ([`super::versions`]). The mappings are read as a whole only when there is something else among them, or such a file
//! has changed. docs/SYSTEM_CALLS.md says what is remembered.

use super::{
	Call, Code, Scratch, layout,
	mapped::{Object, part},
	own::{Own, first, first_generated, stubs_in},
	remembered::{CODE, Culprit},
	versions::{Known, VERSIONS},
};
use crate::{
	arena::Arena,
	never_seal::Reason,
	proc::{
		lookup::{self, Wanted},
		pagemap::{Pagemap, Which},
		scan::Region,
		vma::{self, Vma},
	},
	range::{Range, subtract},
	sys::{self, Errno, PROT_EXEC, PROT_READ, PROT_WRITE, Result, Status},
	threads::alone,
};
use core::{cell::RefCell, ffi::CStr, sync::atomic::Ordering::Relaxed};

/// The caller answers for the system calls of a file, as it is now at this path: it is not looked at. `ENOSPC` for more
/// than 16, or what `stat(2)` said.
pub fn trust(path: &CStr) -> Result<()> {
	CODE.trust(&sys::status(path)?)
}

/// What the last refusal for [`Reason::SystemCalls`] was about.
pub fn culprit() -> &'static Culprit {
	&CODE.culprit
}

/// What is wrong with parts of a file seen at a path: as it is remembered, or as `look` says. `parts`: none when there
/// are too many to be remembered. What can't be told from other files is not remembered either.
fn judge(
	file: Option<&Status>,
	parts: Option<&[Range]>,
	path: &CStr,
	look: impl FnOnce() -> Option<Call>,
) -> Option<Call> {
	let (Some(file), Some(parts)) = (file, parts) else {
		return if file.is_some_and(|file| CODE.trusts(file)) { None } else { look() };
	};
	let call = match CODE.versions.known(file, parts) {
		_ if CODE.trusts(file) => None,
		Some(Known::Well) => None,
		Some(Known::Calls(call)) => Some(call),
		None => look(),
	};
	// What couldn't be read this time may be read the next.
	if call != Some(Call::Unreadable) {
		parts.iter().for_each(|part| CODE.versions.remember(file, *part, call, path));
	}
	call
}

/// What is wrong with a file that is mapped.
fn judge_mapped(object: &Object, memory: &mut Own, scratch: &mut Scratch) -> Option<Call> {
	let code = &object.code[..object.code_count];
	if is_answered_for(Range::new(code.first()?.start, code.last()?.end)) {
		return None;
	}
	let file = file_of(object);
	if file.is_none() {
		CODE.versions.forget(sys::device(object.device), object.inode);
	}
	judge(file.as_ref(), object.parts(), object.path(), || examine(object, memory, scratch))
}

/// What is wrong with the code of an object.
fn examine(object: &Object, memory: &mut Own, scratch: &mut Scratch) -> Option<Call> {
	memory.failed = false;
	let layout = object.start.and_then(|start| layout(memory, start)).unwrap_or_default();
	if layout.go {
		return Some(Call::Go);
	}
	let mut ranges = object.code;
	ranges.iter_mut().for_each(|range| *range = layout.code_in(*range));
	let ranges = &ranges[..object.code_count];
	let code = Code { ranges, data: layout.data(), kind: layout.kind(), fixed: layout.fixed };
	let found = first(memory, &code, scratch);
	CODE.note_maps(scratch);
	// What was found without all that tells instructions from data need not be there.
	if memory.failed { Some(Call::Unreadable) } else { found }
}

/// Looks through the object that the engine is part of, once: not for what is wrong with it, for which whoever has
/// built it answers, but whether it maps memory by calls that nobody sees.
pub(crate) fn look_at_own(arena: &mut Arena) -> Result<()> {
	if CODE.own_looked_through.load(Relaxed) {
		return Ok(());
	}
	let Arena { text, object, .. } = arena;
	object.clear();
	let mut is_own = false;
	vma::for_each_mapping(text, |v, path| {
		if v.kind == vma::Kind::File && v.inode != 0 && !is_own || is_own && object.goes_on_with(v) {
			if !object.goes_on_with(v) {
				object.begin(v, path);
			}
			object.add(v);
			is_own |= v.range.contains(own());
		}
		Ok(())
	})?;
	let found = Scratch::with(|scratch| examine(object, &mut Own::new(None), scratch))?;
	if found.is_some() || !is_own {
		CODE.maps.store(true, Relaxed);
	}
	CODE.own_looked_through.store(true, Relaxed);
	Ok(())
}

/// Whether the engine sees the calls of an object with this code, or it is the one that the engine is linked into: who
/// does that answers for the rest of it, because it is their own program, and its calls of the engine are there too.
fn is_answered_for(code: Range) -> bool {
	CODE.knows(code) || code.contains(own())
}

fn own() -> usize {
	look as *const () as usize
}

/// The file of a mapping. The one of that name may be another one by now, or out of sight.
fn file_of(object: &Object) -> Option<Status> {
	sys::status(object.path()).ok().filter(|file| file.inode == object.inode)
}

/// Looks through all code of this process. None: nothing speaks against a seal. `executable`: of `calls::take`.
pub(crate) fn look(arena: &mut Arena, executable: u64) -> Result<Option<Reason>> {
	let alone = arena.alone || alone::alone_now(&mut arena.text)?;
	let mut seen = Seen { arena: arena.range(), ..Seen::default() };
	if let Some(versions) = CODE.listed(executable) {
		seen.versions = versions;
		if seen.are_versions_as_they_were() {
			return Ok(None);
		}
		seen.versions = [0; VERSIONS / 64];
	}
	CODE.list(0, &seen.versions);
	let Arena { text, window, object, regions, .. } = arena;
	let mut memory = Own::new((!alone).then_some(window));
	seen.look(text, regions, object, &mut memory)?;
	if let Some(call) = seen.found {
		CODE.culprit.set(call, b"[anonymous memory]");
		return Ok(Some(Reason::SystemCalls));
	}
	let is_as_it_was = !seen.has_untold || seen.number == CODE.well.load(Relaxed);
	if seen.has_new || !is_as_it_was || !seen.are_versions_as_they_were() {
		// Until all is well again.
		CODE.well.store(NEVER, Relaxed);
		let found = Scratch::with(|scratch| look_through(text, object, &mut memory, scratch))??;
		if let Some(call) = found {
			CODE.culprit.set(call, object.path().to_bytes());
			return Ok(Some(Reason::SystemCalls));
		}
		// Once more, now that all are known.
		seen = Seen { arena: seen.arena, ..Seen::default() };
		seen.look(text, regions, object, &mut memory)?;
	}
	// Beside others something else may have been executable a moment ago.
	CODE.list(if alone && !seen.has_other { executable } else { 0 }, &seen.versions);
	CODE.well.store(seen.number, Relaxed);
	Ok(None)
}

/// Looks through the code of all files: what it finds is in `object`, the last that it has looked at.
fn look_through(text: &mut [u8], object: &mut Object, memory: &mut Own, scratch: &mut Scratch) -> Result<Option<Call>> {
	let mut found = None;
	// So that the first file's first mapping begins one.
	object.clear();
	vma::for_each_mapping(text, |v, path| {
		if found.is_some() || v.kind != vma::Kind::File || v.inode == 0 {
			return Ok(());
		}
		if !object.goes_on_with(v) {
			found = judge_mapped(object, memory, scratch);
			if found.is_some() {
				return Ok(());
			}
			object.begin(v, path);
		}
		object.add(v);
		Ok(())
	})?;
	Ok(found.or_else(|| judge_mapped(object, memory, scratch)))
}

struct Seen {
	/// What this call works with: under `READ_IMPLIES_EXEC` that is executable, too, and it changes while it is read.
	arena: Range,
	/// What was found in executable memory that the program has filled itself.
	found: Option<Call>,
	/// The number of [`mix`] for all mappings.
	number: u64,
	/// Whether there is a mapping of a file of which no version is known to be well.
	has_new: bool,
	/// Whether there is one of a file that isn't at its path.
	has_untold: bool,
	/// Whether there is one that must be asked about the next time, too.
	has_other: bool,
	/// Which versions of files are mapped, one bit for each.
	versions: [u64; VERSIONS / 64],
}

impl Default for Seen {
	fn default() -> Seen {
		Seen {
			arena: Range::default(),
			found: None,
			number: FIRST,
			has_new: false,
			has_untold: false,
			has_other: false,
			versions: [0; VERSIONS / 64],
		}
	}
}

impl Seen {
	fn look(&mut self, text: &mut [u8], regions: &mut [Region], object: &mut Object, memory: &mut Own) -> Result<()> {
		// Longer than most paths.
		let mut name = [0; 512];
		let mut populated = Populated { regions: Some(regions), pagemap: None };
		let seen = RefCell::new(self);
		let mut told = |v: &Vma| seen.borrow_mut().is_known(v);
		let mut each = |v: &Vma, path: &[u8]| seen.borrow_mut().look_at(v, path, &mut populated, object, memory);
		// Where the kernel tells mappings of code from others, that is a tenth of the list.
		if lookup::ask(Range::ALL, Wanted::Executable, &mut name, Some(&mut told), &mut each)?.is_none() {
			vma::for_each_mapping(text, |v, path| {
				let is_done = v.prot & PROT_EXEC == 0 || v.kind == vma::Kind::File && told(v).is_some();
				if is_done { Ok(()) } else { each(v, path) }
			})?;
		}
		Ok(())
	}

	/// Whether nothing must be asked about a mapping but, of a file, what that is like now. Gives where the next one
	/// begins of which that is not known.
	fn is_known(&mut self, v: &Vma) -> Option<usize> {
		if v.shared || v.prot & PROT_WRITE != 0 {
			// What is written there later is not looked through.
			CODE.maps.store(true, Relaxed);
		}
		if v.inode == 0 {
			return CODE.knows_stubs(v.range).then_some(v.range.end);
		}
		let answered = if v.range.contains(own()) { Some(v.range) } else { CODE.known(v.range) };
		if answered.is_none() {
			let version = CODE.versions.find(sys::device(v.device), v.inode, part(v))?;
			self.versions[version / 64] |= 1 << (version % 64);
		}
		self.number = mix(self.number, v);
		// Mappings of one C library, whose pages were written one by one; any other was looked for just before.
		answered.map_or(Some(v.range.end), |code| Some(code.end))
	}

	/// Looks at any other mapping.
	fn look_at(
		&mut self,
		v: &Vma,
		path: &[u8],
		populated: &mut Populated,
		object: &mut Object,
		memory: &mut Own,
	) -> Result<()> {
		self.has_other |= v.kind != vma::Kind::Kernel;
		match v.kind {
			vma::Kind::File if v.inode != 0 => {
				self.number = mix(self.number, v);
				object.begin(v, path);
				// Where a file system's files have other devices than their mappings, its path alone tells which it is.
				match file_of(object) {
					Some(file) if CODE.versions.known(&file, &[part(v)]) == Some(Known::Well) => {
						CODE.versions.note_path(&file, object.path());
					}
					Some(_) => self.has_new = true,
					None => self.has_untold = true,
				}
				Ok(())
			}
			vma::Kind::Anonymous if !v.shared => self.look_at_generated(v, Which::Populated, populated, memory),
			// What was here at the seal has been looked through.
			vma::Kind::Sealed => self.look_at_generated(v, Which::Written, populated, memory),
			vma::Kind::Kernel => Ok(()),
			_ => {
				CODE.maps.store(true, Relaxed);
				Ok(())
			}
		}
	}

	fn look_at_generated(&mut self, v: &Vma, which: Which, populated: &mut Populated, memory: &mut Own) -> Result<()> {
		if v.prot & PROT_READ == 0 || self.found.is_some() {
			CODE.maps.store(true, Relaxed);
			return Ok(());
		}
		let (mut looked, mut stubs) = (Ok(()), 0);
		let pagemap = populated.pagemap()?;
		let mut each = |pages| {
			if self.found.is_none() && looked.is_ok() {
				stubs += stubs_in(memory, pages);
				looked = first_generated(memory, pages).map(|call| self.found = call);
			}
		};
		let mut listed = Ok(());
		subtract(v.range, &[self.arena], |part| {
			if listed.is_ok() {
				listed = pagemap.for_each(part, which, &mut each);
			}
		});
		listed?;
		if stubs == v.range.len() {
			CODE.know_stubs(v.range);
		} else {
			// What isn't there yet can't be looked through.
			CODE.maps.store(true, Relaxed);
		}
		looked
	}

	/// Whether all files that are mapped are as they were when their code was looked through.
	fn are_versions_as_they_were(&self) -> bool {
		let is_mapped = |version: &usize| self.versions[version / 64] & 1 << (version % 64) != 0;
		CODE.versions.are_as_they_were((0..VERSIONS).filter(is_mapped))
	}
}

/// The page map, opened when it is first needed.
struct Populated<'a> {
	regions: Option<&'a mut [Region]>,
	pagemap: Option<Pagemap<'a>>,
}

impl<'a> Populated<'a> {
	fn pagemap(&mut self) -> Result<&mut Pagemap<'a>> {
		if let Some(regions) = self.regions.take() {
			self.pagemap = Some(Pagemap::open(regions)?);
		}
		self.pagemap.as_mut().ok_or(Errno::EIO)
	}
}

/// No number of [`mix`].
pub(super) const NEVER: u64 = 0;
/// Where the numbers of [`mix`] begin.
const FIRST: u64 = 0xcbf2_9ce4_8422_2325;

/// Adds an executable mapping of a file to a number that stands for all of them (FNV-1a, by words).
fn mix(number: u64, v: &Vma) -> u64 {
	let device = u64::from(v.device[0]) << 32 | u64::from(v.device[1]);
	let words = [v.range.start as u64, v.range.end as u64, v.offset, v.inode, device];
	words.iter().fold(number, |n, word| (n ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23))
}
