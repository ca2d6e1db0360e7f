//! What a snapshot remembers: one mapping of the engine's own, which no restore touches.

use super::{
	mappings::{self, Layout, Mapping},
	watched::{self, Watch},
};
use crate::{
	arena::Arena,
	proc::vma::{Flags, Kind, Vma},
	range::Range,
	region::{choice::Choice, watch::WATCHED},
	sys::{self, Errno, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, Result},
};
use linux_raw_sys::general as k;

/// Most pieces of mappings.
pub const MAX_ENTRIES: usize = 32 * 1024;
/// Most runs of copied pages.
pub const MAX_SAVED: usize = 256 * 1024;
/// Most differences in the mappings that one restore undoes.
pub const MAX_CHANGES: usize = 32 * 1024;
/// Most kept ranges, and most descriptors whose offset goes back.
pub const MAX_NAMED: usize = 64;
/// Most pages of which a part is kept: two of each range.
pub const MAX_EDGES: usize = 2 * MAX_NAMED;
/// Ranges of a snapshot's own memory.
pub const OWN: usize = 5;
/// Most descriptors that may be open when new ones are to be closed.
pub const MAX_OPEN: usize = 4096;

/// A mapping, or the part of one that a snapshot covers.
#[derive(Clone, Copy)]
pub struct Entry {
	pub range: Range,
	pub prot: u32,
	pub shared: bool,
	pub kind: Kind,
	pub inode: u64,
	pub device: [u32; 2],
	/// Of the file, at the start of the range.
	pub offset: u64,
	/// The advice it had ([`crate::seal::offset`]).
	pub advice: u8,
	/// What forks, core dumps, the merging of pages and read-ahead do with it, which goes back; none where the kernel
	/// lets nobody change that.
	pub treatment: Option<Treatment>,
	pub lock: Lock,
	/// Whether something that no restore touches lies between it and the entry before.
	pub apart: bool,
	/// Whether contents go back.
	pub contents: bool,
	/// Whether it can be mapped again when it is gone.
	pub renewable: bool,
	/// Whether its memory is charged (`VM_ACCOUNT`), though it may not be writable now.
	pub charged: bool,
	/// What was sealed: where it lies behind all that was sealed before it.
	pub place: usize,
	/// Whether this restore drops and compares its contents, because what was written isn't known.
	pub unknown: bool,
	/// Whether this restore found it in more than one piece, holes among them.
	pub in_pieces: bool,
}

/// What forks, core dumps, the merging of equal pages and read-ahead do with a mapping (`madvise(2)`).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Treatment {
	dont_fork: bool,
	wipe_on_fork: bool,
	dont_dump: bool,
	mergeable: bool,
	random: bool,
	sequential: bool,
}

impl Treatment {
	/// Of a mapping; none where changing it is refused (`madvise_vma_behavior`, mm/madvise.c).
	pub fn of(flags: &Flags) -> Option<Treatment> {
		let fixed: [&[u8; 2]; 5] = [b"io", b"pf", b"mm", b"de", b"dp"];
		let treatment = Treatment {
			dont_fork: flags.has(b"dc"),
			wipe_on_fork: flags.has(b"wf"),
			dont_dump: flags.has(b"dd"),
			mergeable: flags.has(b"mg"),
			random: flags.has(b"rr"),
			sequential: flags.has(b"sr"),
		};
		(!fixed.into_iter().any(|letters| flags.has(letters))).then_some(treatment)
	}

	/// The advice that makes it so.
	pub fn advice(self) -> [u32; 5] {
		let read_ahead = match (self.random, self.sequential) {
			(true, _) => k::MADV_RANDOM,
			(_, true) => k::MADV_SEQUENTIAL,
			_ => k::MADV_NORMAL,
		};
		[
			read_ahead,
			if self.dont_fork { k::MADV_DONTFORK } else { k::MADV_DOFORK },
			if self.wipe_on_fork { k::MADV_WIPEONFORK } else { k::MADV_KEEPONFORK },
			if self.dont_dump { k::MADV_DONTDUMP } else { k::MADV_DODUMP },
			if self.mergeable { k::MADV_MERGEABLE } else { k::MADV_UNMERGEABLE },
		]
	}
}

/// How a mapping is locked (`mlock2(2)`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lock {
	None,
	All,
	OnFault,
}

impl Lock {
	/// Of a mapping.
	pub fn of(flags: &Flags) -> Lock {
		match (flags.has(b"lo"), flags.has(b"lf")) {
			(false, _) => Lock::None,
			(true, false) => Lock::All,
			(true, true) => Lock::OnFault,
		}
	}
}

impl Entry {
	/// Whether it was sealed into the snapshot's memfd.
	pub fn is_renewable_seal(&self) -> bool {
		self.kind == Kind::Sealed && self.renewable
	}

	/// Whether what is written there can be noted. The stack is compared.
	pub fn is_watchable(&self) -> bool {
		self.contents && self.kind != Kind::Stack
	}

