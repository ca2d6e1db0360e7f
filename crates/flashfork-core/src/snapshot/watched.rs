//! What was written since the snapshot, as the kernel notes it ([`crate::region::watch`]), found and copied back.
//!
//! All private memory but the stack is watched, by whole mappings. A protected page holds what it held at the snapshot,
//! so only what isn't protected is looked at: pages of which there are copies are copied back, others become zeros or
//! are the memfd's or the file's again. They stay writable: what is written again and again costs no fault any more.
//! What the kernel's notes don't tell is compared each time: of a file's mapping a page that the program gave up and
//! that came back from the file is protected as before; and the stack.
//!
//! Whatever can't be told, or can't go back so, is an *unknown* entry: it is dropped and compared as without a watch,
//! which is right at any time, and watched anew.

use super::{
	restore,
	table::{Change, Entry, Saved, Table},
};
use crate::{
	proc::{
		lookup::{self, Wanted},
		pagemap::Pagemap,
		scan::{Ask, FILE, HUGE_PAGE, PRESENT, Region, SWAPPED, WATCHED as IS_WATCHED, WRITTEN, ZERO},
		vma::Kind,
	},
	range::Range,
	region::{
		copies::{Copies, Vain},
		watch::WATCHED,
	},
	scratch,
	state::STATE,
	sys::{self, ADDRESSES, Errno, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PAGE, PROT_READ, PROT_WRITE, Result},
};
use linux_raw_sys::general as k;

/// Most mappings that are watched, and most runs of pages of one look: more are not worth it.
pub const MOST: usize = 2048;
/// Most pages of fresh memory that are made zeros, rather than dropped.
const MOST_ZEROED: usize = 4096;

/// Wherever a program has memory.
const ALL: Range = Range::new(PAGE, ADDRESSES);
const MOST_PARTS: usize = 64;

const BOTH: u32 = PROT_READ | PROT_WRITE;

/// Part of the address space in which the program can write, or could before the snapshot.
#[derive(Clone, Copy)]
struct Part {
	range: Range,
	/// Whether there are copies of pages in files' mappings, of which what is there must be known: pages go with the
	/// end of their file, and one that comes back from it then is protected.
	of_files: bool,
}

impl Part {
	/// Whether a mapping had better be part of it, too: one look at both takes less than two. Between them nothing lies
	/// that isn't watched.
	fn takes(&self, mapping: Range, of_files: bool) -> bool {
		/// While little can be there.
		const SMALL: usize = 4 << 20;
		let touches = self.range.end == mapping.start;
		touches && (self.of_files == of_files || self.range.len() + mapping.len() <= SMALL)
	}
}

/// See the module.
pub struct Watch {
	on: bool,
	ranges: [Range; MOST],
	/// Where the memfd is mapped for reading, one sealed entry behind the other.
	sources: Range,
	/// Pages of sealed memory that are copies, numbered so.
	copies: Option<Copies>,
	vain: Vain,
	whole: bool,
	/// Whether the last look was for what was written alone.
	narrow: bool,
	/// All of it that the program can write to, or of which there are copies.
	parts: [Part; MOST_PARTS],
	part_count: usize,
	/// Page faults of this process at the end of the last restore.
	faults: u64,
	/// What the last look found.
	runs: [Region; MOST],
	run_count: usize,
}

impl Watch {
	/// The fields for which zeros are not valid.
	///
	/// # Safety
	/// `watch` points to zeros.
	pub unsafe fn init(watch: *mut Watch) {
		// SAFETY: the caller says so.
		unsafe {
			(&raw mut (*watch).copies).write(None);
			(&raw mut (*watch).vain).write(Vain::default());
		}
	}

	/// Its own memory.
	pub fn own(&self) -> [Range; 2] {
		[self.sources, self.copies.as_ref().map_or(Range::default(), Copies::own)]
	}

	fn runs(&self) -> &[Region] {
		&self.runs[..self.run_count]
	}
}

/// Whether writes are noted. Where the watch has ended, by whomever, what belonged to it is given back.
pub fn is_on(table: &mut Table) -> bool {
	if table.watch.on && !WATCHED.watches_process() {
		end(table);
	}
	table.watch.on
}

