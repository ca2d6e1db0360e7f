//! Takes a snapshot: seals what is large, copies the rest, writes down the mappings.

use super::{
	Error, Options, Step, asm, check,
	current::CURRENT,
	hands_off::hands_off,
	table::{Before, Entry, Lock, MAX_NAMED, MAX_OPEN, Saved, Table, Treatment},
};
use crate::{
	code::process,
	never_seal::Reason,
	outcome::Pages,
	proc::{
		directory, dump,
		pagemap::{Pagemap, Which},
		text::{field, read_file},
		vma::{self, Kind, Vma},
	},
	range::{Range, subtract},
	restartable,
	seal::{limits, maker::Maker, offset, plan, take_calls, unseal},
	state::STATE,
	sys::{self, Errno, HUGE, MAP_NORESERVE, MAP_PRIVATE, PAGE, PROT_READ, Result as SysResult},
	threads::exclusive,
};
use core::sync::atomic::Ordering::SeqCst;
use linux_raw_sys::general as k;

/// Where the copies lie in the memfd: behind the windows of all runs.
const COPIES: u64 = offset::COPIES;

/// Beyond the last address that a program can map (`TASK_SIZE_MAX` with page tables of five levels,
/// arch/x86/include/asm/page_64.h).
const END_OF_ADDRESSES: usize = (1 << 56) - PAGE;

/// Fills the table and makes it the snapshot, in place of the one there may be, which is there until then.
/// `stack_pointer`: where the caller's stack ends.
pub fn take(table: &mut Table, options: &Options, stack_pointer: usize) -> Result<(), Error> {
	let look = |e| Error::System(Step::Look, e);
	if options.keep.len() > MAX_NAMED || options.descriptors.len() > MAX_NAMED {
		return Err(Error::TooMany);
	}
	let frame = Range::new(stack_pointer, stack_pointer + asm::FRAME);
	let senseless =
		|keep: &&Range| keep.end < keep.start || keep.end > END_OF_ADDRESSES || !keep.intersect(frame).is_empty();
	if let Some(wrong) = options.keep.iter().find(senseless) {
		return Err(Error::Keep(*wrong));
	}
	table.set_keep(options.keep);
	// SAFETY: the snapshot there is; only one call is in the engine.
	if let Some(before) = unsafe { CURRENT.load(SeqCst).as_ref() } {
		table.before = Before { ranges: before.own(), fd: before.fd };
	}
	if let Some(reason) = exclusive::refusal(&mut table.arena.text).map_err(look)? {
		return Err(Error::Refused(reason));
	}
	remember_descriptors(table, options)?;
	let calls_are_seen = make_plan(table, options, stack_pointer)?;
	let raised = limits::Raised::begin(table.arena).map_err(Error::of_engine)?;
	let mut maker = Maker::begin(&raised.memory, Pages::Auto).map_err(Error::of_engine)?;
	let identity = sys::identity(maker.fd);
	maker.seal_all(table.arena);
	maker.close_window();
	let copied = identity.map_err(|e| Error::System(Step::Memfd, e)).and_then(|identity| {
		table.identity = identity;
		copy_all(table, &maker, stack_pointer)
	});
	let ((memfd, _), outcome) = maker.finish();
	let fd = memfd.fd;
	table.fd = Some(fd);
	if outcome.sealed > 0 {
		plan::note_generation(table.identity, outcome.sealed, &mut table.arena.small);
		dump::add_file_memory(&mut table.arena.small);
	}
	let copies = copied?;
	table.view = map_copies(fd, copies).map_err(|e| Error::System(Step::Memfd, e))?;
	table.fd = Some(sys::out_of_the_way(fd));
	table.process = sys::getpid();
	table.thread = sys::gettid();
	table.thread_pointer = sys::thread_pointer().map_err(look)?;
	table.program_break = sys::program_break();
	table.stack_pointer = stack_pointer;
	if options.close_new {
		remember_open(table)?;
	}
	// SAFETY: takes guards away where there are none.
	table.guards = unsafe { sys::madvise(table.arena.range().start, PAGE, k::MADV_GUARD_REMOVE) }.is_ok();
	table.filters = check::filters(&mut table.arena.text);
	table.next_key = check::next_key(table);
	if calls_are_seen {
		STATE.expect_sealed();
		table.properties = Some(STATE.properties());
		let rollup = read_file(c"/proc/thread-self/smaps_rollup", &mut table.arena.text);
		table.lazily_freed = rollup.ok().and_then(|text| field(text, b"LazyFree")) != Some(0);
	}
	table.before = Before::default();
	super::release(CURRENT.swap(table, SeqCst));
	Ok(())
}

