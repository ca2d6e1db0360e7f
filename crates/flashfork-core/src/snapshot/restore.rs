//! Goes back to a snapshot.

use super::{
	Error, Step, asm, calls_tell_of_mappings, check, compare, current, limits, mappings,
	mappings::Since,
	table::{Change, Entry, Saved, Table, Treatment},
	watched,
};
use crate::{
	proc::{
		pagemap::{Pagemap, Which},
		scan::Region,
		vma::Kind,
	},
	range::{Range, subtract},
	region::{
		choice::Way,
		watch::{File, WATCHED},
	},
	seal::{offset, remap::ATTEMPTS},
	state::STATE,
	sys::{self, ADDRESSES, Errno, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PAGE, PROT_READ, PROT_WRITE},
};
use linux_raw_sys::general as k;

/// Checks, changes, and goes to where the snapshot was taken; returns only when it is refused, and has then changed
/// nothing.
///
/// Runs on the arena's stack, with signals blocked.
pub fn restore(table: &mut Table, value: u64) -> Error {
	let way = way(table);
	let regions = core::ptr::slice_from_raw_parts_mut(table.arena.regions.as_mut_ptr(), table.arena.regions.len());
	// SAFETY: nothing else uses this buffer of the arena from here on.
	let regions = unsafe { &mut *regions };
	let (mut pagemap, found, lifted) = match look(table, way, regions) {
		Ok(ready) => ready,
		Err(error) => return error,
	};
	hold_edges(table);
	// By calls that nobody sees memory may have been locked, or have been given advice.
	let all_is_seen = found.nothing_came && calls_tell_of_mappings();
	change_mappings(table, all_is_seen);
	if !found.nothing_came || table.unusual && !(found.same && all_is_seen) {
		put_advice_back(table);
	}
	if !found.same {
		join_pieces(table);
	}
	let known = put_contents_back(table, way, &mut pagemap, found.copies);
	drop(pagemap);
	drop(lifted);
	put_descriptors_back(table);
	if table.properties.is_some() {
		table.properties = STATE.sees_calls().then(|| STATE.properties());
	}
	if !(found.same && known) {
		mappings::note(table);
	}
	note_cycle(table);
	watched::note_faults(table);
	// SAFETY: memory from the stack pointer up is what it was.
	unsafe { asm::resume(table.stack_pointer, value) }
}

struct Found {
	/// No call that matters was made ([`check::check`]).
	nothing_came: bool,
	/// The mappings are what they were.
	same: bool,
	/// All that was written can be copied back.
	copies: bool,
}

/// Finds out what there is to do, or says why it can't be done.
fn look<'a>(
	table: &mut Table,
	way: Way,
	regions: &'a mut [Region],
) -> Result<(Pagemap<'a>, Found, limits::Lifted), Error> {
	let nothing_came = check::check(table)?;
	let since = if nothing_came && !table.locks { mappings::since(table) } else { Since::Changed };
	let same = since != Since::Changed;
	if same {
		compare::nothing_changed(table);
	} else {
		compare::compare(table, nothing_came)?;
	}
	// First: with a watch that has ended its files are closed.
	let is_on = watched::is_on(table);
	let mut pagemap = match WATCHED.file(File::Pagemap) {
		Some(fd) => Pagemap::of(fd, regions),
		None => Pagemap::open(regions).map_err(|e| Error::System(Step::Look, e))?,
	};
	table.entries[..table.entry_count].iter_mut().for_each(|entry| entry.unknown = false);
	let copies = way == Way::Copy && is_on && watched::look(table, &mut pagemap, since == Since::Untouched).is_ok();
	if !copies {
		all_are_unknown(table);
		// What is kept open might be another file by now.
		pagemap.reopen().map_err(|e| Error::System(Step::Look, e))?;
	}
	compare::add_needs(table);
	check::files_are_long_enough(table)?;
	let lifted = limits::Lifted::begin(&table.needs)?;
	Ok((pagemap, Found { nothing_came, same, copies }, lifted))
}

