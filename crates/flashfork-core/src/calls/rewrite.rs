//! Has the calls of a library lead to stubs, and back to the kernel.

use super::{
	found::{Found, Library, Part, code_of},
	site::{self, JUMP, SYSCALL, Site, Unclear, Want},
	stub::{self, Page, Ways},
	write::Writer,
};
use crate::{
	proc::vma::{self, Kind, Vma},
	range::Range,
	state::STATE,
	sys::{self, Errno, MAP_ANONYMOUS, MAP_PRIVATE, PAGE, PROT_EXEC, PROT_READ, PROT_WRITE, Result},
};

const MAX_SITES: usize = 64;

/// What is written at one place.
#[derive(Clone, Copy, Default)]
pub struct Jump {
	pub at: usize,
	/// Where the instruction `syscall` is that it leads to.
	pub call: usize,
	/// The number of the call made there; `None`: any.
	pub number: Option<u32>,
	/// `None`: it is there.
	bytes: Option<[u8; JUMP]>,
}

/// All places of one library.
pub struct Places {
	jumps: [Jump; MAX_SITES],
	count: usize,
}

impl Places {
	fn push(&mut self, at: usize, line: &[u8], bytes: Option<[u8; JUMP]>) -> Option<()> {
		*self.jumps.get_mut(self.count)? = Jump { at, call: at + line.len(), number: site::number(line), bytes };
		self.count += 1;
		Some(())
	}

	/// All of them.
	pub fn all(&self) -> &[Jump] {
		&self.jumps[..self.count]
	}
}

/// Has all places of a library lead to stubs, and from there as `ways` says. `executes` tells whether another
/// thread is about to execute in a range.
pub fn rewrite(
	library: &Library,
	found: &Found,
	ways: Ways,
	buf: &mut [u8],
	wanted: impl Fn(u32) -> Want,
	executes: impl Fn(Range) -> bool,
) -> Result<Places> {
	let mut places = Places { jumps: [Jump::default(); MAX_SITES], count: 0 };
	let mut page = Page::new(place_near(library, buf)?, ways);
	let (mut busy, mut another) = (false, false);
	let start = library.code.start;
	{
		// SAFETY: the library's code, which nobody writes to while threads are stopped.
		let code = unsafe { code_of(library.code) };
		let mut add = |site: Site, line: &[u8], entry: Option<usize>| {
			let unclear = Unclear(site.at);
			let (at, call) = (start + site.at, start + site.at + site.line);
			if entry == Some(ways.enter) {
				return places.push(at, line, None).ok_or(unclear);
			}
			// Another copy of the engine, in a library or in the shim, has been here: it stays so for what it has
			// sealed.
			another |= entry.is_some();
			busy |= executes(Range::new(at + 1, call + 1));
			let stub = page.add(line, call + SYSCALL.len()).ok_or(unclear)?;
			let jump = stub::jump(at, stub).ok_or(unclear)?;
			places.push(at, line, Some(jump)).ok_or(unclear)
		};
		let by_number = library.by_number(&found.reader).and_then(|function| function.checked_sub(start));
		let whole = |site: Site| add(site, &code[site.at..site.at + site.line], None);
		let new = site::for_each(code, by_number, wanted, whole);
		let old = for_each_jump(code, start, found, |site, line, entry| add(site, line, Some(entry)));
		new.and(old).map_err(|Unclear(_)| Errno::EOPNOTSUPP)?;
	}
	if busy {
		return Err(Errno::EAGAIN);
	}
	if places.all().is_empty() && library.kind != Part::Loader {
		return Err(Errno::EOPNOTSUPP);
	}
	if another {
		// Its discards come here from now on.
		STATE.note_another();
	}
	if places.all().iter().any(|jump| jump.bytes.is_some()) {
		let writer = Writer::open();
		publish(&page, &writer)?;
		write_all(&places, &writer)?;
	}
	Ok(places)
}

