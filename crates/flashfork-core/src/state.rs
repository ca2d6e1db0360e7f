//! What all the engine must know of this process between calls: who is inside, whether memory is sealed, what has come
//! in its way.
//!
//! What one part alone remembers is that part's own ([`crate::own_pages`] has the list). What a clone begins anew with
//! is here, because whoever first notices that it is one must be able to reset it.

use crate::{
	apart::Apart,
	places::Places,
	range::Range,
	sys::{self, Errno, Result},
	unsealed::Unsealed,
};
use core::sync::atomic::{
	AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst,
};

/// Most ranges a program may exclude.
pub const MAX_EXCLUDED: usize = 64;

#[repr(C)]
pub(crate) struct State {
	/// Process that is inside the engine; a clone made meanwhile inherits its parent's id here, which is not its own.
	owner: AtomicI32,
	sealed: AtomicBool,
	/// What was ever sealed, or moved through the engine since: for when the kernel can't be asked.
	pub places: Places,
	/// Where nothing is sealed now.
	pub unsealed: Unsealed,
	/// What may have been given properties while it was sealed.
	pub marked: Places,
	/// Whether the program has put itself into a sandbox.
	sandboxed: AtomicBool,
	/// Whether in the strict mode of seccomp(2), in which the kernel ends it for whatever call.
	pub strict: AtomicBool,
	holds: AtomicBool,
	beside_another: AtomicBool,
	generation: AtomicU32,
	/// Bytes of sealed memory that the program has discarded, ever.
	discarded: AtomicU64,
	/// [`crate::threads::Threads`].
	threads: AtomicU8,
	/// How many threads have [`crate::threads::force`]d it.
	forced: AtomicI32,
	/// Threads inside a call of the engine whose meaning hangs on memory not being sealed meanwhile.
	inside: AtomicU32,
	/// Whether a seal waits for all of them to be out.
	closed: AtomicBool,
	/// Counts the calls that give memory a property a seal must mind.
	properties: AtomicU32,
	/// Counts the calls that may change mappings.
	layout: AtomicU32,
	/// Counts the calls after which the kernel may free memory later.
	frees: AtomicU32,
	helper: AtomicI32,
	/// Whether the program set up an io_uring that nothing shows ([`crate::answers::rings`]).
	hidden_ring: AtomicBool,
	/// Whether the program may have put pages of its memory into pipes ([`crate::answers::pipes`]).
	spliced: AtomicBool,
	/// What is known of a seccomp filter ([`crate::answers::sandbox`]).
	pub sandbox: AtomicU8,
	/// Where threads wait that are stopped by a signal ([`crate::threads::stop_by_signal::Desk`]); null at other times.
	pub desk: AtomicPtr<()>,
	/// Threads that are using the desk, or about to.
	pub handling: AtomicU32,
	/// The handler behind the engine's own ([`crate::threads::stop_by_signal`]).
	pub after_handler: AtomicUsize,
	/// This process, as far as it was told, 0 before: a child of `vfork(2)` sees its parent's.
	process: AtomicI32,
	/// Threads that are about to replace the program.
	pub execs: AtomicU32,
	/// Whether reading the time is a signal (`PR_SET_TSC`).
	no_clock: AtomicBool,
	/// What is known of others who use this process's descriptors ([`crate::threads::table`]).
	pub table: AtomicU8,
	/// Whether the program's calls lead through the engine, which is so from the first seal on ([`crate::calls`]).
	pub followed: AtomicBool,
	excluded: [[AtomicUsize; 2]; MAX_EXCLUDED],
	excluded_count: AtomicUsize,
}

// SAFETY: it is made of atomics, of which zeros are a value: 0, false and null.
pub(crate) static STATE: Apart<State> = Apart::new(unsafe { core::mem::zeroed() });

pub(crate) struct Inside<'a>(&'a State);

impl Drop for Inside<'_> {
	fn drop(&mut self) {
		// A clone made inside has begun to count anew.
		let _ = self.0.inside.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
	}
}

pub(crate) struct Quiet {
	mask: Option<u64>,
}

impl Drop for Quiet {
	fn drop(&mut self) {
		if let Some(mask) = self.mask {
			sys::restore_signals(mask);
		}
	}
}

impl State {
	/// Takes the engine; false when somebody has it (another thread, or a signal handler in the middle of a call).
	pub fn enter(&self) -> bool {
		self.notice_clone();
		let me = sys::getpid();
		if self.process.load(SeqCst) == 0 {
			self.know_process();
		}
		let owner = self.owner.load(SeqCst);
		owner != me && self.owner.compare_exchange(owner, me, SeqCst, SeqCst).is_ok()
	}

