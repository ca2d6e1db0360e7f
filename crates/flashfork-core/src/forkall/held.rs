//! Locks that the main thread holds and that only their owner can unlock: its clones have another number, so they never
//! could, and whoever waits for one would wait for ever. Mutexes (pthread_mutex_lock(3), "recursive", "error-checking",
//! "robust", priority inheritance) and rwlocks locked to write (pthread_rwlock_unlock(3), which takes who isn't that
//! writer for a reader).
//!
//! Nobody knows where they lie. So all memory that the program has written is searched for what looks like one: glibc's
//! `struct __pthread_mutex_s` and `struct __pthread_rwlock_arch_t` (sysdeps/nptl/bits/struct_mutex.h, struct_rwlock.h).
//! What looks like one by chance is a refusal in vain. A compiler's tables in a Java machine do, for one program in a
//! hundred, but none of them as a mutex with one user. With more, all but its owner wait for a condition
//! (pthread_cond_wait(3)), and have its address in hands to lock it again, on their stacks or in registers: what so
//! few places of the memory point to is none.
//!
//! In files that are mapped shared those count that any thread holds: all clones would hold them together.
//!
//! Robust ones need no search: the thread's list has them, and the one that it is about to lock (set_robust_list(2)).
//!
//! One that it waits for is known: the kernel's call names it. For some of these glibc has read the thread's number
//! before it waits, and writes that down as the owner's (nptl/pthread_mutex_lock.c, pthread_mutex_timedlock.c).

use super::{
	frame::{self, register},
	frozen::{Frozen, Thread},
	memory,
	unfit::{Fit, NAME, Unfit, What},
};
use crate::{
	proc::{
		pagemap::{Pagemap, Which},
		scan::Region,
		vma::{self, Kind},
	},
	range::{Range, subtract},
	sys::{self, PROT_READ, PROT_WRITE, Result},
};
use syscalls::Sysno;

/// Regions that the kernel tells at a time.
const REGIONS: usize = 256;
/// Of a mutex: where its owner lies, and how many words are looked at.
const OWNER: usize = 8;
const MUTEX: usize = 10;
/// Of a rwlock: where its writer lies, and how many words are looked at.
const WRITER: usize = 24;
const RWLOCK: usize = 8;

/// Of a mutex's kind.
const TYPE: u32 = 3;
const RECURSIVE: u32 = 1;
const ERRORCHECK: u32 = 2;
const INHERITS: u32 = 0x20;
const PROTECTS: u32 = 0x40;
const SHARED: u32 = 0x80;
const ROBUST: u32 = 0x10;
/// With what elision has decided. Not with what is robust.
const KNOWN: u32 = TYPE | INHERITS | PROTECTS | SHARED | 0x100 | 0x200;
/// Of a mutex.
const MOST_USERS: u32 = 1 << 16;
/// Of a lock word that holds a number (futex(2)): that, and whether somebody waits.
const NUMBER: u32 = 0x3fff_ffff;
const WAITERS: u32 = 1 << 31;

/// Refuses a program whose main thread holds one, or waits for one, or one of whose threads holds one in a shared file.
pub fn check(frozen: &mut Frozen) -> Fit {
	if frozen.main().is_some_and(|main| waits(main) || has_robust(main)) {
		return Err(Unfit::new(What::Mutex, 0));
	}
	let at = &raw const *frozen as usize;
	// What was written down about its threads is none of its memory, nor is what the engine keeps, numbers of the
	// program's among it. Other memory may be mapped right beside them.
	let own = [Range::new(at, at + size_of::<Frozen>()), frozen.frames_range(), image()];
	let Frozen { text, list, pid, threads, count, .. } = frozen;
	let mut regions = [Region::default(); REGIONS];
	let mut pagemap = Pagemap::open(&mut regions)?;
	let (mut held, mut waited, mut together) = (None, Waited::NONE, None);
	let tids = || threads[..*count].iter().map(|thread| thread.tid);
	let (low, high) = (tids().min(), tids().max());
	let is_ours = |tid| low <= Some(tid) && Some(tid) <= high && tids().any(|other| other == tid);
	for_each_written(text, &own, &mut pagemap, |pages, shared, path| {
		if shared && path.starts_with(b"/") && path != memory::ANONYMOUS && has_one(pages, is_ours, list, is_shared) {
			together = Some(named(path));
		}
		let is_one = |at, _| match how_held(at, *pid) {
			Some(1) => true,
			// Of shared memory others may wait in other processes.
			Some(users) => shared || !waited.note(at, users),
			None => false,
		};
		if held.is_none() && has_one(pages, |tid| tid == *pid, list, is_one) {
			held = Some(named(path));
		}
	})?;
	if held.is_none() && waited.count > 0 {
		threads[..*count].iter().for_each(|thread| waited.look(thread.registers));
		for_each_written(text, &own, &mut pagemap, |pages, _, _| {
			any_chunk(pages, list, |_, bytes| {
				waited.look(bytes.as_chunks().0.iter().map(|word| usize::from_ne_bytes(*word)));
				false
			});
		})?;
		for_each_written(text, &own, &mut pagemap, |pages, _, path| {
			if waited.has_one_in(pages) {
				held = Some(named(path));
			}
		})?;
	}
	let together = together.map(|name| (What::SharedLock, name));
	let found = together.or(held.map(|name| (What::Mutex, name)));
	found.map_or(Ok(()), |(what, name)| Err(Unfit { name, ..Unfit::new(what, 0) }))
}

