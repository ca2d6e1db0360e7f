//! The calling process's own memory, as code looked through.

use super::{
	Call, Code, Kind, Scratch, layout,
	memory::{Memory, WINDOW},
	remembered::CODE,
	sites,
};
use crate::{
	calls::stub::is_stub,
	range::Range,
	sys::{self, PAGE, Result},
};

/// Pages known to be there, each in its own place by its number.
const PAGES: usize = 1024;
/// No page begins here.
const NOWHERE: usize = 1;
/// What is read at a time where code is looked through from its beginning to its end, at least.
const LARGE: usize = 64 << 10;

/// The process's own memory.
pub struct Own<'a> {
	/// Where other threads may unmap code meanwhile it is copied first, into this.
	copy: Option<&'a mut [u8; WINDOW]>,
	/// Addresses of pages that have been brought in, where nobody unmaps them meanwhile: for each match the table of
	/// functions is searched, a few bytes at a time.
	there: [usize; PAGES],
	/// The same of what was looked through last: it may be looked through again.
	through: Range,
	/// Whether something could not be read.
	pub failed: bool,
}

impl<'a> Own<'a> {
	/// To be read in place, or by way of `copy`.
	pub fn new(copy: Option<&'a mut [u8; WINDOW]>) -> Own<'a> {
		Own { copy, there: [NOWHERE; PAGES], through: Range::default(), failed: false }
	}
}

impl Memory for Own<'_> {
	fn peek(&mut self, at: usize, len: usize) -> Option<&[u8]> {
		let failed = self.failed;
		let readable = self.bytes(at, len).is_some();
		self.failed = failed;
		// What has been there once is there, and is only looked up now.
		if readable { self.bytes(at, len) } else { None }
	}

	fn bytes(&mut self, at: usize, len: usize) -> Option<&[u8]> {
		if let Some(copy) = &mut self.copy {
			let copy = copy.get_mut(..len)?;
			let read = sys::read_own(at, copy);
			self.failed |= read.is_err();
			return read.ok().map(|()| &*copy);
		}
		let pages = Range::pages_of(at, len);
		let place = pages.start / PAGE % PAGES;
		let is_there = pages.len() == PAGE && self.there[place] == pages.start;
		if !is_there && self.through.intersect(pages) != pages {
			// Brings the pages in, and says so where one can't be read: so no access below faults.
			let populated = sys::populate(pages.start, pages.len());
			self.failed |= populated.is_err();
			populated.ok()?;
			self.there[place] = pages.start;
			if (self.through.start..=self.through.end).contains(&pages.start) {
				self.through.end = pages.end;
			} else if pages.len() >= LARGE {
				self.through = pages;
			}
		}
		// SAFETY: nobody else runs in this memory who could unmap or write it, and the bytes have no other owner.
		Some(unsafe { core::slice::from_raw_parts(at as *const u8, len) })
	}
}

/// The first thing found in code. What can't be read is noted in `memory`.
pub fn first(memory: &mut Own, code: &Code, scratch: &mut Scratch) -> Option<Call> {
	let mut found = None;
	let readable = sites(memory, code, scratch, &mut |site| {
		found = Some(site.call);
		false
	});
	memory.failed |= !readable;
	found
}

/// The first thing found in memory that the program has filled itself, but for the engine's own stubs.
pub fn first_generated(memory: &mut Own, mut code: Range) -> Result<Option<Call>> {
	code.start += stubs_in(memory, code);
	// Most often there is nothing else.
	if code.is_empty() { Ok(None) } else { Scratch::with(|scratch| first_of_program(memory, code, scratch)) }
}

/// How many bytes of the engine's own stubs such memory begins with.
pub fn stubs_in(memory: &mut Own, pages: Range) -> usize {
	let mut at = pages.start;
	while at < pages.end && is_stub(memory, at) {
		at += PAGE;
	}
	at - pages.start
}

fn first_of_program(memory: &mut Own, code: Range, scratch: &mut Scratch) -> Option<Call> {
	let mut found = [None; 64];
	let mut count = 0;
	let code = Code { ranges: &[code], data: &[], kind: Kind::Generated, fixed: false };
	sites(memory, &code, scratch, &mut |site| {
		found[count] = Some(site);
		count += 1;
		count < found.len()
	});
	found.into_iter().flatten().find(|site| !is_stub(memory, site.at)).map(|site| site.call)
}

/// Whether `is_known` says yes to every site in the code of an object that begins at `base`. To be called when nobody
/// else runs.
pub(crate) fn all_sites(base: usize, code: Range, is_known: impl Fn(usize) -> bool) -> bool {
	let Ok(scratch) = Scratch::map() else { return false };
	let mut memory = Own::new(None);
	let layout = layout(&mut memory, base).unwrap_or_default();
	let code = Code { ranges: &[layout.code_in(code)], data: layout.data(), kind: layout.kind(), fixed: layout.fixed };
	let mut all = true;
	let readable = sites(&mut memory, &code, scratch, &mut |site| {
		all = is_known(site.at);
		all
	});
	CODE.note_maps(scratch);
	scratch.unmap();
	all && readable
}