/// Begins to watch, nothing at first.
pub fn begin(table: &mut Table) -> Result<()> {
	end(table);
	// Addresses that are limited are the program's.
	if sys::getrlimit(k::RLIMIT_AS)?[0] != u64::MAX {
		return Err(Errno::ENOMEM);
	}
	map_sources(table)?;
	table.watch.copies = Some(Copies::none(table.sealed / PAGE + 1)?);
	table.watch.vain = Vain::default();
	table.watch.whole = true;
	find_parts(table);
	WATCHED.begin_process(&mut table.watch.ranges)?;
	table.watch.on = true;
	Ok(())
}

/// Notes the parts in which the program can write, or could.
fn find_parts(table: &mut Table) {
	let Table { watch, entries, entry_count, saved, saved_count, .. } = table;
	let mut saved = saved[..*saved_count].iter().peekable();
	let mut count = 0;
	for (index, entry) in entries[..*entry_count].iter().enumerate() {
		let mut is_saved = false;
		while saved.next_if(|saved| saved.entry as usize <= index).is_some() {
			is_saved = true;
		}
		let of_files = entry.kind == Kind::File && is_saved;
		let is_constant = entry.kind == Kind::File && entry.prot & PROT_WRITE == 0 && !is_saved;
		if is_constant || !entry.is_watchable() {
			continue;
		}
		match watch.parts[..count].last_mut() {
			Some(last) if last.takes(entry.range, of_files) => {
				(last.range.end, last.of_files) = (entry.range.end, last.of_files || of_files);
			}
			_ => {
				let Some(part) = watch.parts.get_mut(count) else {
					watch.whole = false;
					return;
				};
				*part = Part { range: entry.range, of_files };
				count += 1;
			}
		}
	}
	watch.part_count = count;
}

/// What is noted where a restore ends.
pub fn note_faults(table: &mut Table) {
	if table.watch.on {
		table.watch.faults = sys::all_faults();
	}
}

/// Watches the entries whose contents are [`Entry::unknown`], from which all was dropped that has no content of its
/// own. What there are copies of is compared by the caller, afterwards. An entry that can't be watched stays unknown.
pub fn watch_unknown(table: &mut Table, pagemap: &mut Pagemap) -> Result<()> {
	for index in 0..table.entry_count {
		let entry = table.entries[index];
		if !entry.unknown || !entry.is_watchable() {
			continue;
		}
		if entry.is_renewable_seal()
			&& let Some(copies) = &mut table.watch.copies
		{
			copies.forget(entry.place / PAGE, (entry.place + entry.range.len()) / PAGE);
		}
		// Not where another userfaultfd of the engine's has it already: a region.
		if lookup::for_each(entry.range, Wanted::All, |v| WATCHED.watch(v.range)).is_ok() {
			protect(table, pagemap, entry.range)?;
		} else {
			table.watch.whole = false;
		}
	}
	Ok(())
}

/// Protects all pages of a range, and looks at those without a copy then. Nothing was protected by this watch, but
/// before Linux 6.10 by an earlier one: so all that was protected is compared.
fn protect(table: &mut Table, pagemap: &mut Pagemap, range: Range) -> Result<()> {
	scan(table, pagemap, range, Look::Protect)?;
	put_unsaved_back(table, pagemap, true).map(drop)
}

/// Ends the watch, if any.
pub fn end(table: &mut Table) {
	if table.watch.on {
		table.watch.on = false;
		WATCHED.end_process();
	}
	table.watch.copies = None;
	let sources = core::mem::take(&mut table.watch.sources);
	if !sources.is_empty() {
		// SAFETY: our own mapping. A failure would leak it, no more.
		let _ = unsafe { sys::munmap(sources.start, sources.len()) };
	}
}

fn map_sources(table: &mut Table) -> Result<()> {
	if table.sealed == 0 {
		return Ok(());
	}
	let fd = table.fd.filter(|fd| sys::identity(*fd) == Ok(table.identity)).ok_or(Errno::EBADF)?;
	let flags = MAP_PRIVATE | MAP_NORESERVE;
	let at = scratch::far(table.sealed)?;
	table.watch.sources = Range::new(at, at + table.sealed);
	for entry in table.entries[..table.entry_count].iter().filter(|e| e.is_renewable_seal()) {
		let (at, len) = (at + entry.place, entry.range.len());
		// SAFETY: inside the mapping just made. In core dumps the original is enough.
		unsafe {
			sys::mmap(at, len, PROT_READ, flags | MAP_FIXED, fd, entry.offset)?;
			sys::madvise(at, len, k::MADV_DONTDUMP)?;
		}
	}
	Ok(())
}