	/// Whether a mapping, from `at` on, is the one that was here.
	pub fn is(&self, v: &Vma, at: usize) -> bool {
		let file = !matches!(self.kind, Kind::Anonymous | Kind::Stack | Kind::Kernel);
		let offset = |start: usize, offset: u64| offset.wrapping_add(at.wrapping_sub(start) as u64);
		v.kind == self.kind
			&& v.shared == self.shared
			&& v.inode == self.inode
			&& v.device == self.device
			&& (!file || offset(v.range.start, v.offset) == offset(self.range.start, self.offset))
	}
}

/// A run of pages that was copied.
#[derive(Clone, Copy)]
pub struct Saved {
	pub range: Range,
	/// Where the copy begins, in bytes from the begin of all copies.
	pub at: usize,
	/// Index of its entry.
	pub entry: u32,
}

/// A page of which a part is kept. It is always copied: a page that is dropped takes what is kept with it.
#[derive(Clone, Copy)]
pub struct Edge {
	pub page: usize,
	/// Whether the page is held, because its mapping changes while its kept bytes must not.
	pub held: bool,
}

/// What a restore does to the mappings.
#[derive(Clone, Copy)]
pub enum Change {
	/// Nothing was mapped here.
	Unmap(Range),
	/// The same mapping, protected otherwise.
	Protect(Range, u32),
	/// The same mapping, locked since.
	Unlock(Range),
	/// Something else, or nothing, is here: the mapping of this entry comes back.
	Map(Range, u32),
}

/// What is the engine's because of an earlier snapshot.
#[derive(Clone, Copy, Default)]
pub struct Before {
	pub ranges: [Range; OWN],
	pub fd: Option<i32>,
}

/// What a restore takes at most of what is limited.
#[derive(Clone, Copy, Default)]
pub struct Needs {
	/// Bytes of all mappings, when all is done (`RLIMIT_AS`).
	pub addresses: usize,
	/// Bytes of private memory that may be written (`RLIMIT_DATA`).
	pub data: usize,
	/// Whether there is any change for which the kernel looks at these limits.
	pub asked: bool,
}

/// See the module.
#[repr(C, align(4096))]
pub struct Table {
	/// Scratch memory and the stack that snapshots and restores run on.
	pub arena: &'static mut Arena,
	pub process: i32,
	pub thread: i32,
	pub thread_pointer: usize,
	pub program_break: usize,
	/// The stack pointer to resume with.
	pub stack_pointer: usize,
	/// The memfd, and which file it is.
	pub fd: Option<i32>,
	pub identity: (u64, u64),
	/// Whether the kernel has guards (`MADV_GUARD_INSTALL`, Linux 6.13).
	pub guards: bool,
	/// The copies, mapped for reading.
	pub view: Range,
	/// How many seccomp filters there were ([`super::check`]).
	pub filters: usize,
	/// The protection key that came next.
	pub next_key: usize,
	/// The count of calls that matter ([`super::check`]) at which all was as it should be; none where they aren't seen.
	pub properties: Option<u32>,
	/// The mappings, as they were after the last restore.
	pub mappings: [Mapping; mappings::MOST],
	pub mapping_count: usize,
	/// Whether the kernel may free some of the memory later, because the program has said so before (`MADV_FREE`).
	pub lazily_freed: bool,
	/// What they take.
	pub noted: Needs,
	/// When they were noted: from the end of the mapping below the main stack to where that began.
	pub below_stack: Option<Range>,
	/// The mapping that ended with the heap then.
	pub heap: Option<Mapping>,
	/// Whether other mappings that the snapshot covers grow as a stack does (`MAP_GROWSDOWN`).
	pub others_grow: bool,
	/// By which a change of any can be told, where it can.
	pub layout: Option<Layout>,
	/// Whether forks, core dumps and so on did something unusual with any that the snapshot covers.
	pub unusual: bool,
	/// Bytes that were sealed.
	pub sealed: usize,
	/// What is noted of writes since.
	pub watch: Watch,
	/// Whether they are copied back or dropped.
	pub choice: Choice,
	/// When the last restore was over, as far as that matters, and forks of this process by then.
	pub over: Option<u64>,
	pub forks: u32,
	/// While the snapshot is taken: the addresses of the one before, and its memfd.
	pub before: Before,
	pub entries: [Entry; MAX_ENTRIES],
	pub entry_count: usize,
	/// Whether any of them was locked.
	pub locks: bool,
	pub saved: [Saved; MAX_SAVED],
	pub saved_count: usize,
	pub changes: [Change; MAX_CHANGES],
	pub change_count: usize,
	/// What these changes take.
	pub needs: Needs,
	pub keep: [Range; MAX_NAMED],
	pub keep_count: usize,
	/// In order of address.
	pub edges: [Edge; MAX_EDGES],
	pub edge_count: usize,
	/// The bytes of edges that are held.
	pub held: [[u8; sys::PAGE]; MAX_EDGES],
	/// Descriptors, the files they were, and their offsets.
	pub offsets: [(i32, (u64, u64), u64); MAX_NAMED],
	pub offset_count: usize,
	/// The descriptors that were open, in order; none when new ones stay.
	pub open: [i32; MAX_OPEN],
	pub open_count: usize,
}