/// Calls `each` with the memory that the program may have written, whether it is shared, and what is mapped there; the
/// engine's `own` left out.
fn for_each_written(
	text: &mut [u8],
	own: &[Range],
	pagemap: &mut Pagemap,
	mut each: impl FnMut(Range, bool, &[u8]),
) -> Result<()> {
	vma::for_each_mapping(text, |v, path| {
		let mut looked = Ok(());
		if v.prot & (PROT_READ | PROT_WRITE) == PROT_READ | PROT_WRITE {
			subtract(v.range, own, |range| match v.kind {
				Kind::File if !v.shared => each(range, false, path),
				_ => {
					looked = looked.and(pagemap.for_each(range, Which::Populated, |pages| each(pages, v.shared, path)))
				}
			});
		}
		looked
	})
}

/// What look like mutexes with several users.
struct Waited {
	/// Of each its address, how many wait with that in their hands if it is one, and how many places have it.
	all: [(usize, usize, usize); Waited::MOST],
	count: usize,
}

impl Waited {
	const MOST: usize = 32;
	const NONE: Waited = Waited { all: [(0, 0, 0); Waited::MOST], count: 0 };

	/// Whether there was room for one.
	fn note(&mut self, at: usize, users: u32) -> bool {
		let room = self.all.get_mut(self.count);
		self.count += usize::from(room.is_some());
		room.map(|one| *one = (at, users as usize - 1, 0)).is_some()
	}

	/// Looks for their addresses in words of memory or registers.
	fn look(&mut self, words: impl IntoIterator<Item = usize>) {
		for word in words {
			self.all[..self.count].iter_mut().filter(|(at, ..)| *at == word).for_each(|(.., found)| *found += 1);
		}
	}

	/// Whether one of them that may be a mutex lies in a range.
	fn has_one_in(&self, range: Range) -> bool {
		self.all[..self.count].iter().any(|(at, waiting, found)| range.contains(*at) && found >= waiting)
	}
}

/// The library with the engine, with its data.
fn image() -> Range {
	unsafe extern "C" {
		/// Where the ELF header is in memory; linkers define it, hidden.
		static __ehdr_start: u8;
	}
	const PT_LOAD: u32 = 1;
	let base = &raw const __ehdr_start;
	// SAFETY: the header of this library, and its program headers, are mapped with its first segment (elf(5)).
	let (headers, each, count) = unsafe {
		let headers = base.add(base.add(32).cast::<u64>().read_unaligned() as usize);
		(headers, base.add(54).cast::<u16>().read_unaligned(), base.add(56).cast::<u16>().read_unaligned())
	};
	let mut len = 0;
	for i in 0..usize::from(count) {
		// SAFETY: as above.
		let (kind, from, size) = unsafe {
			let header = headers.add(i * usize::from(each));
			let word = |at: usize| header.add(at).cast::<u64>().read_unaligned() as usize;
			(header.cast::<u32>().read_unaligned(), word(16), word(40))
		};
		if kind == PT_LOAD {
			len = len.max(from + size);
		}
	}
	Range::pages_of(base as usize, len)
}

/// What it lies in, as the kernel calls that: the last part of a file's name, or of another's in brackets.
fn named(path: &[u8]) -> [u8; NAME] {
	let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
	Unfit::named(What::Mutex, 0, last).name
}

/// Whether `is_one` says so of an address in a range at which a lock may lie that one of some threads holds; `chunk` is
/// for copies of the range.
fn has_one(
	range: Range,
	is_owner: impl Fn(i32) -> bool,
	chunk: &mut [u8],
	mut is_one: impl FnMut(usize, i32) -> bool,
) -> bool {
	any_chunk(range, chunk, |at, bytes| {
		let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word) as i32);
		words
			.enumerate()
			.filter(|(_, tid)| is_owner(*tid))
			.any(|(i, tid)| is_one(at + 8 * i - OWNER, tid) || is_written(at + 8 * i - WRITER, tid) == Ok(true))
	})
}

/// Whether what lies there is a mutex for several processes that a thread holds.
fn is_shared(at: usize, tid: i32) -> bool {
	let Ok([lock, _, owner, users, kind]) = words::<5>(at) else { return false };
	let is_locked = lock & NUMBER == tid as u32 || lock == 1 || lock == 2 || kind & PROTECTS != 0;
	let is_kind = kind & SHARED != 0 && kind & !(KNOWN | ROBUST) == 0;
	is_locked && is_kind && owner == tid as u32 && (1..=MOST_USERS).contains(&users)
}