/// Finds what was written, and which entries are [`Entry::unknown`]: of which that can't be told, or which can't go
/// back by copying. Changes nothing.
///
/// `untouched`: the program has made no call since the last restore that changes mappings or gives memory up. Then only
/// what was written need be looked for, which is far less than all that is there.
pub fn look(table: &mut Table, pagemap: &mut Pagemap, untouched: bool) -> Result<()> {
	table.watch.narrow = untouched && look_narrowly(table, pagemap)?;
	if !table.watch.narrow {
		scan(table, pagemap, ALL, Look::All)?;
	}
	mark_by_changes(table);
	mark_by_runs(table);
	let mut ahead = 0;
	for index in 0..table.saved_count {
		let saved = table.saved[index];
		let entry = table.entries[saved.entry as usize];
		if entry.is_watchable() && !entry.unknown && !can_go_back(table, &entry, &saved, &mut ahead) {
			table.entries[saved.entry as usize].unknown = true;
		}
	}
	Ok(())
}

/// Looks for what was written alone, unless a page may be gone that was, because the kernel has freed it later.
///
/// Without a page fault the process itself has written to no protected page. What is left are other processes: to
/// what the program can't write they can't, either, but for a debugger, whose breakpoints stay then.
fn look_narrowly(table: &mut Table, pagemap: &mut Pagemap) -> Result<bool> {
	if !table.watch.whole || table.lazily_freed || STATE.frees() != 0 || sys::all_faults() != table.watch.faults {
		return Ok(false);
	}
	match scan_parts(table, pagemap) {
		// Not all is watched any more: the break, say, was lowered and raised again.
		Err(Errno::EPERM) => Ok(false),
		other => other.map(|()| true),
	}
}

/// Whether of an entry only what was written was looked for.
fn is_narrow(table: &Table, entry: &Entry) -> bool {
	table.watch.narrow && entry.kind != Kind::File
}

/// Entries whose mappings the restore is going to change.
fn mark_by_changes(table: &mut Table) {
	let Table { changes, change_count, entries, entry_count, .. } = table;
	for change in &changes[..*change_count] {
		if let Change::Protect(range, _) | Change::Map(range, _) = change {
			let first = entries[..*entry_count].partition_point(|e| e.range.end <= range.start);
			let changed = entries[first..*entry_count].iter_mut().take_while(|e| e.range.start < range.end);
			changed.for_each(|entry| entry.unknown = true);
		}
	}
	let joined = |e: &&mut Entry| e.in_pieces && e.renewable && !restore::is_one_mapping(e.range);
	entries[..*entry_count].iter_mut().filter(joined).for_each(|entry| entry.unknown = true);
}

/// Entries in which a page was found that the kernel's notes don't tell of, or that can't be written to.
fn mark_by_runs(table: &mut Table) {
	let mut first = 0;
	for index in 0..table.watch.run_count {
		let run = table.watch.runs[index];
		let range = run.range();
		while first < table.entry_count && table.entries[first].range.end <= range.start {
			first += 1;
		}
		for at in first..table.entry_count {
			let entry = table.entries[at];
			if entry.range.start >= range.end {
				break;
			}
			if entry.is_watchable() && !is_told(table, &run, &entry) {
				table.entries[at].unknown = true;
			}
		}
	}
}

fn is_told(table: &Table, run: &Region, entry: &Entry) -> bool {
	let is_anonymous = entry.kind == Kind::Anonymous;
	// Swapped out, a guard, or no longer watched.
	if run.has(SWAPPED) && (is_anonymous || run.has(WRITTEN)) || !run.has(IS_WATCHED) {
		return false;
	}
	let to_write = is_anonymous && !run.has(ZERO) || entry.is_renewable_seal() && !run.has(HUGE_PAGE);
	let part = run.range().intersect(entry.range);
	let has_unsaved = || each_unsaved(table, part, |_| Err(Errno::EACCES)).is_err();
	!(to_write && run.has(WRITTEN) && entry.prot & BOTH != BOTH && has_unsaved())
}