	pub fn leave(&self) {
		self.owner.store(0, SeqCst);
	}

	/// Whether this process, or one it was forked from, has ever sealed anything: its mappings may lie in pieces since.
	pub fn sealed(&self) -> bool {
		self.sealed.load(SeqCst)
	}

	/// Memory in `range` is being sealed.
	pub fn set_sealed(&self, range: Range) {
		self.places.add(range);
		self.unsealed.forget();
		self.sealed.store(true, SeqCst);
		self.holds.store(true, SeqCst);
	}

	/// The program's calls are to be seen as if there were sealed memory.
	pub fn expect_sealed(&self) {
		self.sealed.store(true, SeqCst);
		self.holds.store(true, SeqCst);
	}

	/// Whether there may be sealed memory now. No means no: beside another copy of the engine, which seals by itself,
	/// it is always maybe.
	pub fn holds_sealed(&self) -> bool {
		self.holds.load(SeqCst) || self.beside_another.load(SeqCst)
	}

	/// Whether the engine sees all calls of the program that would mean something on sealed memory: while there is
	/// some, or might be, and no other copy of the engine sees them in its place.
	pub fn sees_calls(&self) -> bool {
		self.holds.load(SeqCst) && !self.beside_another.load(SeqCst)
	}

	/// Another copy of the engine is in this process.
	pub fn note_another(&self) {
		self.beside_another.store(true, SeqCst);
		self.set_sealed(Range::ALL);
	}

	/// Whether another copy of the engine is in this process.
	pub fn is_beside_another(&self) -> bool {
		self.beside_another.load(SeqCst)
	}

	/// Everything is anonymous again, in pieces.
	pub fn all_unsealed(&self) {
		self.marked.clear();
		self.holds.store(false, SeqCst);
	}

	/// Where everything is anonymous, and nothing may be asked of the kernel but what the program asks: no call of the
	/// program's is more than itself from now on. A mapping in pieces can't be moved as one then (`EFAULT`), which
	/// allocators get over.
	pub fn keep_hands_off(&self) {
		self.sealed.store(false, SeqCst);
		self.beside_another.store(false, SeqCst);
	}

	/// What held for memory at `from` holds at `to`.
	pub fn moved(&self, from: Range, to: Range) {
		for places in [&self.places, &self.marked] {
			if places.touch(from) {
				places.add(to);
			}
		}
	}

	pub fn enter_sandbox(&self) {
		self.sandboxed.store(true, SeqCst);
	}

	pub fn is_sandboxed(&self) -> bool {
		self.sandboxed.load(SeqCst)
	}

	/// The number of the last generation made in this process or one that it was forked from; 0: none.
	pub fn last_generation(&self) -> u64 {
		u64::from(self.generation.load(SeqCst))
	}

	pub fn next_generation(&self) -> u32 {
		self.generation.fetch_add(1, SeqCst) + 1
	}

	pub fn discarded(&self) -> u64 {
		self.discarded.load(SeqCst)
	}

	pub fn discard(&self, bytes: usize) {
		self.discarded.fetch_add(bytes as u64, SeqCst);
	}

	pub fn threads(&self) -> u8 {
		self.threads.load(SeqCst)
	}

	pub fn set_threads(&self, threads: u8) {
		self.threads.store(threads, SeqCst);
	}

	pub fn force(&self, one_more_or_less: i32) {
		self.forced.fetch_add(one_more_or_less, SeqCst);
	}

	pub fn is_forced(&self) -> bool {
		self.forced.load(SeqCst) > 0
	}