fn write_all(places: &Places, writer: &Writer) -> Result<()> {
	/// A mapping more costs a fork about as much as copying what page tables say about this much. Of 16, 32, 64, 96 and
	/// 512 KB 96 makes the cheapest forks of a sealed process with Debian 12's libc.
	const SPAN: usize = 96 << 10;
	let mut pages = Range::default();
	for jump in places.all().iter().filter(|jump| jump.bytes.is_some()) {
		let own = Range::pages_of(jump.at, JUMP);
		let both = Range::new(pages.start.min(own.start), pages.end.max(own.end));
		if !pages.is_empty() && both.len() <= SPAN {
			pages = both;
		} else {
			set_apart(pages);
			pages = own;
		}
	}
	set_apart(pages);
	for (at, bytes) in places.all().iter().filter_map(|jump| Some((jump.at, jump.bytes?))) {
		// SAFETY: the jump replaces one whole instruction, or the beginning of one, that nobody is in the middle of,
		// and leads to a stub that does the same.
		unsafe { writer.write(at, &bytes) }?;
		// SAFETY: code that can be read.
		if unsafe { code_of(Range::new(at, at + JUMP)) } != bytes {
			return Err(Errno::EIO);
		}
	}
	Ok(())
}

/// A fork copies the page tables of a file mapping with written pages: let that be the mapping of these pages alone.
/// Advice on reading ahead tells it from its neighbours. Where that is refused forks are slower.
fn set_apart(pages: Range) {
	if !pages.is_empty() {
		// SAFETY: nothing is discarded.
		let _ = unsafe { sys::madvise(pages.start, pages.len(), linux_raw_sys::general::MADV_RANDOM) };
	}
}

/// Calls `each` with the places that lead to stubs already: what the stub executes in their stead, and where it leads
/// to.
fn for_each_jump(
	code: &[u8],
	start: usize,
	found: &Found,
	mut each: impl FnMut(Site, &[u8], usize) -> core::result::Result<(), Unclear>,
) -> core::result::Result<(), Unclear> {
	if found.page_count == 0 {
		return Ok(());
	}
	for at in site::places_of(0xe9, code) {
		let Some(to) = stub::target(&code[at..], start + at) else { continue };
		let Some(page) = found.page_of(to) else { continue };
		// Bytes of another instruction may look like a jump there: one page in some dozens is met by chance.
		let Some(line) = stub::line_of(page, to % PAGE) else { continue };
		if code.get(at + line.len()..at + line.len() + SYSCALL.len()) != Some(&SYSCALL) {
			return Err(Unclear(at));
		}
		each(Site { at, line: line.len() }, &page[line], stub::entry(page))?;
	}
	Ok(())
}

/// A free page that jumps from everywhere in the library's code reach.
///
/// Straight below a mapping, where the program's next one would have ended too: above one the program may let it grow.
/// Best below the library itself, or another object: nobody discards what lies there, as a program may that has made a
/// hole between mappings of its own. Last below what the engine has mapped for this call alone: the page would be left
/// behind in the middle of a gap. Not below what grows down.
fn place_near(library: &Library, buf: &mut [u8]) -> Result<usize> {
	const REACH: usize = (1 << 31) - (1 << 20);
	let here = 0u8;
	let own = [&raw const here as usize, buf.as_ptr() as usize];
	// The page, with what it is ranked by: less is better.
	let (mut end, mut best) = (0, None::<((u8, usize), usize)>);
	vma::for_each(c"/proc/thread-self/maps", buf, |v| {
		let at = v.range.start.saturating_sub(PAGE);
		let distance = at.abs_diff(library.code.start).max(at.abs_diff(library.code.end));
		let (kind, gap) = match v.kind {
			_ if v.range.start == library.base => (0, 4 * PAGE),
			Kind::File if v.offset == 0 && v.prot == PROT_READ => (1, 4 * PAGE),
			_ if own.iter().any(|at| v.range.start <= *at && *at < v.range.end) => (3, 16 * PAGE),
			_ => (2, 16 * PAGE),
		};
		let fits = v.kind != Kind::Stack && at >= end + gap && distance < REACH;
		if fits && best.is_none_or(|(rank, _)| (kind, distance) < rank) {
			let is_object = kind < 2;
			if is_object || !grows_down(v) {
				best = Some(((kind, distance), at));
			}
		}
		end = v.range.end;
		Ok(())
	})?;
	best.map(|(_, at)| at).ok_or(Errno::ENOMEM)
}