fn way(table: &mut Table) -> Way {
	if table.forks != WATCHED.forks() {
		// The next one may come soon, and would have page tables to copy.
		table.forks = WATCHED.forks();
		table.choice.drop_for_now();
	}
	let wanted = current::only_way().unwrap_or(table.choice.way());
	if wanted == Way::Copy && watched::may_begin(table) { Way::Copy } else { Way::Drop }
}

/// Has what this way costs known, by the time from the end of one restore to the end of the next.
fn note_cycle(table: &mut Table) {
	let begun = table.over.take();
	if current::only_way().is_some() || !watched::may_begin(table) {
		return;
	}
	if !table.choice.times() {
		return table.choice.cycle(None);
	}
	let now = sys::thread_cpu_ns();
	table.choice.cycle(begun.map(|begun| now.saturating_sub(begun)));
	table.over = Some(now);
}

/// Makes contents what they were, and has what is written from now on noted, if it is to be copied back. Whether all
/// that was written was known.
fn put_contents_back(table: &mut Table, way: Way, pagemap: &mut Pagemap, copies: bool) -> bool {
	let was_on = copies && watched::put_back(table, pagemap).is_ok() && !watched::keeps_too_much(table);
	if !was_on {
		// What is left to do needs the page map, which would be closed with the watch.
		if pagemap.keep() {
			WATCHED.hand_over(File::Pagemap);
		}
		watched::end(table);
		all_are_unknown(table);
	}
	if !table.entries[..table.entry_count].iter().any(|entry| entry.unknown) {
		copy_back(table);
		return true;
	}
	drop_written(table, pagemap);
	let begun = way == Way::Copy
		&& pagemap.has_scan()
		&& (was_on || watched::begin(table).is_ok())
		&& watched::watch_unknown(table, pagemap).is_ok();
	if way == Way::Copy && !begun {
		watched::end(table);
		table.choice.drop_for_now();
		// Of the others too nothing is noted any more, but they are as they were.
	}
	// After that, or what others write meanwhile would not be noted.
	copy_back(table);
	false
}

fn all_are_unknown(table: &mut Table) {
	table.entries[..table.entry_count].iter_mut().for_each(|entry| entry.unknown = true);
}

/// Makes a call that must not fail: tried for a second, and then the process is killed.
pub fn must<T>(mut call: impl FnMut() -> sys::Result<T>) -> T {
	for _ in 0..ATTEMPTS {
		if let Ok(value) = call() {
			return value;
		}
		sys::pause_briefly();
	}
	sys::die(sys::getpid())
}

/// Holds what is kept of pages whose mapping is going to be replaced.
fn hold_edges(table: &mut Table) {
	let Table { edges, edge_count, held, changes, change_count, entries, entry_count, .. } = table;
	for (edge, held) in edges[..*edge_count].iter_mut().zip(held) {
		let page = Range::pages_of(edge.page, 1);
		let replaced = |change: &Change| matches!(change, Change::Map(range, _) if !range.intersect(page).is_empty());
		let joined = |entry: &Entry| entry.in_pieces && entry.range.contains(page.start);
		let goes = changes[..*change_count].iter().any(replaced) || entries[..*entry_count].iter().any(joined);
		// Where nothing can be read nothing is lost.
		edge.held = goes && sys::read_own(page.start, held).is_ok();
	}
}

/// Moves the break to where it was. The raw call reports no error.
fn put_break_back(was: usize) {
	// SAFETY: what was allocated since the snapshot goes.
	must(|| if unsafe { sys::brk(was) } == was { Ok(()) } else { Err(Errno::ENOMEM) });
}