/// Whether a copied range can be written to, or need not be. `ahead`: the first run that matters here and later.
fn can_go_back(table: &Table, entry: &Entry, saved: &Saved, ahead: &mut usize) -> bool {
	let is_noted = entry.kind == Kind::Anonymous || table.watch.narrow;
	// The file may have become shorter, and what came back from it is protected as what went was.
	if table.watch.narrow && entry.kind == Kind::File {
		let is_of_file = runs_in(table.watch.runs(), saved.range).any(|run| run.has(FILE));
		if is_of_file || !is_present(table.watch.runs(), ahead, saved.range) {
			return false;
		}
	}
	if !is_noted && (entry.prot & PROT_READ == 0 || !is_present(table.watch.runs(), ahead, saved.range)) {
		return false;
	}
	let same = |part| {
		each_page(table, saved, part, |page, from| {
			// SAFETY: both can be read: the one by its protection, and it is there.
			if unsafe { sys::same_page(page.start, from) } { Ok(()) } else { Err(Errno::EACCES) }
		})
	};
	let compared = match entry.prot & BOTH {
		BOTH => Ok(()),
		PROT_READ if is_noted => each_written(table, saved, same),
		PROT_READ => same(saved.range),
		_ => each_written(table, saved, |_| Err(Errno::EACCES)),
	};
	compared.is_ok()
}

/// Puts back what the look has found, but in unknown entries.
pub fn put_back(table: &mut Table, pagemap: &mut Pagemap) -> Result<()> {
	let mut found = put_unsaved_back(table, pagemap, false)?;
	for saved in &table.saved[..table.saved_count] {
		let entry = &table.entries[saved.entry as usize];
		if entry.unknown || entry.prot & PROT_WRITE == 0 {
			continue;
		}
		if entry.kind == Kind::Anonymous || table.watch.narrow {
			each_written(table, saved, |part| {
				restore::put(part, table.copy_of(saved, part.start), table);
				found += part.len() / PAGE;
				Ok(())
			})?;
		} else {
			compare(table, saved);
		}
	}
	let anew = table.watch.vain.is_dearer();
	if anew {
		// What is written again is found, and copied, from then on.
		protect(table, pagemap, ALL)?;
		let known = |saved: &&Saved| !table.entries[saved.entry as usize].unknown;
		found = table.saved[..table.saved_count].iter().filter(known).map(|saved| compare(table, saved)).sum();
	}
	table.watch.vain.found(found, anew);
	Ok(())
}

/// Whether more copies are kept than are worth their memory.
pub fn keeps_too_much(table: &Table) -> bool {
	let Watch { vain, copies, .. } = &table.watch;
	copies.as_ref().is_some_and(|copies| vain.is_too_much(copies))
}

/// Copies back what differs of a copied range that can be read and written. How many pages that were.
fn compare(table: &Table, saved: &Saved) -> usize {
	if table.entries[saved.entry as usize].prot & BOTH != BOTH {
		return 0;
	}
	let mut found = 0;
	let _ = each_page(table, saved, saved.range, |page, from| {
		// SAFETY: both are mapped and can be read; whether the file was long enough has been asked.
		if !unsafe { sys::same_page(page.start, from) } {
			restore::put(page, from, table);
			found += 1;
		}
		Ok(())
	});
	found
}

#[derive(Clone, Copy)]
enum Look {
	All,
	/// All that are there, and whether they are a file's. All the range must be watched (`EPERM`).
	OfFiles,
	/// Those that aren't protected. All the range must be watched, too.
	Written,
	/// Those that weren't protected, which they are from then on, but for huge ones.
	Protect,
}

impl Look {
	fn ask(self) -> Ask {
		let told = IS_WATCHED | WRITTEN | PRESENT | SWAPPED | ZERO | HUGE_PAGE;
		match self {
			Look::All => Ask { any: PRESENT | SWAPPED, told, ..Ask::default() },
			Look::OfFiles => Ask { any: PRESENT | SWAPPED, told: told | FILE, watched: true, ..Ask::default() },
			Look::Written => Ask { all: WRITTEN, any: PRESENT | SWAPPED, told, watched: true, ..Ask::default() },
			Look::Protect => Ask {
				all: IS_WATCHED | WRITTEN,
				none: HUGE_PAGE,
				any: PRESENT | SWAPPED,
				told,
				protect: true,
				watched: false,
			},
		}
	}
}

/// Fills the list of runs with what was written in the parts, and with all that is there in those of files.
fn scan_parts(table: &mut Table, pagemap: &mut Pagemap) -> Result<()> {
	let Watch { runs, run_count, parts, part_count, .. } = &mut table.watch;
	*run_count = 0;
	parts[..*part_count].iter().try_for_each(|part| {
		let look = if part.of_files { Look::OfFiles } else { Look::Written };
		pagemap.scan_for_few(part.range, look.ask(), |run| add(runs, run_count, run))
	})
}