/// Plans which runs are sealed in place: everything sealed before, so that no other memfd is needed, and what is large;
/// or nothing, and then nothing stays sealed. Gives whether the program's calls are seen from now on.
fn make_plan(table: &mut Table, options: &Options, stack_pointer: usize) -> Result<bool, Error> {
	let look = |e| Error::System(Step::Look, e);
	let (hands_off, count) = hands_off(table);
	plan::set_holes(table.arena, stack_pointer).map_err(look)?;
	if !restartable::is_known(sys::thread_pointer().map_err(look)?) {
		return Err(Error::Refused(Reason::RestartableSequence));
	}
	for range in hands_off[..count].iter().chain(options.keep) {
		// An excluded range too many is copied and not sealed, which is right as well; the arena has room for all of
		// these.
		if table.arena.push_hole(Range::pages_of(range.start, range.len())).is_err() {
			return Err(Error::TooMany);
		}
	}
	let prepared = if options.seal { unseal::not_sealed_anew(table.arena) } else { unseal::everything(table.arena) };
	prepared.map_err(Error::of_engine)?;
	let facts = plan::make(table.arena, true).map_err(look)?;
	if let Some(reason) = facts.refused {
		return Err(Error::Refused(reason));
	}
	if !options.seal {
		table.arena.run_count = 0;
	}
	let room = limits::vma_room(&mut table.arena.small, facts.vmas).map_err(look)?;
	if 2 * table.arena.run_count > room {
		return Err(Error::Refused(Reason::VmaLimit));
	}
	if !options.seal {
		return Ok(false);
	}
	match take_calls(table.arena, &mut None) {
		Err(refused) if table.arena.run_count > 0 => Err(Error::of_engine(refused)),
		taken => {
			// Where it can't be read nothing is known of it, and mappings are looked at each time.
			let _ = process::look_at_own(table.arena);
			Ok(taken.is_ok())
		}
	}
}

/// Writes down every mapping and copies the pages of private ones that the process has written; returns how many bytes.
fn copy_all(table: &mut Table, maker: &Maker, stack_pointer: usize) -> Result<usize, Error> {
	let (hands_off, count) = hands_off(table);
	// The buffers are used while the rest of the table is written: take them out for the time being.
	let text = core::ptr::slice_from_raw_parts_mut(table.arena.text.as_mut_ptr(), table.arena.text.len());
	let regions = core::ptr::slice_from_raw_parts_mut(table.arena.regions.as_mut_ptr(), table.arena.regions.len());
	// SAFETY: nothing below uses these two buffers of the arena in another way.
	let (text, regions) = unsafe { (&mut *text, &mut *regions) };
	let pagemap = Pagemap::open(regions).map_err(|e| Error::System(Step::Look, e))?;
	let mut copier = Copier { table, maker, pagemap, at: 0, checked: 0, apart: false, error: None };
	let done = vma::for_each(c"/proc/thread-self/smaps", text, |v| {
		if v.kind == Kind::Kernel {
			copier.apart = true;
			return Ok(());
		}
		let whole = match v.kind {
			// What lies below the stack pointer is dead.
			Kind::Stack if (v.range.start..v.range.end).contains(&stack_pointer) => {
				Range::new(stack_pointer & !(PAGE - 1), v.range.end)
			}
			_ => v.range,
		};
		let (mut result, mut at) = (Ok(()), v.range.start);
		subtract(whole, &hands_off[..count], |piece| {
			copier.apart |= piece.start != at;
			at = piece.end;
			if result.is_ok() {
				result = copier.piece(v, piece);
			}
		});
		copier.apart |= at != v.range.end;
		result
	});
	match (copier.error, done) {
		(Some(error), _) => Err(error),
		(None, Err(Errno::E2BIG)) => Err(Error::TooMany),
		(None, Err(e)) => Err(Error::System(Step::Look, e)),
		(None, Ok(())) => Ok(copier.at),
	}
}