/// `nothing_is_locked`: it is known that nothing was locked since.
fn change_mappings(table: &Table, nothing_is_locked: bool) {
	let changes = &table.changes[..table.change_count];
	if !table.locks && !nothing_is_locked {
		// First of all, or what is mapped again would be locked.
		must(sys::munlockall);
	}
	let was = table.program_break;
	let now = sys::program_break();
	if now > was {
		// First, while all of what lies above is mapped: the kernel doesn't lower the break over a hole.
		put_break_back(was);
	}
	for change in changes {
		if let Change::Unmap(range) = change {
			// SAFETY: nothing was here.
			must(|| unsafe { sys::munmap(range.start, range.len()) });
		}
	}
	// Room for a break that had been lower since is there now; what comes back there is mapped below.
	if now != was {
		put_break_back(was);
	}
	for change in changes {
		match change {
			Change::Unmap(_) => {}
			Change::Unlock(range) => must(|| sys::munlock(range.start, range.len())),
			// SAFETY: as it was.
			Change::Protect(range, prot) => must(|| unsafe { sys::mprotect(range.start, range.len(), *prot) }),
			Change::Map(range, entry) => {
				let entry = &table.entries[*entry as usize];
				must(|| map(entry, *range, table.fd));
			}
		}
	}
}

/// Maps part of an entry's mapping again, like the rest of it: the kernel makes one mapping of both then, if it can.
fn map(entry: &Entry, range: Range, memfd: Option<i32>) -> sys::Result<()> {
	let flags = MAP_PRIVATE | MAP_FIXED;
	let (flags, fd, offset) = match (entry.kind, memfd) {
		(Kind::Sealed, Some(fd)) => {
			STATE.set_sealed(range);
			(flags | MAP_NORESERVE, fd, entry.offset + (range.start - entry.range.start) as u64)
		}
		_ if entry.advice & offset::UNRESERVED != 0 => (flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
		_ => (flags | MAP_ANONYMOUS, -1, 0),
	};
	// Memory is charged as soon as it may be written, and stays so once some was.
	let charge = entry.charged && entry.prot & PROT_WRITE == 0;
	let prot = entry.prot | if charge { PROT_WRITE } else { 0 };
	// SAFETY: what is here now was not here then.
	let map = |flags| unsafe { sys::mmap(range.start, range.len(), prot, flags, fd, offset) };
	// Better not charged than not there.
	map(flags).or_else(|_| map(flags | MAP_NORESERVE))?;
	if charge {
		// SAFETY: memory just mapped; it becomes zeros, or what is copied there, below.
		unsafe {
			let _ = sys::madvise(range.start, PAGE, k::MADV_POPULATE_WRITE);
			sys::mprotect(range.start, range.len(), entry.prot)?;
		}
	}
	for advice in offset::advices(entry.advice) {
		// SAFETY: advice about huge pages and read-ahead discards nothing; without it things are only slower.
		let _ = unsafe { sys::madvise(range.start, range.len(), advice) };
	}
	Ok(())
}

/// Makes one mapping again of what was one, for calls that take no more than one (`mremap(2)`). The kernel merges what
/// it has reason to; it has none where memory was moved or inherited, or was advised about huge pages since. That is
/// mapped anew as a whole: all it held was copied, or is in the memfd.
fn join_pieces(table: &Table) {
	for entry in table.entries[..table.entry_count].iter().filter(|entry| entry.in_pieces && entry.renewable) {
		let range = entry.range;
		if is_one_mapping(range) || !may_be_mapped(entry) {
			continue;
		}
		must(|| map(entry, range, table.fd));
		for advice in entry.treatment.into_iter().flat_map(Treatment::advice) {
			must(|| advise(range, advice));
		}
	}
}

/// Whether a range lies in one mapping: growing it beyond all addresses fails in any case, and if it doesn't, for
/// another reason.
pub fn is_one_mapping(range: Range) -> bool {
	// SAFETY: there is no room for that anywhere.
	range.end > ADDRESSES || unsafe { sys::mremap(range.start, range.len(), ADDRESSES, 0, 0) } != Err(Errno::EFAULT)
}

/// Whether the kernel lets an entry be mapped as a whole: none of it is immutable (`mseal(2)`), and there is room for
/// that much in one.
fn may_be_mapped(entry: &Entry) -> bool {
	let range = entry.range;
	// SAFETY: the protection it has; and a mapping that nobody uses.
	unsafe {
		sys::mprotect(range.start, range.len(), entry.prot).is_ok()
			&& sys::mmap(0, range.len(), entry.prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
				.and_then(|at| sys::munmap(at, range.len()))
				.is_ok()
	}
}

/// Drops pages written since that had no content of their own, in entries that are unknown.
///
/// Sealed memory is dropped whole, as a region is ([`crate::region`]): looking for what was written there takes longer,
/// and more each time, because what was only read stays mapped in small pages.
fn drop_written(table: &Table, pagemap: &mut Pagemap) {
	let entries = &table.entries[..table.entry_count];
	let saved = &table.saved[..table.saved_count];
	let sealed = Entry::is_renewable_seal;
	let parts = entries.chunk_by(|a, b| sealed(a) == sealed(b) && a.unknown == b.unknown);
	for part in parts.filter(|part| part.iter().all(|entry| entry.unknown)) {
		let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
		if sealed(first) {
			for entry in part {
				discard(entry.range);
				if table.guards {
					// After the discard, which leaves next to no page tables to go through, and leaves guards.
					remove_guards(entry.range);
				}
			}
		} else if pagemap.has_scan() {
			// One walk over all: holes cost nothing.
			let mut dropper = Dropper { entries: part, saved, guards: table.guards };
			let whole = Range::new(first.range.start, last.range.end);
			must(|| pagemap.for_each_told(whole, Which::Written, |found, out| dropper.found(found, out)));
		} else {
			for entry in part.iter().filter(|e| e.contents) {
				let mut dropper = Dropper { entries: core::slice::from_ref(entry), saved, guards: false };
				must(|| pagemap.for_each(entry.range, Which::Written, |found| dropper.found(found, false)));
			}
		}
	}
}

/// What lies ahead of a walk in order of address.
struct Dropper<'a> {
	entries: &'a [Entry],
	saved: &'a [Saved],
	guards: bool,
}

impl Dropper<'_> {
	/// `out`: the pages are swapped out, or guards.
	fn found(&mut self, found: Range, out: bool) {
		self.entries = &self.entries[self.entries.partition_point(|e| e.range.end <= found.start)..];
		self.saved = &self.saved[self.saved.partition_point(|s| s.range.end <= found.start)..];
		for entry in self.entries.iter().take_while(|e| e.range.start < found.end) {
			if out && self.guards {
				// There were none: the snapshot would have been refused.
				remove_guards(found.intersect(entry.range));
			}
			if !entry.contents {
				continue;
			}
			let mut rest = found.intersect(entry.range);
			for copied in self.saved.iter().take_while(|s| s.range.start < rest.end) {
				discard(Range::new(rest.start, copied.range.start.min(rest.end)));
				rest.start = rest.start.max(copied.range.end);
			}
			discard(rest);
		}
	}
}