/// Whether `is` says so of a piece of a range that could be read: its address, and a copy of it in `chunk`.
fn any_chunk(range: Range, chunk: &mut [u8], mut is: impl FnMut(usize, &[u8]) -> bool) -> bool {
	let mut at = range.start;
	while at < range.end {
		let len = chunk.len().min(range.end - at);
		// What can't be read (a guard) ends the rest of a run: the next one begins behind it.
		if sys::read_own(at, &mut chunk[..len]).is_err() {
			return false;
		}
		if is(at, &chunk[..len]) {
			return true;
		}
		at += len;
	}
	false
}

fn words<const N: usize>(at: usize) -> Result<[u32; N]> {
	let mut bytes = [[0; 4]; N];
	sys::read_own(at, bytes.as_flattened_mut())?;
	Ok(bytes.map(u32::from_ne_bytes))
}

/// How many use what lies there if it is a mutex that a thread holds and nobody else can unlock: the thread, and those
/// that wait for a condition.
fn how_held(at: usize, tid: i32) -> Option<u32> {
	let [lock, count, owner, users, kind, rest @ ..] = words::<MUTEX>(at).ok()?;
	// Only robust ones are in a thread's list, and only others count how long it was waited for them.
	(owner == tid as u32 && rest == [0; 5] && holds(lock, count, users, kind, tid as u32)).then_some(users)
}

/// Whether what lies there is a rwlock that a thread has locked to write.
fn is_written(at: usize, tid: i32) -> Result<bool> {
	/// `PTHREAD_RWLOCK_WRPHASE` and `PTHREAD_RWLOCK_WRLOCKED`.
	const WRITTEN: u32 = 3;
	/// `PTHREAD_RWLOCK_WRHANDOVER`.
	const HANDS_OVER: u32 = 1 << 31;
	const MOST: u32 = 1 << 16;
	let [readers, writers, phase, waiters, pad3, pad4, writer, shared] = words::<RWLOCK>(at)?;
	// Who has locked it has set both words on which others wait to 1, to which these may add 2.
	let is_set = |word: u32| word == 1 || word == 3;
	let is_one = is_set(phase) && is_set(waiters) && writers & !HANDS_OVER < MOST && readers >> 3 < MOST && shared <= 1;
	let is_one = is_one && [pad3, pad4] == [0, 0];
	Ok(writer == tid as u32 && is_one && readers & WRITTEN == WRITTEN)
}

/// Whether a thread waits for a mutex as whose owner it will write down the number that it had before.
fn waits(thread: &Thread) -> bool {
	let r = &thread.registers;
	if r[register::ORIG_RAX] != Sysno::futex as usize || !frame::is_interrupted(r[register::RAX]) {
		return false;
	}
	let Ok([lock, _, owner, _, kind, rest @ ..]) = words::<MUTEX>(r[register::RDI]) else { return false };
	if kind & INHERITS != 0 {
		let is_held = lock & WAITERS != 0 && lock & NUMBER == owner && owner != 0;
		return is_held && kind & !KNOWN == 0 && kind & TYPE != 0;
	}
	// Not for ever, for one that somebody holds or has just let go (lll_clocklock): by then the number has been read.
	let is_timed = r[register::R10] != 0 && r[register::RDX] == 2 && lock <= 2 && rest == [0; 5];
	is_timed && (lock == 2) == (owner != 0) && matches!(kind & !SHARED, RECURSIVE | ERRORCHECK)
}

/// Whether a thread has a robust mutex, or is about to have one (`struct robust_list_head` of linux/futex.h).
fn has_robust(thread: &Thread) -> bool {
	let head = thread.robust[0];
	let [next, _, pending] = words::<6>(head).map_or([0; 3], |words| {
		let [a, b, c, d, e, f] = words.map(|word| word as usize);
		[a | b << 32, c | d << 32, e | f << 32]
	});
	// A list that is empty leads to its head.
	head != 0 && (next != head && next != 0 || pending != 0)
}

/// By the fields of a mutex whose owner is `tid`.
fn holds(lock: u32, count: u32, users: u32, kind: u32, tid: u32) -> bool {
	if kind & !KNOWN != 0 || users == 0 || users > MOST_USERS {
		return false;
	}
	let by_number = kind & INHERITS != 0;
	let is_locked = if by_number { lock & NUMBER == tid } else { lock != 0 && (lock <= 2 || kind & PROTECTS != 0) };
	let asks_for_owner = match kind & TYPE {
		RECURSIVE => count > 0,
		ERRORCHECK => by_number || count == 0 || kind & PROTECTS != 0,
		_ => by_number,
	};
	is_locked && asks_for_owner
}

#[cfg(test)]
mod tests;