struct Copier<'a, 'b> {
	table: &'a mut Table,
	maker: &'a Maker<'b>,
	pagemap: Pagemap<'a>,
	/// Bytes copied.
	at: usize,
	/// Bytes up to which there was memory enough.
	checked: usize,
	/// Whether something left out lies right before what comes.
	apart: bool,
	error: Option<Error>,
}

impl Copier<'_, '_> {
	fn piece(&mut self, v: &Vma, range: Range) -> SysResult<()> {
		if let Some(reason) = refusal(v) {
			return self.refuse(Error::Refused(reason));
		}
		let lock = Lock::of(&v.flags);
		self.table.others_grow |= v.flags.has(b"gd") && v.kind != Kind::Stack;
		let entry = Entry {
			range,
			prot: v.prot,
			shared: v.shared,
			kind: v.kind,
			inode: v.inode,
			device: v.device,
			offset: v.offset + (range.start - v.range.start) as u64,
			advice: offset::advice_of(v),
			treatment: Treatment::of(&v.flags),
			lock,
			apart: core::mem::take(&mut self.apart),
			// The kernel may empty a droppable mapping whenever it likes.
			contents: !v.shared && !v.flags.has(b"dp"),
			renewable: !v.shared
				&& lock == Lock::None
				&& (v.kind == Kind::Anonymous && plain(v)
					|| v.kind == Kind::Sealed && v.identity() == self.table.identity),
			charged: v.flags.has(b"ac"),
			unknown: true,
			in_pieces: false,
			place: 0,
		};
		self.table.push_entry(entry)?;
		if !entry.contents {
			return Ok(());
		}
		let index = self.table.entry_count as u32 - 1;
		let mut done = range.start;
		for i in 0..self.table.edge_count {
			let edge = Range::pages_of(self.table.edges[i].page, 1);
			// The pages of two edges may be one.
			if edge.start >= done && edge.end <= range.end {
				self.written(Range::new(done, edge.start), v.prot, index)?;
				self.copy(edge, v.prot, index);
				done = edge.end;
			}
		}
		self.written(Range::new(done, range.end), v.prot, index)?;
		if self.error.is_some() { Err(Errno::ECANCELED) } else { Ok(()) }
	}

	/// Copies what the process has written.
	fn written(&mut self, range: Range, prot: u32, entry: u32) -> SysResult<()> {
		let Copier { table, maker, pagemap, at, checked, error, .. } = self;
		pagemap.for_each(range, Which::Written, |found| {
			if error.is_none() {
				*error = copy(table, maker, found.intersect(range), prot, at, checked, entry).err();
			}
		})
	}

	fn copy(&mut self, range: Range, prot: u32, entry: u32) {
		if self.error.is_none() {
			self.error = copy(self.table, self.maker, range, prot, &mut self.at, &mut self.checked, entry).err();
		}
	}

	fn refuse(&mut self, error: Error) -> SysResult<()> {
		self.error = Some(error);
		Err(Errno::ECANCELED)
	}
}