pub fn discard(range: Range) {
	if !range.is_empty() {
		// SAFETY: written since the snapshot, and no copied page is among it.
		must(|| unsafe { sys::madvise(range.start, range.len(), k::MADV_DONTNEED_LOCKED) });
	}
}

/// What was under a guard stays as it is: nothing, or the page that is copied back.
fn remove_guards(range: Range) {
	must(|| {
		// SAFETY: pages that raised a signal raise none.
		match unsafe { sys::madvise(range.start, range.len(), k::MADV_GUARD_REMOVE) } {
			// Of files before Linux 6.15: there can be none.
			Err(Errno::EINVAL) => Ok(()),
			other => other,
		}
	});
}

/// What forks, core dumps and merging do with each mapping, as it was. Whole runs at once: the kernel passes over what
/// is not mapped, and says so.
fn put_advice_back(table: &Table) {
	let entries = &table.entries[..table.entry_count];
	for run in entries.chunk_by(|a, b| a.treatment == b.treatment && !b.apart) {
		let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
		for advice in first.treatment.into_iter().flat_map(Treatment::advice) {
			// A mapping of the kernel's own that came in between since (that of uprobes) lets no run pass.
			if advise(Range::new(first.range.start, last.range.end), advice).is_err() {
				run.iter().for_each(|entry| must(|| advise(entry.range, advice)));
			}
		}
	}
}