impl Table {
	/// Maps a table and its arena. Memory is used only where it is touched.
	pub fn map() -> Result<&'static mut Table> {
		let arena = Arena::map()?;
		let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
		// SAFETY: a fresh mapping of the right size.
		let at = unsafe { sys::mmap(0, size_of::<Table>(), PROT_READ | PROT_WRITE, flags, -1, 0) };
		let at = match at {
			Ok(at) => at as *mut Table,
			Err(e) => {
				arena.unmap();
				return Err(e);
			}
		};
		// SAFETY: the fields for which zeros need not be valid are set before a reference to the whole exists. Zeros
		// are valid for the others: numbers, empty ranges, false, and the first variants of the enums.
		unsafe {
			(&raw mut (*at).arena).write(arena);
			(&raw mut (*at).fd).write(None);
			(&raw mut (*at).before).write(Before::default());
			(&raw mut (*at).properties).write(None);
			(&raw mut (*at).choice).write(Choice::new());
			(&raw mut (*at).over).write(None);
			(&raw mut (*at).below_stack).write(None);
			(&raw mut (*at).heap).write(None);
			(&raw mut (*at).layout).write(None);
			Watch::init(&raw mut (*at).watch);
			Ok(&mut *at)
		}
	}

	/// Gives everything back: memfd, view, arena, the table itself. Memory sealed into the memfd stays as it is.
	///
	/// # Safety
	/// Nobody uses the table any more.
	pub unsafe fn release(table: *mut Table) {
		// SAFETY: the caller says so; the arena's reference is read once, and the table is gone then. A failing call
		// leaks, no more.
		unsafe {
			if ![0, sys::getpid()].contains(&(*table).process) {
				// A clone: the watch is its parent's.
				WATCHED.leave_process();
			}
			watched::end(&mut *table);
			let arena = (&raw const (*table).arena).read();
			let (view, fd, identity) = ((*table).view, (*table).fd, (*table).identity);
			if let Some(fd) = fd.filter(|fd| sys::identity(*fd) == Ok(identity)) {
				sys::close(fd);
			}
			if !view.is_empty() {
				let _ = sys::munmap(view.start, view.len());
			}
			arena.unmap();
			let _ = sys::munmap(table as usize, size_of::<Table>());
		}
	}

	/// The addresses of the snapshot's own memory.
	pub fn own(&self) -> [Range; OWN] {
		let at = &raw const *self as usize;
		let [sources, copies] = self.watch.own();
		[self.arena.range(), Range::new(at, at + size_of::<Table>()), self.view, sources, copies]
	}

	/// Where the copy of a page is.
	pub fn copy_of(&self, saved: &Saved, page: usize) -> usize {
		self.view.start + saved.at + (page - saved.range.start)
	}

	/// What is held of a page.
	pub fn held(&self, page: Range) -> Option<&[u8; sys::PAGE]> {
		let mut edges = self.edges[..self.edge_count].iter().zip(&self.held);
		edges.find(|(edge, _)| edge.page == page.start && edge.held).map(|(_, held)| held)
	}

	/// Notes what is kept, and the edges of it.
	pub fn set_keep(&mut self, keep: &[Range]) {
		self.keep[..keep.len()].copy_from_slice(keep);
		self.keep_count = keep.len();
		self.edge_count = 0;
		let ends = keep.iter().filter(|keep| !keep.is_empty()).flat_map(|keep| [keep.start, keep.end]);
		for at in ends.filter(|at| !at.is_multiple_of(sys::PAGE)) {
			self.edges[self.edge_count] = Edge { page: at & !(sys::PAGE - 1), held: false };
			self.edge_count += 1;
		}
		self.edges[..self.edge_count].sort_unstable_by_key(|edge| edge.page);
	}

	pub fn push_entry(&mut self, entry: Entry) -> Result<()> {
		*self.entries.get_mut(self.entry_count).ok_or(Errno::E2BIG)? = Entry { place: self.sealed, ..entry };
		let minded = entry.treatment.map(|treatment| match entry.kind {
			// What reads ahead there makes no difference but in time; the engine itself sets that for code.
			Kind::File => Treatment { random: false, sequential: false, ..treatment },
			_ => treatment,
		});
		self.unusual |= minded.is_some_and(|treatment| treatment != Treatment::default());
		if entry.is_renewable_seal() {
			self.sealed += entry.range.len();
		}
		self.locks |= entry.lock != Lock::None;
		self.entry_count += 1;
		Ok(())
	}

	pub fn push_saved(&mut self, saved: Saved) -> Result<()> {
		if let Some(last) = self.saved[..self.saved_count].last_mut()
			&& last.range.end == saved.range.start
			&& last.at + last.range.len() == saved.at
			&& last.entry == saved.entry
		{
			last.range.end = saved.range.end;
			return Ok(());
		}
		*self.saved.get_mut(self.saved_count).ok_or(Errno::E2BIG)? = saved;
		self.saved_count += 1;
		Ok(())
	}

	pub fn push_change(&mut self, change: Change) -> Result<()> {
		*self.changes.get_mut(self.change_count).ok_or(Errno::E2BIG)? = change;
		self.change_count += 1;
		Ok(())
	}
}