/// Fills the list of runs with the pages of a range.
fn scan(table: &mut Table, pagemap: &mut Pagemap, range: Range, look: Look) -> Result<()> {
	let Watch { runs, run_count, .. } = &mut table.watch;
	*run_count = 0;
	pagemap.scan(range, look.ask(), |run| add(runs, run_count, run))
}

fn add(runs: &mut [Region], count: &mut usize, run: Region) -> Result<()> {
	*runs.get_mut(*count).ok_or(Errno::E2BIG)? = run;
	*count += 1;
	Ok(())
}

/// Puts the pages of the runs back of which there is no copy. How many were written to.
fn put_unsaved_back(table: &mut Table, pagemap: &mut Pagemap, anew: bool) -> Result<usize> {
	let mut copies = table.watch.copies.take().ok_or(Errno::ESTALE)?;
	let mut found = 0;
	let shared = &*table;
	let done = each_watched(shared, shared.watch.runs(), |run, entry, part| {
		if !run.has(WRITTEN) || !run.has(PRESENT) || entry.unknown && !anew {
			return Ok(());
		}
		each_unsaved(shared, part, |part| {
			found += match entry.kind {
				Kind::Anonymous => make_zeros(run, entry, part)?,
				_ if run.has(HUGE_PAGE) => 0,
				_ if entry.is_renewable_seal() => put_sealed_back(shared, pagemap, &mut copies, (entry, part), anew)?,
				_ => drop_copies(pagemap, part)?,
			};
			Ok(())
		})
	});
	table.watch.copies = Some(copies);
	done.map(|()| found)
}

/// Fresh memory.
fn make_zeros(run: &Region, entry: &Entry, part: Range) -> Result<usize> {
	if run.has(ZERO) {
		return Ok(0);
	}
	if entry.prot & BOTH != BOTH {
		return Err(Errno::EACCES);
	}
	if run.has(HUGE_PAGE) || part.len() > MOST_ZEROED * PAGE {
		restore::discard(part);
		return Ok(0);
	}
	// SAFETY: it can be written, and held nothing.
	unsafe { sys::zero_bytes(part.start, part.len()) };
	Ok(part.len() / PAGE)
}

/// Sealed memory: either the memfd's own pages, which were read, or copies of them.
fn put_sealed_back(
	table: &Table,
	pagemap: &mut Pagemap,
	copies: &mut Copies,
	(entry, part): (&Entry, Range),
	anew: bool,
) -> Result<usize> {
	let number = |page: usize| (entry.place + (page - entry.range.start)) / PAGE;
	let put = |part: Range| {
		let from = |page: usize| table.watch.sources.start + entry.place + (page - entry.range.start);
		if entry.prot & BOTH != BOTH {
			return Err(Errno::EACCES);
		}
		if !anew {
			// SAFETY: inside the entry, which can be written, and the memfd, which can be read and is as long.
			unsafe { sys::copy_bytes(from(part.start), part.start, part.len()) };
			return Ok(part.len() / PAGE);
		}
		let mut found = 0;
		for page in (part.start..part.end).step_by(PAGE) {
			// SAFETY: as above.
			unsafe {
				if !sys::same_page(from(page), page) {
					sys::copy_bytes(from(page), page, PAGE);
					found += 1;
				}
			}
		}
		Ok(found)
	};
	let (mut rest, mut found) = (part, 0);
	while !rest.is_empty() {
		let first = number(rest.start);
		let end = rest.start + (copies.end_of_like(first, number(rest.end)) - first) * PAGE;
		let piece = Range::new(rest.start, end);
		rest.start = end;
		if copies.has(first) {
			found += put(piece)?;
			continue;
		}
		each_own(pagemap, piece, |own| {
			(number(own.start)..number(own.end)).for_each(|page| copies.note(page));
			found += put(own)?;
			Ok(())
		})?;
	}
	Ok(found)
}

/// A file's mapping: either the file's own pages, which were read, or copies of them.
fn drop_copies(pagemap: &mut Pagemap, part: Range) -> Result<usize> {
	let mut found = 0;
	each_own(pagemap, part, |own| {
		restore::discard(own);
		found += own.len() / PAGE;
		Ok(())
	})?;
	Ok(found)
}