/// Gives a range one of the advices of a [`Treatment`]; what is not mapped there is passed over.
fn advise(range: Range, advice: u32) -> sys::Result<()> {
	// SAFETY: none of these touches contents here and now.
	match unsafe { sys::madvise(range.start, range.len(), advice) } {
		Err(Errno::ENOMEM) => Ok(()),
		// A kernel that merges nothing.
		Err(Errno::EINVAL) if advice == k::MADV_UNMERGEABLE => Ok(()),
		other => other,
	}
}

/// Copies back the copied pages that differ, of the stack and of entries that are unknown.
fn copy_back(table: &Table) {
	for saved in &table.saved[..table.saved_count] {
		let entry = &table.entries[saved.entry as usize];
		if !entry.unknown && entry.is_watchable() {
			continue;
		}
		let prot = table.entries[saved.entry as usize].prot;
		let copy = table.view.start + saved.at;
		let protect = |range: Range, prot| {
			// SAFETY: nobody else runs; it is put back below.
			must(|| unsafe { sys::mprotect(range.start, range.len(), prot) });
		};
		if prot & PROT_READ == 0 {
			protect(saved.range, PROT_READ | PROT_WRITE);
			each_page(saved.range, copy, |page, from| put(page, from, table));
			protect(saved.range, prot);
			continue;
		}
		each_page(saved.range, copy, |page, from| {
			// SAFETY: both pages are mapped and readable, the one by the snapshot's protection, the other for reading.
			if unsafe { sys::same_page(page.start, from) } && table.held(page).is_none() {
				return;
			}
			if prot & PROT_WRITE == 0 {
				protect(page, PROT_READ | PROT_WRITE);
				put(page, from, table);
				protect(page, prot);
			} else {
				put(page, from, table);
			}
		});
	}
}

fn each_page(range: Range, copy: usize, mut each: impl FnMut(Range, usize)) {
	for at in (range.start..range.end).step_by(PAGE) {
		each(Range::new(at, at + PAGE), copy + (at - range.start));
	}
}

/// Copies pages back, but for what is kept: that stays, or comes from where it is held.
pub fn put(pages: Range, from: usize, table: &Table) {
	let keep = &table.keep[..table.keep_count];
	subtract(pages, keep, |part| {
		// SAFETY: the page is writable, the copy readable, and they are apart.
		unsafe { sys::copy_bytes(from + (part.start - pages.start), part.start, part.len()) };
	});
	let Some(held) = table.held(pages) else { return };
	for part in keep.iter().map(|keep| keep.intersect(pages)).filter(|part| !part.is_empty()) {
		// SAFETY: as above; a held page is as long as a page.
		unsafe { sys::copy_bytes(held.as_ptr() as usize + (part.start - pages.start), part.start, part.len()) };
	}
}

fn put_descriptors_back(table: &Table) {
	for (fd, _, offset) in &table.offsets[..table.offset_count] {
		must(|| sys::set_file_offset(*fd, *offset));
	}
	let open = &table.open[..table.open_count];
	if open.is_empty() {
		return;
	}
	// What notes writes is the engine's.
	let own = WATCHED.of_process();
	if are_all_open(open, &own) {
		return;
	}
	let mut free = 0;
	while free < i32::MAX {
		let own = own.iter().flatten();
		let end = open.iter().chain(own).copied().filter(|fd| *fd >= free).min().unwrap_or(i32::MAX);
		if free < end {
			must(|| sys::close_range(free, end - 1));
		}
		free = end.saturating_add(1);
	}
}

/// Whether what was open is, and nothing else but what is the engine's: by their number, where the kernel tells that,
/// since closing what isn't open takes longer. The kernel looks at each number then.
fn are_all_open(open: &[i32], own: &[Option<i32>]) -> bool {
	/// Of more, closing takes no longer.
	const MOST: usize = 64;
	// The engine's may have numbers that were open when the snapshot was taken, and were closed since.
	let more = own.iter().flatten().filter(|own| !open.contains(own)).count();
	let count = (open.len() + more) as u64;
	let are_as_many = || {
		let directory = WATCHED.file(File::Descriptors).ok_or(Errno::EBADF);
		directory.and_then(sys::fstatus).is_ok_and(|directory| directory.size == count)
	};
	open.len() <= MOST && are_as_many() && open.iter().all(|fd| sys::is_open(*fd))
}