	/// Keeps seals by other threads out until the guard is dropped: they wait for it with nobody stopped. One that has
	/// waited in vain gets a few milliseconds first, in which nobody comes in anew.
	pub fn inside(&self) -> Inside<'_> {
		const LOOKS: usize = 100;
		self.notice_clone();
		for _ in 0..LOOKS {
			if !self.closed.load(SeqCst) {
				break;
			}
			sys::sleep_ns(100_000);
		}
		self.inside.fetch_add(1, SeqCst);
		Inside(self)
	}

	/// Keeps signals waiting until the guard is dropped, once anything was sealed: for all of a call that goes
	/// [`State::inside`], on the program's own stack. A handler that jumped away would keep seals out for ever, and
	/// might be called on a stack of the engine's.
	pub fn quiet(&self) -> Quiet {
		Quiet { mask: if self.sealed() { sys::block_signals().ok() } else { None } }
	}

	/// A child that the system call `clone` made by itself was told nothing: who was inside in the parent isn't here. A
	/// child of `vfork(2)` shares its parent's memory, where they are.
	fn notice_clone(&self) {
		// A sandbox may end the program for a question that it doesn't ask.
		if !self.sealed() || self.is_sandboxed() || self.is_known_process() {
			return;
		}
		let parent = self.process.load(SeqCst);
		if parent == 0 {
			self.know_process();
		} else if sys::unshare_memory().is_ok() || sys::compare_memory(sys::getpid(), parent) == Ok(false) {
			self.nobody_inside();
		}
	}

	/// See [`State::inside`].
	pub fn close(&self, closed: bool) {
		self.closed.store(closed, SeqCst);
	}

	pub fn anybody_inside(&self) -> bool {
		self.inside.load(SeqCst) != 0
	}

	/// In a clone: whoever was inside in the parent isn't here.
	pub fn nobody_inside(&self) {
		self.inside.store(0, SeqCst);
		self.forced.store(0, SeqCst);
		self.closed.store(false, SeqCst);
		self.helper.store(0, SeqCst);
		self.desk.store(core::ptr::null_mut(), SeqCst);
		self.handling.store(0, SeqCst);
		self.execs.store(0, SeqCst);
		// A registered ring is its task's own.
		self.hidden_ring.store(false, SeqCst);
		self.spliced.store(false, SeqCst);
		// A thread of the parent may move memory.
		self.unsealed.forget();
		self.know_process();
	}

	pub fn hidden_ring(&self) -> bool {
		self.hidden_ring.load(SeqCst)
	}

	pub fn note_hidden_ring(&self) {
		self.hidden_ring.store(true, SeqCst);
	}

	pub fn spliced(&self) -> bool {
		self.spliced.load(SeqCst)
	}

	pub fn note_splice(&self) {
		self.spliced.store(true, SeqCst);
	}

	/// Notes that this process is no child of `vfork(2)`.
	pub fn know_process(&self) {
		self.process.store(sys::getpid(), SeqCst);
	}

	pub fn is_known_process(&self) -> bool {
		self.process.load(SeqCst) == sys::getpid()
	}

	pub fn properties(&self) -> u32 {
		self.properties.load(SeqCst)
	}

	pub fn properties_change(&self) {
		self.properties.fetch_add(1, SeqCst);
	}

	/// How many calls of the program have come that may change its mappings, as far as they are seen: `munmap(2)`,
	/// `shmdt(2)` and `brk(2)` aren't.
	pub fn layout(&self) -> u32 {
		self.layout.load(SeqCst)
	}

	pub fn layout_changes(&self) {
		self.layout.fetch_add(1, SeqCst);
	}

	/// How often the program has had the kernel free memory when it likes (`MADV_FREE`).
	pub fn frees(&self) -> u32 {
		self.frees.load(SeqCst)
	}

	pub fn note_free(&self) {
		self.frees.fetch_add(1, SeqCst);
	}

	/// See [`State::no_clock`].
	pub fn has_clock(&self) -> bool {
		!self.no_clock.load(SeqCst)
	}

	pub fn set_clock(&self, allowed: bool) {
		self.no_clock.store(!allowed, SeqCst);
	}

	pub fn set_helper(&self, pid: i32) {
		self.helper.store(pid, SeqCst);
	}

	pub fn helper(&self) -> i32 {
		self.helper.load(SeqCst)
	}

	/// Ends the process the engine works for, which has lost memory and must not go on.
	pub fn die(&self) -> ! {
		let me = sys::getpid();
		sys::die(if self.helper() == me { self.owner.load(SeqCst) } else { me })
	}

	pub fn exclude(&self, range: Range) -> Result<()> {
		let i = self.excluded_count.fetch_add(1, SeqCst);
		let Some(slot) = self.excluded.get(i) else {
			self.excluded_count.fetch_sub(1, SeqCst);
			return Err(Errno::ENOSPC);
		};
		// Until its end is set a range is empty and excludes nothing.
		slot[0].store(range.start, SeqCst);
		slot[1].store(range.end, SeqCst);
		Ok(())
	}

	/// What the program excluded.
	pub fn excluded(&self) -> [Range; MAX_EXCLUDED] {
		let mut out = [Range::default(); MAX_EXCLUDED];
		for (place, slot) in out.iter_mut().zip(&self.excluded) {
			*place = Range::new(slot[0].load(SeqCst), slot[1].load(SeqCst));
		}
		out
	}
}