fn copy(
	table: &mut Table,
	maker: &Maker,
	run: Range,
	prot: u32,
	at: &mut usize,
	checked: &mut usize,
	entry: u32,
) -> Result<(), Error> {
	let failed = |e| match e {
		// A page of a readable mapping that can't be read.
		Errno::EFAULT => Error::Refused(Reason::GuardRegion),
		e => Error::System(Step::Copy, e),
	};
	let mut rest = run;
	while !rest.is_empty() {
		let part = Range::new(rest.start, rest.end.min(rest.start + HUGE));
		if *at + part.len() > *checked {
			// The small buffer: the other is in use.
			if !maker.has_room(HUGE, &mut table.arena.small) {
				return Err(Error::Refused(Reason::LowMemory));
			}
			*checked = *at + part.len() + HUGE;
		}
		let copied = readable(part, prot, || sys::pwrite_all(maker.fd, part.start, part.len(), COPIES + *at as u64));
		copied.map_err(failed)?;
		table.push_saved(Saved { range: part, at: *at, entry }).map_err(|_| Error::TooMany)?;
		*at += part.len();
		rest.start = part.end;
	}
	Ok(())
}

fn readable(range: Range, prot: u32, f: impl FnOnce() -> SysResult<()>) -> SysResult<()> {
	if prot & PROT_READ != 0 {
		return f();
	}
	// SAFETY: with one thread and signals blocked nobody notices that more is allowed for a moment.
	unsafe { sys::mprotect(range.start, range.len(), PROT_READ)? };
	let result = f();
	// SAFETY: as it was.
	super::restore::must(|| unsafe { sys::mprotect(range.start, range.len(), prot) });
	result
}

fn refusal(v: &Vma) -> Option<Reason> {
	if v.shared {
		return None;
	}
	let flags: [(&[u8; 2], Reason); 9] = [
		(b"ht", Reason::HugeTlb),
		(b"ss", Reason::ShadowStack),
		(b"um", Reason::UserfaultRange),
		(b"uw", Reason::UserfaultRange),
		(b"ui", Reason::UserfaultRange),
		(b"gu", Reason::GuardRegion),
		(b"pf", Reason::Device),
		(b"io", Reason::Device),
		(b"sl", Reason::Immutable),
	];
	let found = flags.into_iter().find(|(letters, _)| v.flags.has(letters)).map(|(_, reason)| reason);
	found.or((v.pkey != 0).then_some(Reason::ProtectionKey))
}

/// Whether an anonymous mapping has nothing that a new one would lack, given what it is treated like.
fn plain(v: &Vma) -> bool {
	let special: [&[u8; 2]; 2] = [b"gd", b"dp"];
	!special.into_iter().any(|letters| v.flags.has(letters))
}

fn map_copies(fd: i32, len: usize) -> SysResult<Range> {
	if len == 0 {
		return Ok(Range::default());
	}
	// SAFETY: a fresh mapping.
	let at = unsafe { sys::mmap(0, len, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, COPIES)? };
	Ok(Range::new(at, at + len))
}

fn remember_descriptors(table: &mut Table, options: &Options) -> Result<(), Error> {
	for fd in options.descriptors {
		let found = sys::identity(*fd).and_then(|identity| Ok((*fd, identity, sys::file_offset(*fd)?)));
		table.offsets[table.offset_count] = found.map_err(|_| Error::Descriptor(*fd))?;
		table.offset_count += 1;
	}
	Ok(())
}

/// Writes down which descriptors are open, in order.
fn remember_open(table: &mut Table) -> Result<(), Error> {
	let mut count = 0;
	let (open, not_any_more) = (&mut table.open, table.before.fd);
	directory::for_each_descriptor(&mut table.arena.text, |fd| {
		if Some(fd) == not_any_more {
			return;
		}
		if count < MAX_OPEN {
			open[count] = fd;
		}
		count += 1;
	})
	.map_err(|e| Error::System(Step::Look, e))?;
	if count > MAX_OPEN {
		return Err(Error::TooMany);
	}
	open[..count].sort_unstable();
	table.open_count = count;
	Ok(())
}