/// Protects pages of which it isn't known whether they are copies, and calls `each` with those that are.
fn each_own(pagemap: &mut Pagemap, part: Range, mut each: impl FnMut(Range) -> Result<()>) -> Result<()> {
	let ask = |all, none, protect| Ask { all, none, any: PRESENT | SWAPPED, told: SWAPPED, protect, watched: true };
	// First, so that what somebody writes meanwhile is found the next time.
	pagemap.scan(part, ask(WRITTEN, HUGE_PAGE, true), |_| Ok(()))?;
	pagemap.scan(part, ask(0, ZERO | FILE, false), |run| {
		if run.has(SWAPPED) {
			restore::discard(run.range());
			Ok(())
		} else {
			each(run.range())
		}
	})
}

/// Calls `each` with the parts of runs in memory which goes back and is watched, and with its entry.
fn each_watched(
	table: &Table,
	runs: &[Region],
	mut each: impl FnMut(&Region, &Entry, Range) -> Result<()>,
) -> Result<()> {
	let mut entries = &table.entries[..table.entry_count];
	for run in runs {
		let range = run.range();
		entries = &entries[entries.partition_point(|e| e.range.end <= range.start)..];
		for entry in entries.iter().take_while(|e| e.range.start < range.end) {
			if entry.is_watchable() {
				each(run, entry, entry.range.intersect(range))?;
			}
		}
	}
	Ok(())
}

/// Calls `each` with the parts of a range of which there are no copies.
fn each_unsaved(table: &Table, range: Range, mut each: impl FnMut(Range) -> Result<()>) -> Result<()> {
	let saved = &table.saved[..table.saved_count];
	let mut at = range.start;
	for copied in &saved[saved.partition_point(|s| s.range.end <= range.start)..] {
		if copied.range.start >= range.end {
			break;
		}
		if copied.range.start > at {
			each(Range::new(at, copied.range.start))?;
		}
		at = copied.range.end;
	}
	if at < range.end { each(Range::new(at, range.end)) } else { Ok(()) }
}

/// Calls `each` with the parts of a copied range that may have been written: all but protected pages that are there.
fn each_written(table: &Table, saved: &Saved, mut each: impl FnMut(Range) -> Result<()>) -> Result<()> {
	let range = saved.range;
	let runs = runs_in(table.watch.runs(), range);
	if is_narrow(table, &table.entries[saved.entry as usize]) {
		return runs.filter(|run| run.has(WRITTEN)).try_for_each(|run| each(run.range().intersect(range)));
	}
	let mut at = range.start;
	for run in runs {
		let clean = run.range();
		if !run.has(IS_WATCHED) || run.has(WRITTEN) || !run.has(PRESENT) {
			continue;
		}
		if clean.start > at {
			each(Range::new(at, clean.start))?;
		}
		at = clean.end;
	}
	if at < range.end { each(Range::new(at, range.end)) } else { Ok(()) }
}

fn runs_in(runs: &[Region], range: Range) -> impl Iterator<Item = &Region> {
	let first = runs.partition_point(|run| run.range().end <= range.start);
	runs[first..].iter().take_while(move |run| run.range().start < range.end)
}

/// Whether all of a range is in memory. `ahead`: the first run that matters for it, and for what is asked for later.
fn is_present(runs: &[Region], ahead: &mut usize, range: Range) -> bool {
	while runs.get(*ahead).is_some_and(|run| run.range().end <= range.start) {
		*ahead += 1;
	}
	let mut at = range.start;
	for run in &runs[*ahead..] {
		if run.range().start > at || !run.has(PRESENT) {
			break;
		}
		at = run.range().end;
		if at >= range.end {
			return true;
		}
	}
	false
}

/// Calls `each` with pages of a copied range, and where their copies are.
fn each_page(
	table: &Table,
	saved: &Saved,
	part: Range,
	mut each: impl FnMut(Range, usize) -> Result<()>,
) -> Result<()> {
	(part.start..part.end).step_by(PAGE).try_for_each(|at| each(Range::new(at, at + PAGE), table.copy_of(saved, at)))
}

/// Whether anything forbids to watch: the calls for it, and those of the program that are counted on.
pub fn may_begin(table: &Table) -> bool {
	table.filters == 0
		&& table.properties.is_some()
		&& STATE.sees_calls()
		&& !STATE.is_sandboxed()
		&& !crate::threads::table::may_be_shared()
}