/// Whether a mapping grows down by faults (`MAP_GROWSDOWN`), which maps don't say: only for such a one may a protection
/// be asked for from its begin on, wherever that is. It is the one that it has.
fn grows_down(v: &Vma) -> bool {
	use linux_raw_sys::general::PROT_GROWSDOWN;
	// SAFETY: changes nothing.
	let asked = unsafe { sys::mprotect(v.range.start, PAGE, v.prot | PROT_GROWSDOWN) };
	asked != Err(Errno::EINVAL)
}

/// Maps the page where it was made for.
fn publish(page: &Page, writer: &Writer) -> Result<()> {
	use linux_raw_sys::general::MAP_FIXED_NOREPLACE;
	let map = |prot| {
		let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
		// SAFETY: replaces nothing.
		let at = unsafe { sys::mmap(page.at, PAGE, prot, flags, -1, 0) }?;
		if at != page.at {
			// SAFETY: mapped just now.
			unsafe { sys::munmap(at, PAGE) }?;
			return Err(Errno::EEXIST);
		}
		Ok(())
	};
	// SAFETY: the page is new, and nothing leads there yet.
	unsafe {
		map(PROT_READ | PROT_WRITE)?;
		sys::copy_bytes(page.bytes.as_ptr() as usize, page.at, PAGE);
		if sys::mprotect(page.at, PAGE, PROT_READ | PROT_EXEC).is_ok() {
			return Ok(());
		}
		// Memory that was writable may not become executable here. But it may be born so, and written as code is.
		sys::munmap(page.at, PAGE)?;
		map(PROT_READ | PROT_EXEC)?;
		writer.write(page.at, &page.bytes).inspect_err(|_| {
			let _ = sys::munmap(page.at, PAGE);
		})
	}
}

/// Puts the calls back that lead to the entry at `own`.
pub fn restore(own: usize, buf: &mut [u8]) -> Result<()> {
	let mut found = Found::default();
	found.look(own, buf)?;
	let writer = Writer::open();
	for library in found.libraries() {
		// SAFETY: the library's code, which nobody else executes or writes.
		let code = unsafe { code_of(library.code) };
		let mut places = Places { jumps: [Jump::default(); MAX_SITES], count: 0 };
		for_each_jump(code, library.code.start, &found, |site, line, entry| {
			let bytes = line.first_chunk::<JUMP>().copied().filter(|_| entry == own);
			places.push(library.code.start + site.at, line, bytes).ok_or(Unclear(site.at))
		})
		.map_err(|Unclear(_)| Errno::EOPNOTSUPP)?;
		write_all(&places, &writer)?;
	}
	Ok(())
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::scratch;

	#[test]
	fn bytes_that_look_like_a_jump_to_a_page_of_stubs_are_none() {
		let at = scratch::temporary(2 * PAGE).unwrap();
		let mut page = Page::new(at + PAGE, Ways { enter: 0x1234, back: 1 });
		let line = [0xb8, 28, 0, 0, 0];
		let stub = page.add(&line, at + line.len() + SYSCALL.len()).unwrap();
		// SAFETY: the second of the pages just mapped.
		unsafe { sys::copy_bytes(page.bytes.as_ptr() as usize, page.at, PAGE) };
		let mut found = Found { page_count: 1, ..Found::default() };
		found.pages[0] = page.at;
		let mut code = [0x90; 64];
		code[..JUMP].copy_from_slice(&stub::jump(at, stub).unwrap());
		code[JUMP..JUMP + SYSCALL.len()].copy_from_slice(&SYSCALL);
		// The end of an instruction, as libc's strtof has one: `xor %r13,%r9` and what follows.
		code[32..32 + JUMP].copy_from_slice(&stub::jump(at + 32, page.at + 0xb14).unwrap());
		let mut jumps = Vec::new();
		let listed = for_each_jump(&code, at, &found, |site, line, entry| {
			jumps.push((site.at, line.to_vec(), entry));
			Ok(())
		});
		assert!(listed.is_ok());
		assert_eq!(jumps, [(0, line.to_vec(), 0x1234)]);
		// SAFETY: nobody has them.
		unsafe { sys::munmap(at, 2 * PAGE) }.unwrap();
	}
}
